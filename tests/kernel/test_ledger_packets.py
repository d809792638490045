"""The kernel's record against what was sent: every denial is in it, and a full set loses detail but no denial."""

import socket

import pytest

from hooks import audit, ledger
from tests.kernel.wire import (
    BENCH4,
    DNS4,
    GITHUB4,
    GITHUB6,
    METADATA4,
    METADATA6,
    OTHER4,
    OTHER6,
    Wire,
    egress,
    query,
    walled,
)


def read(made: Wire) -> ledger.Ledger:
    """Return the ledger of the shared wall's table."""
    return ledger.parse(made.card.listing(egress()))


def test_every_denial_is_recorded() -> None:
    """Metadata, bench ranges, unlisted destinations, other ports and refused questions all land in the ledger."""
    with walled(egress()) as made:
        sent = [(METADATA4, 80), (METADATA6, 80), (BENCH4, 443), (OTHER4, 443), (OTHER6, 443), (GITHUB4, 22)]
        for address, port in sent:
            made.connect(address, port)
            made.send(address, port)
        made.ask(query("evil.example"))
        denied = {(entry.address, entry.protocol, entry.port): entry.packets for entry in read(made).denied}
    wanted = {(address, protocol, port): 1 for address, port in sent for protocol in ("tcp", "udp")}
    assert denied == {**wanted, (DNS4, "udp", 53): 1}


def test_use_is_counted_per_pin() -> None:
    """What goes to a pin is counted under it, with its name, and is not in the denials."""
    with walled(egress()) as made:
        made.connect(GITHUB4)
        made.connect(GITHUB6)
        made.ask(query("github.com"))
        found = read(made)
        assert {(entry.address, entry.name) for entry in found.used} == {
            (GITHUB4, "github.com"),
            (GITHUB6, "github.com"),
        }
        assert all(entry.packets >= 3 and entry.bytes > 100 for entry in found.used)
        assert (found.denied, found.other) == ([], 0)


@pytest.mark.parametrize(
    ("family", "protocol", "address"),
    [(socket.AF_INET, socket.IPPROTO_ICMP, OTHER4), (socket.AF_INET6, socket.IPPROTO_ICMPV6, OTHER6)],
)
def test_other_protocols_are_counted(family: int, protocol: int, address: str) -> None:
    """A packet that is neither TCP nor UDP is denied in the call and counted, v4 and v6."""
    with walled(egress()) as made:

        def ping() -> None:
            with socket.socket(family, socket.SOCK_RAW, protocol) as sock:
                sock.sendto(b"\x08\0\0\0\0\0\0\0" if family == socket.AF_INET else b"\x80" + bytes(7), (address, 0))

        with pytest.raises(PermissionError):
            made.card.call(ping)
        assert read(made).other == 1


def test_the_kernels_own_noise_is_not_counted() -> None:
    """Multicast membership and router solicitations, which every kernel sends, are denied and not counted."""
    with walled(egress(pins={}, dns=None)) as made:

        def join() -> None:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                member = socket.inet_aton("239.1.2.3") + socket.inet_aton("10.99.0.2")
                sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)

        made.card.call(join)
        made.card.run("ip", "addr", "add", "2001:db8:9::9/64", "dev", "card0")
        assert ledger.parse(made.card.listing(egress(pins={}, dns=None))).other == 0


def test_a_full_set_loses_detail_and_no_denial() -> None:
    """When the ledger is full further destinations are still refused, and the ledger says that detail is lost."""
    wall = egress(ledger_size=8)
    with walled(wall) as made:
        for port in range(1000, 1008):
            assert made.send(OTHER4, port) == "EPERM"
        assert len(ledger.parse(made.card.listing(wall)).denied) == 8
        for port in range(2000, 2020):
            assert made.send(OTHER4, port) == "EPERM"
            assert made.connect(OTHER4, port) == "ECONNREFUSED"
        assert made.connect(METADATA4, 80) == "ECONNREFUSED"
        assert made.connect(GITHUB4) == "ok"
        found = ledger.parse(made.card.listing(wall))
        assert len(found.denied) == 8
        assert found.full
        audit.audit(made.card.listing(wall), wall)


@pytest.mark.parametrize(("kind", "value"), [("netdev", "bench0"), ("veth", "bench0")])
def test_the_benchs_own_placements_record_the_same(kind: str, value: str) -> None:
    """On the bench side of a veth the same denials and uses are recorded."""
    wall = egress(kind=kind, value=value)
    with walled(wall) as made:
        made.connect(OTHER4)
        made.connect(METADATA4, 80)
        made.connect(GITHUB4)
        found = ledger.parse(made.bench.listing(wall))
        assert {(entry.address, entry.port) for entry in found.denied} == {(OTHER4, 443), (METADATA4, 80)}
        assert [entry.address for entry in found.used] == [GITHUB4]
        audit.audit(made.bench.listing(wall), wall)


def test_the_audit_holds_while_the_ledger_runs() -> None:
    """A table that has counted and recorded still keeps every promise."""
    with walled(egress()) as made:
        for port in (1, 22, 65535):
            made.connect(OTHER4, port)
            made.send(OTHER6, port)
        made.connect(GITHUB4)
        assert audit.audit(made.card.listing(egress()), egress()).allow == 3
