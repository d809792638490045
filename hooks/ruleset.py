"""The egress table as nft text, for every placement.

Owns the words of nft's language on the writing side and the one order of rules; decides nothing about which addresses
are allowed. Pure: an `Egress` in, text out. Portable to nft 1.0.6: no `destroy`, no empty `elements`, addresses only as
`ipaddress` prints them (nft would resolve a hostname by itself), comments from a safe alphabet and under 128 bytes.

The order is the wall: first what is never allowed, then what is, then the bare drop. Every denial takes one way, the
chain `denied`: it is recorded, then rejected so that it fails at once (TCP reset first: the ICMP form alone takes a
second on IPv6), then dropped. It is jumped to and not repeated, so that an allowed packet pays for one look-up among
what is never allowed, not three; and by `jump`, not `goto`: from an empty chain a packet would come back to the drop.
The ledger's rules carry no verdict, because a full set ends the rule that adds to it.
"""

import ipaddress

from hooks import dnsname
from hooks.egress import NETDEV, NETNS, PORT, UID, VETH, Egress

METADATA4 = ("169.254.169.254", "168.63.129.16", "100.100.100.200")
METADATA6 = ("fd00:ec2::254",)
LOOPBACK4 = "127.0.0.0/8"
LOOPBACK6 = "::1/128"
DENIED = "denied"
_COMMENT_LIMIT = 100

# Neighbour discovery and nothing else of ICMPv6 (RFC 4861: hop limit 255, so no router ever forwarded it).
_ND_TYPES = "{ nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert }"
_ND_TARGETS = ("fe80::/10", "ff02::/16")
_ARP = "arp htype 1 arp ptype ip arp hlen 6 arp plen 4 arp operation { request, reply } accept"
# What a kernel sends by itself on any link (IGMP, MLD, router solicitation) is not in the count of denied packets.
_KERNEL_NOISE = {"ip": "224.0.0.0/24", "ip6": "ff02::/16"}
# No IP options and no extension headers on what is accepted: a source route would send it on to somewhere else.
_PLAIN = {
    ("ip", "tcp"): "ip hdrlength 5",
    ("ip", "udp"): "ip hdrlength 5",
    ("ip6", "tcp"): "ip6 nexthdr tcp",
    ("ip6", "udp"): "ip6 nexthdr udp",
}
_NUMBER = {"ip": 4, "ip6": 6}


def render(egress: Egress) -> str:
    """Return the text that makes the run's table in one transaction (`nft -f`).

    On the bench it replaces the table, whether it exists or not. In a card's own namespace, which is new, it creates it
    and fails if it is there: replacing costs the hook a grace period of the kernel's, 10 ms, for nothing.
    """
    family = "netdev" if egress.selector.kind == NETDEV else "inet"
    table = f"table {family} {egress.table}"
    begin = [f"create {table}"] if egress.selector.kind == NETNS else [table, f"delete {table}"]
    lines = [*begin, f"{table} {{"]
    for version in _NUMBER:
        lines += _sets(egress, version)
    lines += _chain(egress, DENIED, [], _denied())
    for chain, hook in _hooks(egress):
        head = [f"\t\ttype filter hook {hook} priority filter; policy accept;"]
        lines += _chain(egress, chain, head, _rules(egress, chain))
    return "\n".join([*lines, "}", ""])


def _chain(egress: Egress, name: str, head: "list[str]", rules: "list[str]") -> "list[str]":
    selector = _selector(egress)
    return [f"\tchain {name} {{", *head, *(f"\t\t{selector} {rule}" for rule in rules), "\t}"]


def _hooks(egress: Egress) -> "list[tuple[str, str]]":
    if egress.selector.kind == NETDEV:
        return [("ingress", f'ingress device "{egress.selector.value}"')]
    if egress.selector.kind == VETH:
        return [("forward", "forward"), ("input", "input")]
    return [("output", "output")]


def _selector(egress: Egress) -> str:
    if egress.selector.kind == NETNS:
        return 'oifname != "lo"'
    if egress.selector.kind == UID:
        return f"meta skuid {egress.selector.value}"
    return f'iifname "{egress.selector.value}"'


def _sets(egress: Egress, version: str) -> "list[str]":
    number = _NUMBER[version]
    allowed = [
        f'{address} . {PORT} comment "{comment}"' if comment else f"{address} . {PORT}"
        for address, comment in _pins(egress, number)
    ]
    never = [f'{network} comment "{reason}"' for network, reason in never_ranges(egress, number)]
    lines = _set(f"allow{number}", f"typeof {version} daddr . tcp dport", ["counter"], allowed) if allowed else []
    lines += _set(f"never{number}", f"typeof {version} daddr", ["flags interval"], never)
    size = [f"size {egress.ledger_size}", "flags dynamic", "counter"]
    return lines + _set(f"denied{number}", f"typeof {version} daddr . meta l4proto . th dport", size, [])


def _set(name: str, key: str, options: "list[str]", elements: "list[str]") -> "list[str]":
    lines = [f"\tset {name} {{", f"\t\t{key}", *(f"\t\t{option}" for option in options)]
    if elements:
        lines.append("\t\telements = { " + ",\n\t\t\t     ".join(elements) + " }")
    return [*lines, "\t}"]


