"""Every promise of every placement, removed or altered in turn: the auditor refuses each by the right reason."""

import re
from collections.abc import Callable

import pytest

from hooks import audit, ruleset
from hooks.egress import Egress
from oci.refusal import Refused
from tests.unit.walls import PLACEMENTS, wall

Mutation = Callable[[str], str]
SELECTORS = {
    "netns": 'oifname != "lo"',
    "netdev": 'iifname "veth7"',
    "uid": "meta skuid 1234",
    "veth": 'iifname "veth7"',
}


def reasons(text: str, egress: Egress) -> "set[str]":
    """Return the reasons for which the auditor refuses the text."""
    with pytest.raises(Refused) as refused:
        audit.audit(text, egress)
    return {refusal.reason for refusal in refused.value.refusals}


def without(pattern: str) -> Mutation:
    """Remove every line that the pattern is found in."""
    return lambda text: "".join(line for line in text.splitlines(keepends=True) if not re.search(pattern, line))


def swap(old: str, new: str, count: int = 0) -> Mutation:
    """Put new text for every match of a pattern, or for the first ones."""
    return lambda text: re.sub(old, new, text, count=count)


def move(pattern: str, before: str) -> Mutation:
    """Move the lines of a pattern in front of the first line of another, in each chain."""

    def mutate(text: str) -> str:
        chains = re.split(r"(?m)(?=^\tchain )", text)
        return "".join(_moved(chain, pattern, before) for chain in chains)

    return mutate


def _moved(chain: str, pattern: str, before: str) -> str:
    lines = chain.splitlines(keepends=True)
    if not any(re.search(before, line) for line in lines):
        return chain
    moved = [line for line in lines if re.search(pattern, line)]
    rest = [line for line in lines if not re.search(pattern, line)]
    at = next(index for index, line in enumerate(rest) if re.search(before, line))
    return "".join((*rest[:at], *moved, *rest[at:]))


def insert(rule: str, before: str = r" drop$") -> Mutation:
    """Add a rule with the chain's selector (`S` in the text) in front of the line that a pattern is found in."""

    def mutate(text: str) -> str:
        selector = next(found for found in SELECTORS.values() if found in text)
        return re.sub(rf"(?m)^.*{before}", lambda line: f"\t\t{rule.replace('S', selector)}\n{line[0]}", text)

    return mutate


