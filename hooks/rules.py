"""The rules of one chain against what its placement promises: each is named by what it does, then the list is judged.

The auditor's part that reads rules; it shares nothing with the renderer. The rule: a body that is not word for word one
of ours is refused, and an accepting one by the reason for which it accepts too much. Pure.
"""

from hooks import listing, question, ranges
from hooks.egress import NETNS, UID, Egress
from oci.refusal import Refusal

_PORT = "443"
_PROTOCOLS = {"6": "tcp", "17": "udp"}

# The bodies of rules (selector, comment and counter values taken off) that are the same in every table.
_FIXED: "dict[str, str]" = {
    "ip daddr @never4 jump denied": "never4",
    "ip6 daddr @never6 jump denied": "never6",
    "ip hdrlength 5 ip daddr . tcp dport @allow4 accept": "pins4",
    "ip6 nexthdr tcp ip6 daddr . tcp dport @allow6 accept": "pins6",
    "arp htype 1 arp ptype ip arp hlen 6 arp plen 4 arp operation { request, reply } accept": "arp",
    "jump denied": "deny",
    "meta l4proto { tcp, udp } add @denied4 { ip daddr . meta l4proto . th dport }": "ledger4",
    "meta l4proto { tcp, udp } add @denied6 { ip6 daddr . meta l4proto . th dport }": "ledger6",
    "ip daddr != 224.0.0.0/24 meta l4proto != { tcp, udp } counter": "other4",
    "ip6 daddr != ff02::/16 meta l4proto != { tcp, udp } counter": "other6",
    "meta l4proto tcp reject with tcp reset": "reset",
    "reject with icmpx admin-prohibited": "reject",
    "drop": "drop",
}
_DENIED = ["ledger4", "ledger6", "other4", "other6", "reset", "reject", "drop"]
_ACCEPTS = ("pins4", "pins6", "dns", "nd", "arp")
# What it means when a rule of this kind is not there.
_MISSING = {
    "never4": "metadata-not-denied",
    "never6": "metadata-not-denied",
    "pins4": "pins-not-allowed",
    "pins6": "pins-not-allowed",
    "dns": "dns-question-missing",
    "nd": "no-neighbour-discovery",
    "arp": "no-arp",
    "deny": "no-fast-reject",
    "ledger4": "no-ledger",
    "ledger6": "no-ledger",
    "other4": "no-ledger",
    "other6": "no-ledger",
    "reset": "no-fast-reject",
    "reject": "no-fast-reject",
    "drop": "no-default-deny",
}


def _selector(egress: Egress) -> "list[str]":
    if egress.selector.kind == NETNS:
        return ["oifname", "!=", '"lo"']
    if egress.selector.kind == UID:
        return ["meta", "skuid", egress.selector.value]
    return ["iifname", f'"{egress.selector.value}"']


def _named(body: "list[str]") -> "list[str]":
    """Return the words with protocols by name: where /etc/protocols is missing (netbase), nft prints their numbers."""
    named: "list[str]" = []
    protocol = False
    for word in body:
        number, comma = word.removesuffix(","), "," if word.endswith(",") else ""
        named.append(_PROTOCOLS[number] + comma if protocol and number in _PROTOCOLS else word)
        protocol = word in ("l4proto", "nexthdr") or (protocol and (word in ("{", "!=") or bool(comma)))
    return named


