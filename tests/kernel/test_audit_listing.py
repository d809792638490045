"""What the kernel holds after loading, listed by this machine's nft: the auditor's second reading.

The same tests run on nft 1.0.6 (Debian 12) and 1.1.3 (the bench), whose listings differ.
"""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings

from hooks import audit, ruleset
from hooks.egress import Egress, Selector
from oci.refusal import Refused
from tests.kernel.wire import Namespace
from tests.unit.walls import PLACEMENTS, wall, walls


@pytest.fixture(scope="module")
def space() -> Iterator[Namespace]:
    """Yield a namespace that has the device which the device placements name."""
    made = Namespace()
    made.run("ip", "link", "add", "veth7", "type", "veth", "peer", "name", "other")
    yield made
    made.close()


def listed(space: Namespace, egress: Egress) -> str:
    """Load the wall, return the kernel's listing of it, and take it away again."""
    space.load(ruleset.render(egress))
    try:
        return space.listing(egress)
    finally:
        space.delete(egress)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(any_wall=walls)
def test_any_wall_loads_and_lists_clean(space: Namespace, any_wall: Egress) -> None:
    """Whatever the names, addresses, ranges and run id: nft loads the text, and its listing keeps every promise."""
    facts = audit.audit(listed(space, any_wall), any_wall)
    assert facts.to_json() == audit.audit(ruleset.render(any_wall), any_wall).to_json()


LONGEST = ".".join(("a" * 63, "b" * 63, "c" * 63, "d" * 57, "org"))
CORNERS = {
    "a run id at the limit": Egress(run="r" * 48, selector=Selector("netns"), pins={"a.example": ("203.0.113.1",)}),
    "253 characters": wall(pins={LONGEST: ("203.0.113.10", "2001:db8::1")}),
    "an IDN name": wall(pins={"xn--mnchen-3ya.example": ("203.0.113.10",)}),
    "two names with one address": wall(pins={"a.example": ("203.0.113.1",), "b.example": ("203.0.113.1",)}),
    "one name with repeated records": wall(pins={"a.example": ("203.0.113.1", "203.0.113.1")}),
    "the whole of v4 and v6 denied": wall(denied={"0.0.0.0/0": "a", "::/0": "b"}),
    "touching ranges": wall(denied={"10.0.0.0/9": "a", "10.128.0.0/9": "b", "255.255.255.255/32": "c"}),
    "the ends of the address spaces": wall(denied={"0.0.0.0/32": "a", "::/128": "b", "ffff::/16": "c"}),
    "v6 only": wall(pins={"a.example": ("2001:db8::1",)}, dns="fd00::53"),
    "DNS between the link's own ranges": wall(dns="fec0::53"),
    "DNS on the link": wall(dns="fe80::53"),
    "nothing": wall(pins={}, dns=None),
    "the ledger at its largest": Egress(run="x", selector=Selector("netns"), pins={}, ledger_size=65535),
}


@pytest.mark.parametrize("corner", CORNERS.values(), ids=CORNERS.keys())
def test_corners_load_and_list_clean(space: Namespace, corner: Egress) -> None:
    """The corners of names, addresses, ranges and sizes load on both nft versions and list clean."""
    audit.audit(listed(space, corner), corner)


@pytest.mark.parametrize("kind", PLACEMENTS)
def test_a_rule_more_in_the_kernel_is_refused(space: Namespace, kind: str) -> None:
    """What someone adds to the table after it was loaded shows in its listing, and is refused."""
    egress = wall(kind)
    family, chain = {"netdev": ("netdev", "ingress"), "veth": ("inet", "forward")}.get(kind, ("inet", "output"))
    space.load(ruleset.render(egress))
    audit.audit(space.listing(egress), egress)
    space.run("nft", "insert", "rule", family, egress.table, chain, "accept")
    listing = space.listing(egress)
    space.delete(egress)
    with pytest.raises(Refused, match="unscoped-rule"):
        audit.audit(listing, egress)


def test_an_element_more_in_the_kernel_is_refused(space: Namespace) -> None:
    """An address that someone adds to the pins' set shows in the listing, and is refused."""
    egress = wall()
    space.load(ruleset.render(egress))
    space.run("nft", "add", "element", "inet", egress.table, "allow4", "{ 8.8.8.8 . 443 }")
    listing = space.listing(egress)
    space.delete(egress)
    with pytest.raises(Refused, match="address-not-pinned"):
        audit.audit(listing, egress)


def test_a_thousand_names_and_five_thousand_addresses(space: Namespace) -> None:
    """The scale that is promised loads, lists and audits."""
    pins = {f"n{i}.example": tuple(f"203.{i >> 8}.{i & 255}.{j}" for j in range(5)) for i in range(1000)}
    egress = wall(pins=pins)
    assert audit.audit(listed(space, egress), egress).allow == 5000