PINS = "ip hdrlength 5 ip daddr . tcp dport @allow4 accept"
DNS_RULE = r"udp dport 53 .*comment \"github.com\""
MUTATIONS: "dict[str, tuple[Mutation, str]]" = {
    "no default deny": (without(r"\" drop$|\d drop$"), "no-default-deny"),
    "something after the default deny": (swap(r"(?m)( drop\n)(\t\})", r"\1\t\tdrop\n\2"), "unscoped-rule"),
    "default deny for one protocol": (swap(r"(?m) drop$", " meta l4proto tcp drop"), "no-default-deny"),
    "default deny before the pins": (move(r" drop$", r"@allow4|udp dport 53"), "no-default-deny"),
    "default deny accepts": (swap(r"(?m) drop$", " accept"), "accept-any"),
    "an accept for everything": (insert("S accept"), "accept-any"),
    "an accept for 0.0.0.0/0": (insert("S ip daddr 0.0.0.0/0 tcp dport 443 accept"), "address-not-pinned"),
    "an accept for a range": (insert("S ip daddr 203.0.113.0/24 tcp dport 443 accept"), "address-not-pinned"),
    "an accept for an address no name has": (insert("S ip daddr 8.8.8.8 tcp dport 443 accept"), "address-not-pinned"),
    "an accept for another port": (insert("S ip daddr 203.0.113.10 tcp dport 80 accept"), "port-not-443"),
    "an accept for no port": (insert("S ip daddr 203.0.113.10 accept"), "port-not-443"),
    "an accept by the pin's set, any port": (insert("S ip daddr @allow4 accept"), "port-not-443"),
    "an accept for replies": (insert("S ct state established,related accept"), "accept-any"),
    "an accept for a protocol": (insert("S meta l4proto icmp accept"), "accept-any"),
    "a jump": (insert("S jump other"), "unknown-statement"),
    "a goto": (insert("S goto other"), "unknown-statement"),
    "a return": (insert("S return"), "unknown-statement"),
    "a queue": (insert("S queue num 0"), "unknown-statement"),
    "a packet mark": (insert("S meta mark set 0x1"), "unknown-statement"),
    "a log": (insert('S log prefix "x"'), "unknown-statement"),
    "a rewrite of the destination": (insert("S dnat to 203.0.113.10"), "unknown-statement"),
    "an unknown statement": (insert("S frobnicate"), "unknown-statement"),
    "the pins' set is added to": (insert("S add @allow4 { ip daddr . tcp dport }"), "unknown-statement"),
    "the ledger's set is accepted": (insert("S ip daddr . meta l4proto . th dport @denied4 accept"), "accept-any"),
    "a negated verdict map": (insert("S ip daddr vmap { 8.8.8.8 : accept }"), "unknown-statement"),
    "one rule unscoped": (swap(r"(?m)^\t\t.*(reject with tcp reset)$", r"\t\tmeta l4proto tcp \1", 1), "unscoped-rule"),
    "the bare drop unscoped": (swap(r"(?m)^\t\t.* drop$", "\t\tdrop"), "unscoped-rule"),
    "one rule scoped to less": (
        swap(r"(?m)^(\t\t)(.*)( drop)$", r'\1oifname "eth0"\3'),
        "unscoped-rule",
    ),
    "one address more": (swap(r"203\.0\.113\.11 \. 443", "8.8.8.8 . 443, 203.0.113.11 . 443", 1), "address-not-pinned"),
    "one address for another": (swap(r"203\.0\.113\.11 \.", "203.0.113.99 ."), "pin-missing"),
    "one v6 address more": (swap(r"(2001:db8:1::10 \. 443)", r"2001:db8::bad . 443, \1"), "address-not-pinned"),
    "a range among the pins": (swap(r"203\.0\.113\.11 \. 443", "203.0.113.0/24 . 443"), "address-not-pinned"),
    "the whole of v4 among the pins": (swap(r"203\.0\.113\.11 \. 443", "0.0.0.0/0 . 443"), "address-not-pinned"),
    "a pin on another port": (swap(r"203\.0\.113\.11 \. 443", "203.0.113.11 . 22"), "port-not-443"),
    "a pin on every port": (swap(r"203\.0\.113\.11 \. 443", "203.0.113.11 . 0-65535"), "port-not-443"),
    "a pin without a port": (swap(r"203\.0\.113\.11 \. 443", "203.0.113.11"), "port-not-443"),
    "a pin under another name": (
        swap(r'113\.11 \. 443 comment "api', '113.11 . 443 comment "www.api'),
        "comment-mismatch",
    ),
    "a hostname among the pins": (swap(r"203\.0\.113\.11 \.", "evil.example ."), "address-not-pinned"),
    "the pins' set has other keys": (swap("typeof ip daddr . tcp dport", "typeof ip daddr . udp dport"), "set-altered"),
    "the pins' set is dynamic": (swap(r"(tcp dport\n)", r"\1\t\tflags dynamic\n", 1), "set-altered"),
    "the pins' set holds intervals": (swap(r"(tcp dport\n)", r"\1\t\tflags interval\n", 1), "set-altered"),
    "the pins' set times out": (swap(r"(tcp dport\n)", r"\1\t\ttimeout 1s\n", 1), "set-altered"),
    "the ledger is of another size": (swap("size 4096", "size 16"), "set-altered"),
    "the ledger's set is missing": (swap(r"(?s)\tset denied4 \{.*?\n\t\}\n", ""), "no-set"),
    "a set more": (swap(r"\tset never4", "\tset more {\n\t\ttypeof ip daddr\n\t}\n\tset never4"), "unknown-set"),
    "no pins accepted": (without("@allow4 accept"), "pins-not-allowed"),
    "IP options accepted with the pins": (swap("ip hdrlength 5 ip daddr \\.", "ip daddr ."), "source-route"),
    "extension headers accepted": (swap("ip6 nexthdr tcp ", ""), "source-route"),
    "IP options accepted with DNS": (swap("ip hdrlength 5 udp", "udp"), "source-route"),
    "metadata not denied": (
        swap(r'169\.254\.169\.254 comment "metadata"', '169.254.1.9 comment "metadata"'),
        "metadata-not-denied",
    ),
    "v6 metadata not denied": (
        swap(r'fd00:ec2::254 comment "metadata"', '::2 comment "metadata"'),
        "metadata-not-denied",
    ),
    "loopback not denied": (swap(r"127\.0\.0\.0/8", "127.0.0.0/9"), "loopback-not-denied"),
    "a bench range not denied": (swap(r"10\.77\.0\.0/16", "10.77.0.0/17"), "range-not-denied"),
    "metadata not denied by name": (swap('comment "metadata"', 'comment "elsewhere"'), "comment-mismatch"),
    "metadata denied without a name": (swap(' comment "metadata"', ""), "comment-mismatch"),
    "a range more denied": (swap(r"10\.77\.0\.0/16", "10.76.0.0/15"), "unknown-deny"),
    "v4 denies are missing": (without(r"@never4 jump"), "metadata-not-denied"),
    "v6 denies are missing": (without(r"@never6 jump"), "metadata-not-denied"),
    "denies jump elsewhere": (swap("@never4 jump denied", "@never4 jump other"), "metadata-not-denied"),
    "denies go and do not come back": (swap("@never4 jump", "@never4 goto"), "metadata-not-denied"),
    "denies accept": (swap("@never4 jump denied", "@never4 accept"), "metadata-not-denied"),
    "denies return": (swap("@never4 jump denied", "@never4 return"), "unknown-statement"),
    "the rest is not told": (without(r"(lo\"|veth7\"|1234) jump denied"), "no-fast-reject"),
    "the chain of denials is missing": (swap(r"(?s)\tchain denied \{.*?\n\t\}\n", ""), "no-chain"),
    "the chain of denials is empty": (swap(r"(?s)(\tchain denied \{\n).*?(\t\}\n)", r"\1\2"), "no-default-deny"),
    "the chain of denials is hooked": (
        swap(r"(\tchain denied \{\n)", r"\1\t\ttype filter hook output priority filter; policy accept;\n"),
        "unknown-chain",
    ),
    "the chain of denials accepts the pins": (
        swap(r"(\tchain denied \{\n\t\t)(.*)( meta l4proto \{)", rf"\1\2 {PINS}\n\t\t\2\3", 1),
        "unexpected-rule",
    ),
    "the chain of denials jumps to itself": (
        swap(r"(\tchain denied \{\n\t\t)(.*)( meta l4proto \{)", r"\1\2 jump denied\n\t\t\2\3", 1),
        "unexpected-rule",
    ),
    "nothing is recorded": (without(r"(lo|veth7)\" meta l4proto \{|1234 meta l4proto \{"), "no-ledger"),
    "v6 is recorded as v4": (swap(r"add @denied6 \{ ip6 daddr", "add @denied4 { ip daddr"), "no-ledger"),
    "others are not counted": (without(r'comment "other"'), "no-ledger"),
    "others are counted under no name": (swap(r' comment "other"', ""), "unknown-statement"),
    "no reset": (without(r"(lo\"|veth7\"|1234) meta l4proto tcp reject"), "no-fast-reject"),
    "no reject": (without(r"(lo\"|veth7\"|1234) reject"), "no-fast-reject"),
    "reject before reset": (
        move(r"(lo\"|veth7\"|1234) reject", r"(lo\"|veth7\"|1234) meta l4proto tcp reject"),
        "rule-order",
    ),
    "recorded and dropped in one rule": (
        swap(r"(add @denied4 \{ ip daddr \. meta l4proto \. th dport \})", r"\1 drop"),
        "unknown-statement",
    ),
    "accept before deny": (move(r"@allow4 accept|udp dport 53", r"@never4"), "accept-before-deny"),
    "DNS accepted before the denies": (move(DNS_RULE, r"@never6 jump"), "accept-before-deny"),
    "rejected before it is recorded": (move(r"lo\" reject|veth7\" reject|1234 reject", r"add @denied4"), "rule-order"),
    "the pins after the denial of the rest": (
        move(r"(lo\"|veth7\"|1234) jump denied", r"@allow4|udp dport 53"),
        "rule-order",
    ),
    "a rule twice": (swap(r"(?m)^(.*@never4 jump.*)$", r"\1\n\1"), "repeated-rule"),
    "a policy of drop": (swap("policy accept", "policy drop"), "wrong-policy"),
    "another priority": (swap("priority filter", "priority filter + 10"), "wrong-priority"),
    "a numeric priority": (swap("priority filter", "priority -300"), "wrong-priority"),
    "another chain type": (swap("type filter hook", "type route hook"), "wrong-hook"),
    "another hook": (swap(r"hook (output|forward|ingress)", "hook prerouting"), "wrong-hook"),
    "no hook": (without(r"type filter hook"), "no-hook"),
    "a chain is missing": (swap(r"(?s)\tchain (output|forward|ingress) \{.*?\n\t\}\n", ""), "no-chain"),
    "a chain under another name": (swap(r"chain (output|forward|ingress)", "chain other"), "unknown-chain"),
    "a chain more": (
        swap(r"\}\n$", "\tchain late {\n\t\ttype filter hook output priority 300; policy accept;\n\t}\n}\n"),
        "unknown-chain",
    ),
    "a regular chain more": (swap(r"\}\n$", "\tchain late {\n\t\taccept\n\t}\n}\n"), "unknown-chain"),
    "DNS to another resolver": (swap(r"ip daddr 10\.88\.0\.53", "ip daddr 8.8.8.8"), "dns-wrong-server"),
    "DNS to any resolver": (swap(r"ip daddr 10\.88\.0\.53 ", ""), "dns-wrong-server"),
    "DNS to a range": (swap(r"ip daddr 10\.88\.0\.53", "ip daddr 10.88.0.0/16"), "dns-wrong-server"),
    "DNS on another port": (swap("udp dport 53", "udp dport 5353"), "dns-wrong-port"),
    "DNS on every port": (swap("udp dport 53 ", ""), "dns-wrong-port"),
    "UDP 443 to the DNS server": (
        insert("S ip daddr 10.88.0.53 ip hdrlength 5 udp dport 443 accept"),
        "dns-wrong-port",
    ),
    "TCP to the DNS server": (insert("S ip daddr 10.88.0.53 tcp dport 53 accept"), "address-not-pinned"),
    "any question": (insert("S ip daddr 10.88.0.53 ip hdrlength 5 udp dport 53 accept"), "dns-question"),
    "the question not asked for": (without(r"comment \"api.github.com\""), "dns-question-missing"),
    "the EDNS form missing": (without(r"0x1300001000000000001.*\"github.com\""), "dns-question-missing"),
    "a question twice": (swap(rf"(?m)^(.*{DNS_RULE})$", r"\1\n\1"), "repeated-rule"),
    "a question under another name": (
        swap('accept comment "github.com"', 'accept comment "x.com"'),
        "comment-mismatch",
    ),
    "another name asked": (swap("0x667697468756203636f6d00", "0x667697468756303636f6d00"), "dns-name"),
    "the question one byte shorter": (
        swap(
            r"@th,160,96 \| 0x2020202020200020202000 == 0x667697468756203636f6d00",
            "@th,160,88 | 0x20202020202000202020 == 0x667697468756203636f6d",
        ),
        "dns-question",
    ),
    "the question one byte later": (swap("@th,160,96", "@th,168,96"), "dns-question"),
    "one byte of the name free": (
        swap(
            r"0x2020202020200020202000 == 0x667697468756203636f6d00",
            "0xff20202020200020202000 == 0xff7697468756203636f6d00",
        ),
        "dns-question",
    ),
    "the length byte folded": (
        swap(
            r"0x2020202020200020202000 == 0x667697468756203636f6d00",
            "0x202020202020200020202000 == 0x2667697468756203636f6d00",
        ),
        "dns-question",
    ),
    "a digit's case folded": (swap(r"0x36170690667", "0x36130690667"), "dns-question"),
    "the type free": (swap(r"@th,256,32 \{ 0x10001, 0x1c0001 \} ", ""), "dns-question"),
    "TXT as well": (swap(r"\{ 0x10001, 0x1c0001 \}", "{ 0x10001, 0x100001, 0x1c0001 }"), "dns-question"),
    "TXT for AAAA": (swap("0x1c0001", "0x100001"), "dns-question"),
    "class CH": (swap("0x1c0001", "0x1c0003"), "dns-question"),
    "the length free": (swap(r"udp length \d+ ", ""), "dns-question"),
    "the length one more": (swap("udp length 36", "udp length 37"), "dns-question"),
    "the length at least": (swap("udp length 36", "udp length >= 36"), "dns-question"),
    "the header free": (swap(r"@th,80,80 \| \w+ == 0x1300001000000000000 ", ""), "dns-question"),
    "RD free": (
        swap("0x300000000000000000 == 0x1300001000000000000", "0x1300000000000000000 == 0x1300001000000000000"),
        "dns-question",
    ),
    "opcode 2": (swap("0x1300001000000000000", "0x11300001000000000000"), "dns-question"),
    "two questions": (swap("0x1300001000000000000", "0x1300002000000000000"), "dns-question"),
    "an answer section": (swap("0x1300001000000000000", "0x1300001000100000000"), "dns-question"),
    "EDNS options": (swap("== 0x29ffff000080000000", "== 0x29ffff00008000000c"), "dns-question"),
    "EDNS options' length free": (
        swap(r"0xffff000080000000 == 0x29ffff000080000000", "0xffff00008000ffff == 0x29ffff00008000ffff"),
        "dns-question",
    ),
    "not the EDNS record": (swap("== 0x29ffff000080000000", "== 0x10ffff000080000000"), "dns-question"),
    "a mask that nft would list wrongly": (
        swap(
            r"@th,160,96 \| 0x2020202020200020202000 == 0x667697468756203636f6d00",
            "@th,160,96 & 0xffdfdfdfdfdfdfffdfdfdfff == 0x647495448554203434f4d00",
        ),
        "dns-question",
    ),
    "a payload match that is not one": (swap("@th,160,96", "@nh,160,96"), "dns-question"),
    "another table": (swap("nova_egress_run_1", "nova_egress_run_2"), "wrong-table"),
    "another prefix": (swap("nova_egress_run_1", "run_1"), "wrong-table"),
    "a second table": (lambda text: text + text, "second-table"),
    "a second table in the listing's form": (lambda text: text + listing_form(text), "second-table"),
    "an include after": (lambda text: text + 'include "/etc/passwd"\n', "unknown-statement"),
    "an include before": (lambda text: 'include "/etc/passwd"\n' + text, "unknown-statement"),
    "an include inside": (swap(r"\tset never4", '\tinclude "/etc/passwd"\n\tset never4'), "unknown-statement"),
    "a define": (lambda text: "define x = 1.2.3.4\n" + text, "unknown-statement"),
    "a flush before": (lambda text: "flush ruleset\n" + text, "unknown-statement"),
    "an add rule after": (lambda text: text + "add rule inet nova_egress_run_1 output accept\n", "unknown-statement"),
    "a joined line after": (lambda text: text[:-1] + "; add rule inet t c accept\n", "unknown-statement"),
    "a joined rule": (swap(r"(?m) drop$", " drop; accept"), "unknown-statement"),
    "a joined header": (swap(r"policy accept;", "policy accept; accept"), "wrong-policy"),
    "a comment in the text": (lambda text: "# harmless\n" + text, "unknown-statement"),
    "a comment that looks like a rule": (swap(r"(?m)^(\t\t.*) drop$", r"\t\t#\1 drop"), "unscoped-rule"),
    "a comment after a rule": (swap(r"(?m) drop$", " drop # the end"), "unknown-statement"),
    "a comment on the drop": (swap(r"(?m) drop$", ' drop comment "x"'), "unknown-statement"),
    "a comment with a rule in it": (
        swap('comment "github.com"', 'comment "x" accept comment "github.com"'),
        "unknown-statement",
    ),
    "a continued line": (swap(r"(?m) drop$", r" drop \\\\"), "unknown-statement"),
    "a carriage return": (swap(r"(?m) drop$", " drop\r"), "unknown-statement"),
    "another alphabet": (swap("github", "g\N{CYRILLIC SMALL LETTER I}thub"), "unknown-statement"),
    "a NUL": (swap(r"(?m) drop$", " drop\0"), "unknown-statement"),
    "truncated in a chain": (lambda text: text[: text.rindex("drop")], "truncated"),
    "truncated before the end": (lambda text: text[: text.rindex("}")], "truncated"),
    "truncated in the last line": (lambda text: text[:-1], "truncated"),
    "empty": (lambda _: "", "truncated"),
}


