"""The egress table's promises, checked on text or on the kernel's own listing.

The second reader: it shares nothing with the renderer but the `Egress` value, and it decodes the DNS questions by
itself. The rule: everything that is not promised is refused, by a reason that names the promise. Pure.
"""

from hooks import listing, ranges, rules
from hooks.egress import NETDEV, VETH, Egress
from oci.refusal import Refusal, Refused

_METADATA = ("169.254.169.254", "168.63.129.16", "100.100.100.200", "fd00:ec2::254")
_LOOPBACK = ("127.0.0.0/8", "::1")
_OURS = ("metadata", "loopback")
_PORT = "443"
_COMMENT_LIMIT = 100
_FAMILIES = (("ip", 4), ("ip6", 6))


class Facts:
    """What an audited table says, in numbers for the receipt: pinned addresses, ranges denied first, names, rules."""

    __slots__ = ("allow", "deny", "dns", "names", "rules", "table")

    def __init__(  # noqa: PLR0913 - the receipt's own list
        self, *, table: str, allow: int, deny: int, names: int, rules: int, dns: "str | None"
    ) -> None:
        self.table = table
        self.allow = allow
        self.deny = deny
        self.names = names
        self.rules = rules
        self.dns = dns

    def to_json(self) -> "dict[str, object]":
        """Return the facts as a JSON object."""
        return {name: getattr(self, name) for name in self.__slots__}


def audit(text: str, egress: Egress) -> Facts:
    """Return the facts of a text or listing that keeps every promise; raises Refused with each one it breaks."""
    table = listing.parse(text)
    refusals = _table(table, egress) + _sets(table, egress) + _chains(table, egress)
    if refusals:
        raise Refused(refusals)
    return Facts(
        table=table.name,
        allow=sum(len(table.sets[f"allow{n}"].elements) for _, n in _FAMILIES if f"allow{n}" in table.sets),
        deny=sum(len(table.sets[f"never{n}"].elements) for _, n in _FAMILIES),
        names=len(egress.pins),
        rules=sum(len(chain.rules) for chain in table.chains.values()),
        dns=egress.dns,
    )


def _table(table: listing.Table, egress: Egress) -> "list[Refusal]":
    family = "netdev" if egress.selector.kind == NETDEV else "inet"
    if (table.family, table.name) == (family, egress.table):
        return []
    return [Refusal("wrong-table", f"table {table.family} {table.name} is not {family} {egress.table}")]


def _sets(table: listing.Table, egress: Egress) -> "list[Refusal]":
    wanted = _headers(egress)
    found = [Refusal("unknown-set", f"set {name} is not one of ours") for name in table.sets if name not in wanted]
    for name, header in wanted.items():
        there = table.sets.get(name)
        if there is None:
            found.append(Refusal("no-set", f"set {name} is missing"))
        elif there.header != header:
            found.append(Refusal("set-altered", f"set {name} is declared as {'; '.join(there.header)}"))
    return found + _pins(table, egress) + _never(table, egress)


def _headers(egress: Egress) -> "dict[str, list[str]]":
    wanted: "dict[str, list[str]]" = {}
    for ip, n in _FAMILIES:
        if any((":" in address) == (n == 6) for address in egress.addresses):
            wanted[f"allow{n}"] = [f"typeof {ip} daddr . tcp dport", "counter"]
        wanted[f"never{n}"] = [f"typeof {ip} daddr", "flags interval"]
        key = f"typeof {ip} daddr . meta l4proto . th dport"
        wanted[f"denied{n}"] = [key, f"size {egress.ledger_size}", "flags dynamic", "counter"]
    return wanted


def _pins(table: listing.Table, egress: Egress) -> "list[Refusal]":
    found: "list[Refusal]" = []
    left = set(egress.addresses)
    for n in (4, 6):
        there = table.sets.get(f"allow{n}")
        for element in there.elements if there else ():
            address, _, port = element.key.partition(" . ")
            found += _pin(egress, address, port, element.comment)
            if (":" in address) == (n == 6):
                left.discard(address)
    return found + [
        Refusal("pin-missing", f"{address} is a pin that the table does not allow") for address in sorted(left)
    ]


