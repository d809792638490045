"""The renderer: what it writes for any wall is what the auditor promises, and portable to nft 1.0.6."""

import pytest
from hypothesis import given

from hooks import audit, ruleset
from hooks.egress import Egress
from tests.unit.walls import PLACEMENTS, wall, walls


@given(walls)
def test_any_wall_renders_and_audits_clean(any_wall: Egress) -> None:
    """Whatever the names, addresses, ranges and run id, the text keeps every promise, with the value's own numbers."""
    facts = audit.audit(ruleset.render(any_wall), any_wall)
    assert (facts.allow, facts.names, facts.dns) == (len(any_wall.addresses), len(any_wall.pins), any_wall.dns)


@given(walls)
def test_the_text_is_portable(any_wall: Egress) -> None:
    """The text is printable ASCII, has no empty set of elements and no `destroy`, and no comment is too long."""
    text = ruleset.render(any_wall)
    assert text.isascii()
    assert text.replace("\n", "").replace("\t", "").isprintable()
    assert "elements = {  }" not in text
    assert "destroy" not in text
    assert all(len(word) - 2 < 128 for word in text.split() if word.startswith('"'))


@given(walls)
def test_rendering_is_a_function_of_the_value(any_wall: Egress) -> None:
    """The same value gives the same text, whatever order its names came in."""
    back = Egress(
        run=any_wall.run,
        selector=any_wall.selector,
        pins=dict(reversed(any_wall.pins.items())),
        dns=any_wall.dns,
        denied=dict(reversed(any_wall.denied.items())),
        ledger_size=any_wall.ledger_size,
    )
    assert ruleset.render(back) == ruleset.render(any_wall)


@pytest.mark.parametrize("kind", PLACEMENTS)
def test_every_rule_is_scoped_and_the_last_one_is_the_bare_drop(kind: str) -> None:
    """Every rule of every chain begins with the selector, and the last is nothing but the selector and drop."""
    selector = {"netns": 'oifname != "lo"', "uid": "meta skuid 1234"}.get(kind, 'iifname "veth7"')
    chains = ruleset.render(wall(kind)).split("\tchain ")[1:]
    assert len(chains) == (3 if kind == "veth" else 2)
    for chain in chains:
        rules = [line for line in chain.split("\n\t}")[0].splitlines()[1:] if "type filter hook" not in line]
        assert all(rule.startswith(f"\t\t{selector} ") for rule in rules)
        assert rules[-1] == f"\t\t{selector} drop"


def test_a_wall_that_opens_nothing_is_a_default_deny() -> None:
    """With no pin and no DNS nothing is accepted, and no empty set is written."""
    text = ruleset.render(wall(pins={}, dns=None))
    assert " accept\n" not in text
    assert "allow" not in text
    assert audit.audit(text, wall(pins={}, dns=None)).allow == 0


def test_two_names_with_one_address_are_one_element() -> None:
    """An address that two names have is in the set once, under the first name."""
    text = ruleset.render(wall(pins={"b.example": ("203.0.113.1",), "a.example": ("203.0.113.1", "203.0.113.1")}))
    assert text.count("203.0.113.1 . 443") == 1
    assert '203.0.113.1 . 443 comment "a.example"' in text


@pytest.mark.parametrize(
    ("denied", "written"),
    [
        ({"10.0.0.0/8": "a", "10.1.0.0/16": "b"}, '10.0.0.0/8 comment "a/b"'),
        ({"169.254.0.0/16": "bench"}, '169.254.0.0/16 comment "metadata/bench"'),
        ({"169.254.169.254/32": "bench"}, '169.254.169.254 comment "metadata/bench"'),
        ({"0.0.0.0/0": "all"}, '0.0.0.0/0 comment "loopback/metadata/all"'),
        ({"127.0.0.1/32": "me"}, '127.0.0.0/8 comment "loopback/me"'),
        ({"fd00::/8": "ula"}, 'fd00::/8 comment "metadata/ula"'),
    ],
)
def test_a_range_inside_another_is_folded_into_it(denied: "dict[str, str]", written: str) -> None:
    """Overlapping ranges, which nft refuses, become one that keeps the metadata's name."""
    text = ruleset.render(wall(denied=denied))
    assert written in text
    audit.audit(text, wall(denied=denied))


def test_a_thousand_names_and_five_thousand_addresses_cost_no_rule_more_per_address() -> None:
    """The number of rules depends on the names that may be asked, not on the addresses, and none is before the pins."""
    pins = {f"n{i}.example": tuple(f"203.{i >> 8}.{i & 255}.{j}" for j in range(5)) for i in range(1000)}
    text = ruleset.render(wall(pins=pins))
    assert audit.audit(text, wall(pins=pins)).allow == 5000
    rules = text[text.index("chain output") :].splitlines()
    allow = next(number for number, rule in enumerate(rules) if "@allow4 accept" in rule)
    assert allow < 10
    assert sum("udp dport 53" in rule for rule in rules[allow:]) == 2000