def listing_form(text: str) -> str:
    """Return the text without the lines by which it makes or replaces the table."""
    return text[re.search(r"(?m)^table \w+ \w+ \{$", text).start() :]  # type: ignore[union-attr]


def changes(kind: str, mutate: Mutation) -> bool:
    """Whether the mutation has anything to change in a placement."""
    text = ruleset.render(wall(kind))
    return mutate(text) != text


@pytest.mark.parametrize("kind", PLACEMENTS)
@pytest.mark.parametrize("form", ["text", "listing"])
def test_the_good_plan_is_clean(kind: str, form: str) -> None:
    """The control: the text of every placement passes, with its first lines and without."""
    text = ruleset.render(wall(kind))
    facts = audit.audit(text if form == "text" else listing_form(text), wall(kind))
    assert (facts.table, facts.allow, facts.deny, facts.names) == ("nova_egress_run_1", 4, 8, 3)


@pytest.mark.parametrize("kind", PLACEMENTS)
@pytest.mark.parametrize(("mutate", "reason"), MUTATIONS.values(), ids=MUTATIONS.keys())
def test_every_broken_promise_is_refused(kind: str, mutate: Mutation, reason: str) -> None:
    """A plan that is good but for one promise is refused, by that promise's reason."""
    good = wall(kind)
    text = ruleset.render(good)
    assert mutate(text) != text
    assert reason in reasons(mutate(text), good)