def _pin(egress: Egress, address: str, port: str, comment: str) -> "list[Refusal]":
    found: "list[Refusal]" = []
    if address not in egress.addresses:
        found.append(Refusal("address-not-pinned", f"{address} is allowed and no name of the plan has it"))
    elif comment and address not in egress.pins.get(comment, ()):
        found.append(Refusal("comment-mismatch", f"{address} is not an address of {comment}"))
    if port != _PORT:
        found.append(Refusal("port-not-443", f"{address} is allowed on port {port or 'any'}"))
    return found


def _never(table: listing.Table, egress: Egress) -> "list[Refusal]":
    wanted = [(text, "metadata", "metadata-not-denied") for text in _METADATA]
    wanted += [(text, "loopback", "loopback-not-denied") for text in _LOOPBACK]
    wanted += [(text, word, "range-not-denied") for text, word in egress.denied.items()]
    asked = [(span, word) for text, word, _ in wanted if (span := ranges.span(text))]
    spans: "list[tuple[int, int, int]]" = []
    found: "list[Refusal]" = []
    for _, n in _FAMILIES:
        there = table.sets.get(f"never{n}")
        for element in there.elements if there else ():
            span = ranges.span(element.key)
            if span is None or span[0] != n:
                found.append(Refusal("unknown-statement", f"{element.key} in never{n} is not an address or a range"))
            else:
                spans.append(span)
                found += _denial(element, span, asked)
    return found + [
        Refusal(why, f"{text} is not denied first") for text, _, why in wanted if not ranges.covered(text, spans)
    ]


def _denial(
    element: listing.Element, span: "tuple[int, int, int]", asked: "list[tuple[tuple[int, int, int], str]]"
) -> "list[Refusal]":
    """Judge one element: nothing but what the plan denies, under the reasons that the plan gives."""
    if not ranges.inside(span, [one for one, _ in asked]):
        return [Refusal("unknown-deny", f"{element.key} is denied and the plan does not ask it")]
    words = sorted(
        {word for one, word in asked if ranges.inside(one, [span])}, key=lambda word: (word not in _OURS, word)
    )
    wanted = "".join(words[:1])
    for word in words[1:]:
        wanted += f"/{word}" if len(wanted) + len(word) < _COMMENT_LIMIT else ""
    if element.comment == wanted:
        return []
    return [Refusal("comment-mismatch", f"{element.key} is denied as {element.comment!r}, not as {wanted!r}")]


def _hooks(egress: Egress) -> "dict[str, str]":
    """Return each chain that the placement has with its `type` line, which `denied`, only ever jumped to, lacks."""
    tail = "priority filter; policy accept;"
    if egress.selector.kind == NETDEV:
        return {"denied": "", "ingress": f'type filter hook ingress device "{egress.selector.value}" {tail}'}
    names = ("forward", "input") if egress.selector.kind == VETH else ("output",)
    return {"denied": "", **{name: f"type filter hook {name} {tail}" for name in names}}


def _chains(table: listing.Table, egress: Egress) -> "list[Refusal]":
    wanted = _hooks(egress)
    found = [
        Refusal("unknown-chain", f"chain {name} is not one of ours") for name in table.chains if name not in wanted
    ]
    for name, head in wanted.items():
        chain = table.chains.get(name)
        if chain is None:
            found.append(Refusal("no-chain", f"chain {name} is missing"))
        else:
            found += _head(chain, head) + rules.Rules(egress, chain).refusals()
    return found


def _head(chain: listing.Chain, wanted: str) -> "list[Refusal]":
    """Compare the `type` line part by part, to name the part that differs."""
    if chain.head == wanted:
        return []
    there = chain.head
    if not wanted:
        reason = "unknown-chain"
    elif not there:
        reason = "no-hook"
    elif there.partition(" priority ")[0] != wanted.partition(" priority ")[0]:
        reason = "wrong-hook"
    elif there.partition("; ")[0] != wanted.partition("; ")[0]:
        reason = "wrong-priority"
    else:
        reason = "wrong-policy"
    return [Refusal(reason, f"chain {chain.name} is `{there}`, not `{wanted}`")]
