"""The egress value: one that exists is well formed, and its JSON is read strictly."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hooks import egress
from hooks.egress import Egress, Selector
from oci.refusal import Refused
from tests.unit.walls import names, run_ids, wall, walls

GOOD: "dict[str, Any]" = {
    "run": "r1",
    "selector": Selector("netns"),
    "pins": {"github.com": ("203.0.113.10",)},
    "dns": "10.0.0.1",
    "denied": {"10.77.0.0/16": "bench"},
    "ledger_size": 4096,
}


def reasons(change: "dict[str, Any]") -> "list[str]":
    """Return the reasons for which a value with some members changed is refused."""
    Egress(**GOOD)
    with pytest.raises(Refused) as refused:
        Egress(**{**GOOD, **change})
    return [refusal.reason for refusal in refused.value.refusals]


@given(walls)
def test_json_reads_back(any_wall: Egress) -> None:
    """The plan's egress object gives the same value back."""
    text = json.dumps(any_wall.to_json())
    assert egress.from_json(json.loads(text)).to_json() == any_wall.to_json()


def test_what_follows_from_the_value() -> None:
    """Table name, sorted names, v6, and each address with the first name that has it."""
    value = wall()
    assert value.table == "nova_egress_run_1"
    assert value.names == ("api.github.com", "github.com", "objects.githubusercontent.com")
    assert value.addresses == {
        "203.0.113.11": "api.github.com",
        "203.0.113.10": "github.com",
        "2001:db8:1::10": "github.com",
        "203.0.113.12": "objects.githubusercontent.com",
    }
    assert value.v6
    assert wall(pins={}, dns="fd00::53").v6
    assert not wall(pins={"a.io": ("1.2.3.4",)}).v6
    assert not wall(pins={}, dns=None).v6


@pytest.mark.parametrize("run", ["", "A", "r-1", "r.1", "_r", "r" * 49, "r 1", "r\n", "r;", "é", "r{"])
def test_a_bad_run_id_is_refused(run: str) -> None:
    """A run id becomes an nft identifier: only the letters that are safe there."""
    assert reasons({"run": run}) == ["bad-run-id"]


@given(run_ids)
def test_a_good_run_id_is_one(run: str) -> None:
    """Every id of the grammar is one."""
    assert egress.is_run_id(run)