class Rules:
    """One chain's rules, each named by what it does, against the list that the placement promises."""

    __slots__ = ("_chain", "_egress", "_found", "_kinds", "_questions", "_selector")

    def __init__(self, egress: Egress, chain: listing.Chain) -> None:
        self._egress = egress
        self._chain = chain
        self._selector = _selector(egress)
        self._found: "list[Refusal]" = []
        self._questions: "set[tuple[str, bool]]" = set()
        self._kinds = [kind for number, words in chain.rules if (kind := self._kind(number, words))]

    def refusals(self) -> "list[Refusal]":
        """Every promise that the chain breaks."""
        return self._found + self._presence() + self._order()

    def _refuse(self, number: int, reason: str, text: str) -> str:
        self._found.append(Refusal(reason, f"line {number}: {text}"))
        return ""

    def _kind(self, number: int, words: "list[str]") -> str:
        """Name one rule, or refuse it and return nothing."""
        size = len(self._selector)
        if words[:size] != self._selector:
            return self._refuse(number, "unscoped-rule", f"does not begin with {' '.join(self._selector)}")
        body, comment = listing.comment_of(number, words[size:])
        body, _ = listing.without_counter(number, body)
        body = _named(body)
        text = " ".join(body)
        if text in _FIXED:
            kind = _FIXED[text]
            return kind if comment == ("other" if kind.startswith("other") else "") else self._odd(number, text)
        if body[-1:] == ["accept"] and not any(mark in text for mark in ";#\\"):
            return self._accept(number, body[:-1], comment)
        return self._odd(number, text)

    def _odd(self, number: int, text: str) -> str:
        return self._refuse(number, "unknown-statement", f"not a rule of ours: {text[:120]}")

    def _accept(self, number: int, body: "list[str]", comment: str) -> str:
        """Name an accepting rule that is not one of the fixed ones, or say what it opens."""
        if "udp" in body:
            return self._dns(number, body, comment)
        text = " ".join(body)
        if text == self._neighbour_discovery() and not comment:
            return "nd"
        return self._refuse(number, _opened(body, self._egress), f"accepts too much: {text[:120] or 'everything'}")

    def _neighbour_discovery(self) -> str:
        targets = ["fe80::/10", "ff02::/16"]
        dns = self._egress.dns or ""
        if ":" in dns and not any(ranges.covered(dns, [span]) for text in targets if (span := ranges.span(text))):
            targets.append(dns)
        targets.sort(key=lambda text: ranges.span(text) or (0, 0, 0))
        types = "nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert"
        return f"ip6 hoplimit 255 icmpv6 type {{ {types} }} ip6 daddr {{ {', '.join(targets)} }}"

    def _dns(self, number: int, body: "list[str]", comment: str) -> str:
        dns = self._egress.dns
        if dns is None:
            return self._refuse(number, "dns-closed", "the plan closes DNS")
        ip, plain = ("ip6", ["ip6", "nexthdr", "udp"]) if ":" in dns else ("ip", ["ip", "hdrlength", "5"])
        if body[:3] != [ip, "daddr", dns]:
            return self._refuse(number, "dns-wrong-server", f"accepts UDP that does not go to the card's DNS, {dns}")
        if body[3:6] != plain:
            return self._refuse(number, "source-route", "accepts a packet with options or extension headers")
        if body[6:9] != ["udp", "dport", "53"]:
            return self._refuse(number, "dns-wrong-port", "accepts UDP on another port than 53")
        return self._question(number, body[9:], comment)

    def _question(self, number: int, words: "list[str]", comment: str) -> str:
        try:
            asked = question.decode(words)
        except ValueError as error:
            return self._refuse(number, "dns-question", str(error))
        if asked.name not in self._egress.pins:
            return self._refuse(number, "dns-name", f"lets {asked.name} be asked, which is not a name of the plan")
        if comment not in ("", asked.name):
            return self._refuse(number, "comment-mismatch", f"the comment says {comment} and the match {asked.name}")
        if (asked.name, asked.edns) in self._questions:
            return self._refuse(number, "repeated-rule", f"asks for {asked.name} twice")
        self._questions.add((asked.name, asked.edns))
        return "dns"

    def _wanted(self) -> "list[str]":
        """Return the kinds of rules that this chain promises, in their order; all DNS rules are one."""
        egress, name = self._egress, self._chain.name
        if name == "denied":
            return _DENIED
        wanted = ["never4", "never6"]
        if name != "input":
            wanted += [f"pins{n}" for n in (4, 6) if any((":" in text) == (n == 6) for text in egress.addresses)]
        wanted += ["dns"] if egress.dns is not None and egress.pins else []
        wanted += ["arp"] if name == "ingress" else []
        wanted += ["nd"] if egress.v6 and egress.selector.kind != UID and name != "forward" else []
        return [*wanted, "deny", "drop"]

    def _presence(self) -> "list[Refusal]":
        wanted = self._wanted()
        chain = self._chain.name
        found: "list[Refusal]" = []
        for kind in wanted:
            if kind not in self._kinds:
                found.append(Refusal(_MISSING[kind], f"chain {chain} has no rule {kind}"))
        for kind in sorted(set(self._kinds)):
            if kind not in wanted:
                found.append(Refusal("unexpected-rule", f"chain {chain} has a rule {kind} that the plan does not ask"))
            elif kind != "dns" and self._kinds.count(kind) > 1:
                found.append(Refusal("repeated-rule", f"chain {chain} has the rule {kind} more than once"))
        if "dns" in wanted and "dns" in self._kinds:
            questions = {(name, edns) for name in self._egress.pins for edns in (False, True)}
            for name, edns in sorted(questions - self._questions):
                what = "with EDNS" if edns else "without EDNS"
                found.append(Refusal("dns-question-missing", f"chain {chain} does not let {name} be asked {what}"))
        return found

    def _order(self) -> "list[Refusal]":
        chain = self._chain.name
        found: "list[Refusal]" = []
        if self._kinds[-1:] != ["drop"] and "drop" in self._kinds:
            found.append(Refusal("no-default-deny", f"the last rule of chain {chain} is not the bare drop"))
        accepts = [at for at, kind in enumerate(self._kinds) if kind in _ACCEPTS]
        nevers = [at for at, kind in enumerate(self._kinds) if kind.startswith("never")]
        if accepts and nevers and accepts[0] < nevers[-1]:
            return [*found, Refusal("accept-before-deny", f"chain {chain} accepts before it has denied")]
        order = [kind for at, kind in enumerate(self._kinds) if kind != "dns" or self._kinds[at - 1] != "dns"]
        if not found and order != [kind for kind in self._wanted() if kind in order]:
            found.append(Refusal("rule-order", f"the rules of chain {chain} are not in their order"))
        return found


def _opened(body: "list[str]", egress: Egress) -> str:
    """Return the reason for a rule that accepts what it must not: the first of its promises that it breaks."""
    if "icmpv6" in body or "ipv6-icmp" in body:
        return "neighbour-discovery"
    if any(word.startswith("@allow") for word in body):
        return "source-route" if "tcp" in body else "port-not-443"
    if "arp" in body:
        return "unexpected-rule"
    addresses = [word for word in body if ranges.span(word)]
    if not addresses:
        return "accept-any"
    if any(address not in egress.addresses for address in addresses):
        return "address-not-pinned"
    return "port-not-443" if body[-3:] != ["tcp", "dport", _PORT] else "unknown-statement"
