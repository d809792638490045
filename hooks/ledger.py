"""The kernel's own record of a run, read from a listing of its table: what was denied and what was used.

Pure. Each self-test of stage 2 sends one UDP packet to each probe address; those are ours, not the worker's, and are
taken off. A full set loses detail, never the denial, and `full` says that detail may be lost.
"""

from hooks import listing
from oci.probes import PROBE_ADDRESSES4, PROBE_ADDRESSES6, PROBE_PORT
from oci.refusal import Refusal, Refused

_PROBES = frozenset((*PROBE_ADDRESSES4, *PROBE_ADDRESSES6))
_PROTOCOLS = {"tcp": "tcp", "6": "tcp", "udp": "udp", "17": "udp"}


class Denied:
    """Packets that were denied to one destination: address, protocol (`tcp` or `udp`), port."""

    __slots__ = ("address", "bytes", "packets", "port", "protocol")

    def __init__(self, *, address: str, protocol: str, port: int, packets: int, octets: int) -> None:
        self.address = address
        self.protocol = protocol
        self.port = port
        self.packets = packets
        self.bytes = octets

    def to_json(self) -> "dict[str, object]":
        """Return the entry as a JSON object."""
        return {name: getattr(self, name) for name in self.__slots__}


class Used:
    """What went to one pin: its address and the first name that has it ("" when that was too long to keep)."""

    __slots__ = ("address", "bytes", "name", "packets")

    def __init__(self, *, address: str, name: str, packets: int, octets: int) -> None:
        self.address = address
        self.name = name
        self.packets = packets
        self.bytes = octets

    def to_json(self) -> "dict[str, object]":
        """Return the entry as a JSON object."""
        return {name: getattr(self, name) for name in self.__slots__}


class Ledger:
    """Everything one table recorded. `other` counts denied packets that are neither TCP nor UDP."""

    __slots__ = ("denied", "full", "other", "used")

    def __init__(self, *, denied: "list[Denied]", used: "list[Used]", other: int, full: bool) -> None:
        self.denied = denied
        self.used = used
        self.other = other
        self.full = full

    def to_json(self) -> "dict[str, object]":
        """Return the ledger as a JSON object."""
        return {
            "denied": [entry.to_json() for entry in self.denied],
            "used": [entry.to_json() for entry in self.used],
            "other": self.other,
            "full": self.full,
        }


def parse(text: str, *, self_tests: int = 1) -> Ledger:
    """Return the ledger in a listing, busiest first, less what that many self-tests sent.

    Raises Refused when the listing is not understood.
    """
    table = listing.parse(text)
    sets = [table.sets[name] for name in ("denied4", "denied6") if name in table.sets]
    denied = [entry for found in sets for element in found.elements if (entry := _denied(element, self_tests))]
    pins = [table.sets[name] for name in ("allow4", "allow6") if name in table.sets]
    used = [_used(element) for found in pins for element in found.elements if element.packets]
    return Ledger(
        denied=sorted(denied, key=lambda entry: (-entry.packets, entry.address, entry.protocol, entry.port)),
        used=sorted(used, key=lambda entry: (-entry.packets, entry.address)),
        other=sum(_other(number, words) for chain in table.chains.values() for number, words in chain.rules),
        full=any(_is_full(found) for found in sets),
    )


def _denied(element: listing.Element, self_tests: int) -> "Denied | None":
    address, protocol, port = _key(element)
    packets, octets = element.packets, element.bytes
    if address in _PROBES and protocol == "udp" and port == PROBE_PORT and packets:
        ours = min(packets, self_tests)
        octets -= octets // packets * ours
        packets -= ours
    if packets == 0:
        return None
    return Denied(address=address, protocol=protocol, port=port, packets=packets, octets=octets)


def _key(element: listing.Element) -> "tuple[str, str, int]":
    parts = element.key.split(" . ")
    if len(parts) != 3 or parts[1] not in _PROTOCOLS or not parts[2].isdigit():
        raise Refused([Refusal("ledger-malformed", f"{element.key} is not a destination, protocol and port")])
    return parts[0], _PROTOCOLS[parts[1]], int(parts[2])


def _used(element: listing.Element) -> Used:
    address = element.key.partition(" . ")[0]
    return Used(address=address, name=element.comment, packets=element.packets, octets=element.bytes)


def _other(number: int, words: "list[str]") -> int:
    body, comment = listing.comment_of(number, words)
    return listing.without_counter(number, body)[1] if comment == "other" else 0


def _is_full(found: listing.Set) -> bool:
    sizes = [line.split()[1] for line in found.header if line.startswith("size ")]
    return any(size.isdigit() and len(found.elements) >= int(size) for size in sizes)