def _rules(kind: str) -> "list[int]":
    return [number for number, line in enumerate(ruleset.render(wall(kind)).splitlines()) if SELECTORS[kind] in line]


@pytest.mark.parametrize(("kind", "number"), [(kind, number) for kind in PLACEMENTS for number in _rules(kind)])
def test_every_single_rule_is_needed(kind: str, number: int) -> None:
    """Each rule, removed alone, doubled alone, or unscoped alone, is missed."""
    lines = ruleset.render(wall(kind)).splitlines(keepends=True)
    removed = "".join((*lines[:number], *lines[number + 1 :]))
    assert reasons(removed, wall(kind))
    doubled = "".join((*lines[:number], lines[number], *lines[number:]))
    assert "repeated-rule" in reasons(doubled, wall(kind))
    unscoped = "".join((*lines[:number], lines[number].replace(SELECTORS[kind] + " ", ""), *lines[number + 1 :]))
    assert "unscoped-rule" in reasons(unscoped, wall(kind))


@pytest.mark.parametrize("kind", PLACEMENTS)
def test_every_single_line_is_needed(kind: str) -> None:
    """No line of the text can be left out, but for those that only begin a replacement."""
    lines = ruleset.render(wall(kind)).splitlines(keepends=True)
    for number in range(len(lines)):
        if not lines[number].startswith(("create", "table", "delete")):
            assert reasons("".join((*lines[:number], *lines[number + 1 :])), wall(kind))