def _pins(egress: Egress, number: int) -> "list[tuple[str, str]]":
    """Each pinned address of one family in numeric order, with the name that its comment can hold."""
    found = [(ipaddress.ip_address(text), name) for text, name in egress.addresses.items()]
    mine = sorted((address, name) for address, name in found if address.version == number)
    return [(str(address), name if len(name) <= _COMMENT_LIMIT else "") for address, name in mine]


def never_ranges(egress: Egress, number: int) -> "list[tuple[str, str]]":
    """Return what is denied before anything is allowed, as disjoint ranges in order, each with its reasons.

    nft refuses overlapping intervals, so a range inside another is folded into it and lends it its reason.
    """
    metadata, loopback = (METADATA4, LOOPBACK4) if number == 4 else (METADATA6, LOOPBACK6)
    wanted = [(ipaddress.ip_network(text), "metadata") for text in metadata]
    wanted.append((ipaddress.ip_network(loopback), "loopback"))
    wanted += [(ipaddress.ip_network(cidr), reason) for cidr, reason in egress.denied.items()]
    mine = sorted(
        (net for net in wanted if net[0].version == number), key=lambda net: (int(net[0][0]), net[0].prefixlen)
    )
    folded: "list[tuple[str, int, list[str]]]" = []
    for network, reason in mine:
        if folded and int(network[-1]) <= folded[-1][1]:
            folded[-1][2].append(reason)
        else:
            folded.append((_interval(network), int(network[-1]), [reason]))
    return [(text, _join(reasons)) for text, _, reasons in folded]


def _interval(network: "ipaddress.IPv4Network | ipaddress.IPv6Network") -> str:
    return str(network.network_address) if network.prefixlen == network.max_prefixlen else str(network)


def _join(reasons: "list[str]") -> str:
    """Join distinct reasons, metadata and loopback first, within what a comment may hold."""
    ordered = sorted(set(reasons), key=lambda reason: (reason not in ("metadata", "loopback"), reason))
    text = ordered[0]
    for reason in ordered[1:]:
        if len(text) + 1 + len(reason) <= _COMMENT_LIMIT:
            text += "/" + reason
    return text


def _rules(egress: Egress, chain: str) -> "list[str]":
    rules = [f"{version} daddr @never{number} jump {DENIED}" for version, number in _NUMBER.items()]
    rules += [rule for version in _NUMBER for rule in _allow(egress, version, chain)]
    return [*rules, *_dns(egress), *_link(egress, chain), f"jump {DENIED}", "drop"]


def _denied() -> "list[str]":
    ledger = [
        f"meta l4proto {{ tcp, udp }} add @denied{number} {{ {version} daddr . meta l4proto . th dport }}"
        for version, number in _NUMBER.items()
    ]
    other = [
        f'{version} daddr != {noise} meta l4proto != {{ tcp, udp }} counter comment "other"'
        for version, noise in _KERNEL_NOISE.items()
    ]
    return [*ledger, *other, "meta l4proto tcp reject with tcp reset", "reject with icmpx admin-prohibited", "drop"]


def _allow(egress: Egress, version: str, chain: str) -> "list[str]":
    """Accept the pins, but on `input`: there the destination is the bench itself, where a card has only its DNS."""
    number = _NUMBER[version]
    if chain == "input" or not _pins(egress, number):
        return []
    return [f"{_PLAIN[version, 'tcp']} {version} daddr . tcp dport @allow{number} accept"]


def _dns(egress: Egress) -> "list[str]":
    """One rule per name and form, after the pins: an allowed TCP packet never walks through them."""
    if egress.dns is None:
        return []
    version = "ip6" if ":" in egress.dns else "ip"
    server = f"{version} daddr {ipaddress.ip_address(egress.dns)} {_PLAIN[version, 'udp']} udp dport 53"
    return [
        f"{server} {match} accept" + (f' comment "{name}"' if len(name) <= _COMMENT_LIMIT else "")
        for name in egress.names
        for match in dnsname.matches(name)
    ]


def _link(egress: Egress, chain: str) -> "list[str]":
    """Accept what makes the link itself work, where the link's packets pass: ARP on netdev, neighbour discovery.

    On the bench's output hook the kernel's own packets carry no uid, and neighbour discovery is never forwarded.
    """
    rules = [_ARP] if chain == "ingress" else []
    if egress.v6 and egress.selector.kind != UID and chain != "forward":
        rules.append(
            f"ip6 hoplimit 255 icmpv6 type {_ND_TYPES} ip6 daddr {{ {', '.join(_nd_targets(egress))} }} accept"
        )
    return rules


def _nd_targets(egress: Egress) -> "tuple[str, ...]":
    """Return link-local and multicast, and the card's DNS, whose solicitations an on-link server sends from itself.

    In numeric order, as nft lists them.
    """
    dns = egress.dns or ""
    if ":" not in dns or any(ipaddress.ip_address(dns) in ipaddress.ip_network(net) for net in _ND_TARGETS):
        return _ND_TARGETS
    wanted = sorted(map(ipaddress.ip_network, (*_ND_TARGETS, dns)), key=lambda network: int(network.network_address))
    return tuple(map(_interval, wanted))
