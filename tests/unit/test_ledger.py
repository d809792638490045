"""The ledger from a listing: what was denied, what was used, what was ours, and whether detail was lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hooks import ledger, ruleset
from oci.probes import PROBE_ADDRESSES4, PROBE_ADDRESSES6
from oci.refusal import Refused
from tests.unit.test_audit import BY_HAND
from tests.unit.walls import wall

DENIED = "\t\telements = { 198.51.100.7 . tcp . 80 counter packets 1 bytes 60 }\n"


def listing(*elements: str, size: int = 4096) -> str:
    """Return the hand-written listing with these elements in the ledger's v4 set."""
    new = "\t\telements = { " + ",\n\t\t\t     ".join(elements) + " }\n" if elements else ""
    assert DENIED in BY_HAND
    return BY_HAND.replace(DENIED, new).replace("size 4096", f"size {size}")


def test_a_listing_written_by_hand() -> None:
    """Denied, used, other and full are read from the kernel's words."""
    assert ledger.parse(BY_HAND).to_json() == {
        "denied": [{"address": "198.51.100.7", "protocol": "tcp", "port": 80, "packets": 1, "bytes": 60}],
        "used": [{"address": "203.0.113.10", "name": "a.io", "packets": 12, "bytes": 3456}],
        "other": 3,
        "full": False,
    }


@pytest.mark.parametrize("kind", ["netns", "netdev", "uid", "veth"])
def test_a_table_that_saw_nothing(kind: str) -> None:
    """A table as it was rendered has an empty ledger, in every placement."""
    assert ledger.parse(ruleset.render(wall(kind))).to_json() == {"denied": [], "used": [], "other": 0, "full": False}


def test_the_busiest_first() -> None:
    """Entries are ordered by packets, then by address, so that two readings compare."""
    found = ledger.parse(
        listing(
            "10.0.0.2 . udp . 53 counter packets 5 bytes 5",
            "10.0.0.1 . tcp . 80 counter packets 5 bytes 5",
            "10.0.0.3 . tcp . 80 counter packets 9 bytes 9",
        )
    )
    assert [entry.address for entry in found.denied] == ["10.0.0.3", "10.0.0.1", "10.0.0.2"]


@pytest.mark.parametrize(("packets", "told"), [(2, 0), (3, 0), (5, 2)])
def test_each_self_test_is_taken_off(packets: int, told: int) -> None:
    """A card that was entered twice has felt its wall three times; what is more than that is the worker's."""
    element = f"169.254.169.254 . udp . 9 counter packets {packets} bytes {packets * 28}"
    found = ledger.parse(listing(element), self_tests=3)
    assert [(row.packets, row.bytes) for row in found.denied] == ([(told, told * 28)] if told else [])


@pytest.mark.parametrize("address", [*PROBE_ADDRESSES4, *PROBE_ADDRESSES6])
@pytest.mark.parametrize(("packets", "left"), [(1, []), (3, [(2, 72)])])
def test_the_self_tests_own_packet_is_taken_off(address: str, packets: int, left: "list[tuple[int, int]]") -> None:
    """One UDP packet to each probe address is ours; more are the worker's."""
    found = ledger.parse(listing(f"{address} . udp . 9 counter packets {packets} bytes {packets * 36}"))
    assert [(entry.packets, entry.bytes) for entry in found.denied] == left


@pytest.mark.parametrize("key", ["169.254.169.254 . tcp . 9", "169.254.169.254 . udp . 80", "198.18.0.2 . udp . 9"])
def test_no_other_packet_is_taken_off(key: str) -> None:
    """Another protocol, port or address is the worker's from the first packet."""
    assert [entry.packets for entry in ledger.parse(listing(f"{key} counter packets 1 bytes 1")).denied] == [1]


def test_protocols_by_number() -> None:
    """A listing that prints protocols as numbers is read the same."""
    found = ledger.parse(
        listing("10.0.0.1 . 6 . 80 counter packets 1 bytes 1", "10.0.0.1 . 17 . 80 counter packets 1 bytes 1")
    )
    assert {entry.protocol for entry in found.denied} == {"tcp", "udp"}


@pytest.mark.parametrize(("size", "full"), [(1, True), (2, True), (3, False)])
def test_a_full_set_says_so(size: int, full: bool) -> None:  # noqa: FBT001
    """A set with as many elements as it may hold has lost detail, or may have."""
    elements = ("10.0.0.1 . tcp . 80 counter packets 1 bytes 1", "10.0.0.2 . tcp . 80 counter packets 1 bytes 1")
    assert ledger.parse(listing(*elements, size=size)).full is full


@pytest.mark.parametrize("key", ["10.0.0.1", "10.0.0.1 . tcp", "10.0.0.1 . sctp . 80", "10.0.0.1 . tcp . http"])
def test_a_key_that_is_no_destination_is_refused(key: str) -> None:
    """An element that is not a destination, a protocol and a port is refused, not guessed."""
    with pytest.raises(Refused, match="ledger-malformed"):
        ledger.parse(listing(f"{key} counter packets 1 bytes 1"))


def test_what_is_not_a_listing_is_refused() -> None:
    """A listing that is cut short is refused: half a ledger is none."""
    with pytest.raises(Refused, match="truncated"):
        ledger.parse(BY_HAND[:500])


@given(st.dictionaries(st.tuples(st.ip_addresses(v=4), st.integers(0, 65535)), st.integers(1, 1 << 60), max_size=20))
def test_nothing_is_lost_or_made_up(entries: "dict[tuple[object, int], int]") -> None:
    """Whatever the set holds is in the ledger, with its packets and bytes."""
    elements = [f"{at} . tcp . {port} counter packets {n} bytes {n}" for (at, port), n in entries.items()]
    found = {(entry.address, entry.port): entry.packets for entry in ledger.parse(listing(*elements)).denied}
    assert found == {(str(at), port): n for (at, port), n in entries.items()}