@pytest.mark.parametrize("kind", PLACEMENTS)
@pytest.mark.parametrize("other", PLACEMENTS)
def test_another_placements_table_is_refused(kind: str, other: str) -> None:
    """A table of one placement is not one of another."""
    if kind == other:
        audit.audit(ruleset.render(wall(kind)), wall(kind))
    else:
        assert reasons(ruleset.render(wall(other)), wall(kind))


ND = r"ip6 hoplimit 255 icmpv6 type \{ .* \} ip6 daddr \{ .* \} accept"
ND_MUTATIONS: "dict[str, tuple[Mutation, str]]" = {
    "no neighbour discovery": (without("icmpv6"), "no-neighbour-discovery"),
    "any hop limit": (swap("ip6 hoplimit 255 ", ""), "neighbour-discovery"),
    "another hop limit": (swap("hoplimit 255", "hoplimit 64"), "neighbour-discovery"),
    "any ICMPv6": (swap(r"icmpv6 type \{.*?\} ", "meta l4proto ipv6-icmp "), "neighbour-discovery"),
    "echo as well": (swap("nd-router-solicit", "echo-request, nd-router-solicit"), "neighbour-discovery"),
    "redirects for advertisements": (swap("nd-neighbor-advert", "nd-redirect"), "neighbour-discovery"),
    "anywhere": (swap(r" ip6 daddr \{ fe80::/10, ff02::/16 \}", ""), "neighbour-discovery"),
    "any multicast": (swap("ff02::/16", "ff00::/8"), "neighbour-discovery"),
    "a global address": (swap(r"\{ fe80::/10", "{ 2001:db8::1, fe80::/10"), "neighbour-discovery"),
}