BAD_NAMES = [
    *("", ".", "com", "localhost", "a..b", ".a.b", "a.b.", "A.b", "a_b.c", "-a.b", "a-.b", "*.a.b", "a.b:443", "a.b/c"),
    *("1.2.3.4", "a.123", "::1", f"{'a' * 64}.b", ".".join(["a" * 63] * 4), "a b.c", "a.b\n", "ä.de", 'a".b', "a,b.c"),
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_bad_name_is_refused(name: str) -> None:
    """Only normalised hostnames become names: the launcher normalises, this only looks."""
    assert reasons({"pins": {name: ("203.0.113.10",)}}) == ["bad-name"]


@given(names)
def test_a_good_name_is_one(name: str) -> None:
    """Every hostname of the grammar is one, up to 253 characters."""
    assert egress.is_name(name) == (len(name) <= 253)


BAD_ADDRESSES = [
    *("", "x", "github.com", "1.2.3", "1.2.3.4.5", "01.2.3.4", "1.2.3.4 ", "0x1.2.3.4", "1.2.3.256", "1.2.3.4/32", "1"),
    *(
        "::1%eth0",
        "fe80::1%1",
        "2001:DB8::1",
        "2001:db8:0:0::1",
        "2001:0db8::1",
        "::ffff:1.2.3.4",
        "::1.2.3.4",
        ":",
        ":::",
    ),
    *("1.2.3.4\0", "::\0", "1.2.3.4\n"),
]


@pytest.mark.parametrize("address", BAD_ADDRESSES)
def test_an_address_that_is_not_canonical_is_refused(address: str) -> None:
    """An address that nft would print in another way, or resolve, is refused wherever it stands."""
    assert reasons({"pins": {"a.io": (address,)}}) == ["bad-address"]
    assert reasons({"dns": address}) == ["bad-address"]


@pytest.mark.parametrize(
    "cidr",
    [
        "",
        "10.0.0.0",
        "10.0.0.1/8",
        "10.0.0.0/33",
        "10.0.0.0/",
        "10.0.0.0/08",
        "10.0.0.0/x",
        "10.0.0.0/-1",
        "::/129",
        "::1/0",
        "10.0.0.0/8/8",
        "x/8",
        "10.0.0.0/" + "9" * 5000,
        "2001:DB8::/32",
        "::ffff:0:0/96",
    ],
)
def test_a_range_that_is_not_canonical_is_refused(cidr: str) -> None:
    """A range is an address whose host bits are zero and a plain prefix length."""
    assert reasons({"denied": {cidr: "bench"}}) == ["bad-range"]


@pytest.mark.parametrize("cidr", ["0.0.0.0/0", "::/0", "10.0.0.0/8", "10.0.0.1/32", "::1/128", "fc00::/7"])
def test_a_range_is_one(cidr: str) -> None:
    """The control: canonical ranges are ranges."""
    assert Egress(**{**GOOD, "denied": {cidr: "bench"}}).denied == {cidr: "bench"}


@pytest.mark.parametrize("reason", ["", "two words", 'a"', "a;", "a{", "a\\", "ä", "a,b", "x" * 101])
def test_a_reason_that_cannot_be_a_comment_is_refused(reason: str) -> None:
    """A reason becomes a comment: one word of a safe alphabet."""
    assert reasons({"denied": {"10.0.0.0/8": reason}}) == ["bad-range"]


@pytest.mark.parametrize("size", [0, -1, 65536])
def test_a_ledger_of_no_size_is_refused(size: int) -> None:
    """The ledger has room for at least one entry and at most 65535."""
    assert reasons({"ledger_size": size}) == ["bad-ledger-size"]


def test_all_that_is_wrong_is_told_at_once() -> None:
    """Independent problems of one value are collected."""
    change = {"run": "", "pins": {"x": ("y",)}, "dns": "z", "denied": {"a": "b c"}, "ledger_size": 0}
    wanted = ["bad-run-id", "bad-name", "bad-address", "bad-address", "bad-range", "bad-range", "bad-ledger-size"]
    assert reasons(change) == wanted


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("", "", "no-selector"),
        ("all", "", "no-selector"),
        ("netns", "x", "bad-selector"),
        ("uid", "", "bad-selector"),
        ("uid", "0", "bad-selector"),
        ("uid", "-1", "bad-selector"),
        ("uid", "01", "bad-selector"),
        ("uid", "4294967295", "bad-selector"),
        ("uid", "9" * 5000, "bad-selector"),
        ("uid", "root", "bad-selector"),
        ("veth", "", "bad-selector"),
        ("veth", "lo", "bad-selector"),
        ("veth", "x" * 16, "bad-selector"),
        ("veth", "a b", "bad-selector"),
        ("veth", "a/b", "bad-selector"),
        ("veth", 'a"', "bad-selector"),
        ("veth", "..", "bad-selector"),
        ("netdev", "lo", "bad-selector"),
        ("netdev", "eth*", "bad-selector"),
    ],
)
def test_a_selector_that_scopes_nothing_is_refused(kind: str, value: str, reason: str) -> None:
    """A table with no selector, or one that would judge root, loopback or every device, does not exist."""
    with pytest.raises(Refused, match=f"reason={reason} "):
        Selector(kind, value)


@pytest.mark.parametrize(
    ("kind", "value"), [("netns", ""), ("uid", "1"), ("uid", "4294967294"), ("veth", "v0.1"), ("netdev", "x" * 15)]
)
def test_a_selector_is_one(kind: str, value: str) -> None:
    """The control: selectors of every kind."""
    assert Selector(kind, value).kind == kind


def member(path: str, value: object) -> object:
    """Return the JSON of a good wall with one member changed."""
    found: Any = wall().to_json()
    *above, last = path.split("/")
    place = found
    for key in above:
        place = place[key]
    place[last] = value
    return found


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "x",
        {},
        member("extra", 1),
        member("run", 1),
        member("selector", "netns"),
        member("selector/extra", ""),
        member("selector/kind", 1),
        member("pins", []),
        member("pins/x", "1.2.3.4"),
        member("pins/x", [1]),
        member("dns", 1),
        member("dns", False),
        member("denied", []),
        member("denied/x", 1),
        member("ledger_size", "1"),
        member("ledger_size", True),
        member("ledger_size", 1.0),
        member("ledger_size", None),
    ],
)
def test_an_object_of_another_shape_is_refused(value: object) -> None:
    """A missing, unknown or mistyped member of the plan's egress object is refused."""
    with pytest.raises(Refused, match="plan-malformed"):
        egress.from_json(value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda one: st.lists(one) | st.dictionaries(st.text(), one),
    )
)
def test_any_json_is_refused(value: object) -> None:
    """Whatever JSON it is, what is not an egress object is refused and nothing else is raised."""
    with pytest.raises(Refused):
        egress.from_json(value)