@pytest.mark.parametrize("kind", ["netns", "netdev", "veth"])
@pytest.mark.parametrize(("mutate", "reason"), ND_MUTATIONS.values(), ids=ND_MUTATIONS.keys())
def test_neighbour_discovery_is_exact(kind: str, mutate: Mutation, reason: str) -> None:
    """The rule that makes v6 work lets nothing else of ICMPv6 out."""
    good = wall(kind)
    text = ruleset.render(good)
    assert mutate(text) != text
    assert reason in reasons(mutate(text), good)


@pytest.mark.parametrize("kind", ["netns", "netdev", "veth"])
def test_neighbour_discovery_only_with_v6(kind: str) -> None:
    """Without any v6 the rule is not there, and a table that has it is refused."""
    only4 = wall(kind, pins={"github.com": ("203.0.113.10",)})
    text = ruleset.render(only4)
    assert "icmpv6" not in text
    rule = re.search(ND, ruleset.render(wall(kind)))
    assert rule
    assert "unexpected-rule" in reasons(
        insert(f"S {rule[0]}", before=r"meta l4proto \{ tcp, udp \} add @denied4")(text), only4
    )


def test_arp_only_on_the_device() -> None:
    """ARP is let through where the link's packets pass, exactly, and nowhere else."""
    text = ruleset.render(wall("netdev"))
    assert "no-arp" in reasons(without(" arp ")(text), wall("netdev"))
    for old, new in (("arp hlen 6 ", ""), ("arp operation .*? accept", "accept"), ("arp htype 1 ", "")):
        assert "unexpected-rule" in reasons(swap(old, new)(text), wall("netdev"))
    rule = "S arp htype 1 arp ptype ip arp hlen 6 arp plen 4 arp operation { request, reply } accept"
    assert "unexpected-rule" in reasons(insert(rule)(ruleset.render(wall())), wall())


@pytest.mark.parametrize("kind", ["netdev"])
def test_the_device_of_the_hook(kind: str) -> None:
    """A chain on another device than the selector's is refused."""
    text = ruleset.render(wall(kind))
    assert "wrong-hook" in reasons(text.replace('device "veth7"', 'device "veth8"'), wall(kind))


def test_pins_are_not_accepted_on_the_bench_itself() -> None:
    """The routed placement's input chain has no rule for the pins, and one that has it is refused."""
    text = ruleset.render(wall("veth"))
    assert text.count("@allow4 accept") == 1
    rule = 'iifname "veth7" ip hdrlength 5 ip daddr . tcp dport @allow4 accept\n\t\t'
    at = text.index("iifname", text.index("chain input"))
    at = text.index('iifname "veth7" ip daddr 10.88.0.53', at)
    assert "unexpected-rule" in reasons(text[:at] + rule + text[at:], wall("veth"))


def test_closed_dns_is_closed() -> None:
    """With DNS closed a rule that lets a name be asked is refused."""
    assert "dns-closed" in reasons(ruleset.render(wall()), wall(dns=None))


def test_every_reason_is_told_at_once() -> None:
    """Independent broken promises are all named."""
    text = ruleset.render(wall()).replace("203.0.113.11 . 443", "8.8.8.8 . 22").replace("policy accept", "policy drop")
    assert {"wrong-policy", "pin-missing", "address-not-pinned", "port-not-443"} <= reasons(
        without(" drop$")(text), wall()
    )
