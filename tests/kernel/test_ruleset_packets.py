"""Packets against the table, in every placement: what is pinned is open, and all else is refused at once.

The control is the same wire with no table, where everything answers.
"""

import errno
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from hooks import ledger, ruleset
from oci.refusal import Refused
from tests.kernel.wire import (
    API4,
    BENCH4,
    DNS4,
    DNS6,
    GATEWAY4,
    GATEWAY6,
    GITHUB4,
    GITHUB6,
    METADATA4,
    METADATA6,
    OTHER4,
    OTHER6,
    OTHER_DNS4,
    WORLD,
    Option,
    Wire,
    egress,
    query,
    walled,
    wire,
)

UID = 1234
# The kernel's constants for the options that carry a packet on to somewhere else (linux/in.h, linux/in6.h).
IP_OPTIONS, IPV6_RTHDR = 4, 57
FAST = 0.01

PINNED = [(GITHUB4, 443), (API4, 443), (GITHUB6, 443)]
DENIED = {
    "unlisted v4": (OTHER4, 443),
    "unlisted v6": (OTHER6, 443),
    "other port v4": (GITHUB4, 80),
    "other port v6": (GITHUB6, 22),
    "metadata v4": (METADATA4, 80),
    "metadata v6": (METADATA6, 80),
    "bench range": (BENCH4, 443),
    "the card's DNS on 443": (DNS4, 443),
    "another DNS on 443": (OTHER_DNS4, 443),
}


@pytest.fixture(scope="module")
def open_wire() -> Iterator[Wire]:
    """Yield a wire with no table: the control."""
    with wire() as made:
        yield made


@pytest.fixture(scope="module")
def netns_wire() -> Iterator[Wire]:
    """Yield a wire whose card is walled in its own namespace."""
    with walled(egress()) as made:
        yield made


@pytest.mark.parametrize(("address", "port"), [*PINNED, *DENIED.values()])
def test_control_reaches_everything(open_wire: Wire, address: str, port: int) -> None:
    """Without a table every address and port of these tests answers."""
    assert open_wire.connect(address, port) == "ok"


@pytest.mark.parametrize("address", WORLD)
def test_control_sends_udp_anywhere(open_wire: Wire, address: str) -> None:
    """Without a table a datagram can be sent to every address of these tests."""
    assert open_wire.send(address, 443) == "ok"


@pytest.mark.parametrize(("address", "port"), PINNED)
def test_pins_are_open(netns_wire: Wire, address: str, port: int) -> None:
    """TCP 443 to every pinned address connects, v4 and v6."""
    assert netns_wire.connect(address, port) == "ok"


@pytest.mark.parametrize(("address", "port"), DENIED.values(), ids=DENIED.keys())
def test_other_tcp_is_refused_at_once(netns_wire: Wire, address: str, port: int) -> None:
    """Every other connection fails with ECONNREFUSED, in milliseconds (the best of five: the machine may be busy)."""
    times = []
    for _ in range(5):
        started = time.monotonic()
        assert netns_wire.connect(address, port) == "ECONNREFUSED"
        times.append(time.monotonic() - started)
    assert min(times) < FAST


@pytest.mark.parametrize("address", WORLD)
def test_udp_is_refused_in_the_call(netns_wire: Wire, address: str) -> None:
    """A datagram that is not DNS fails in sendto with EPERM, to a pin as to any other address."""
    assert netns_wire.send(address, 443) == "EPERM"


def test_loopback_is_the_cards_own() -> None:
    """What stays on lo is not judged, so a development server on localhost works."""
    with walled(egress()) as made:

        def serve_and_connect() -> int:
            with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
                return client.connect_ex(server.getsockname())

        assert made.card.call(serve_and_connect) == 0


def test_loopback_off_lo_is_denied_first() -> None:
    """A packet to 127.0.0.0/8 that leaves by another interface is denied by the rules that stand before the pins."""
    with walled(egress()) as made:
        made.card.run("ip", "route", "del", "local", "127.0.0.0/8", "table", "local")
        made.card.run("ip", "route", "del", "local", "127.0.0.1", "table", "local")
        made.card.run("sysctl", "-qw", "net.ipv4.conf.all.route_localnet=1")
        assert made.send("127.9.9.9", 443) == "EPERM"
        denied = ledger.parse(made.card.listing(egress())).denied
        assert [(entry.address, entry.port) for entry in denied] == [("127.9.9.9", 443)]


def test_denies_come_before_pins() -> None:
    """A pin inside a denied range stays closed: the order of the rules holds where the plan's judgement failed."""
    wall = egress(pins={"github.com": (BENCH4, METADATA4, GITHUB4)})
    with walled(wall) as made:
        assert made.connect(GITHUB4) == "ok"
        assert made.connect(BENCH4) == "ECONNREFUSED"
        assert made.connect(METADATA4) == "ECONNREFUSED"


NOP_OPTIONS: Option = (socket.IPPROTO_IP, IP_OPTIONS, b"\x01" * 4)


@pytest.mark.parametrize("address", [GITHUB4, API4])
def test_ip_options_close_a_pin(netns_wire: Wire, open_wire: Wire, address: str) -> None:
    """A packet with IP options, which may be a source route to elsewhere, is refused even to a pin."""
    assert open_wire.connect(address, option=NOP_OPTIONS) == "ok"
    assert netns_wire.connect(address, option=NOP_OPTIONS) == "ECONNREFUSED"


def test_ip_options_close_dns(netns_wire: Wire, open_wire: Wire) -> None:
    """A question with IP options, which are free payload, is refused."""
    assert open_wire.ask(query("github.com"), option=NOP_OPTIONS) == "answered"
    assert netns_wire.ask(query("github.com"), option=NOP_OPTIONS) == "EPERM"


def test_a_routing_header_closes_a_v6_pin() -> None:
    """A segment route over a pin to elsewhere is denied; without `ip6 nexthdr` the same packet counts as use."""
    segments = b"".join(socket.inet_pton(socket.AF_INET6, text) for text in ("::", GITHUB6))
    option = (socket.IPPROTO_IPV6, IPV6_RTHDR, struct.pack("BBBBBBH", 0, 4, 4, 1, 1, 0, 0) + segments)
    used = []
    for guard in ("ip6 nexthdr tcp ", ""):
        text = ruleset.render(egress()).replace("ip6 nexthdr tcp ", guard)
        with wire() as made:
            made.card.load(text)
            made.card.call(lambda: _begin(OTHER6, option))
            found = ledger.parse(made.card.listing(egress()))
            used.append(([entry.address for entry in found.used], [entry.address for entry in found.denied]))
    assert used == [([], [GITHUB6]), ([GITHUB6], [])]


def _begin(address: str, option: Option) -> None:
    """Send the first packet of a connection and do not wait for its answer."""
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as sock:
        sock.setblocking(False)
        sock.setsockopt(*option)
        assert sock.connect_ex((address, 443)) in (errno.EINPROGRESS, errno.ECONNREFUSED)


def test_v6_works_from_the_first_packet() -> None:
    """With only v6 pins, the first connection on a new link succeeds: neighbour discovery passes the final drop."""
    with walled(egress(pins={"github.com": (GITHUB6,)}, dns=DNS6)) as made:
        assert made.connect(GITHUB6) == "ok"
        assert made.ask(query("github.com"), DNS6) == "answered"
        assert made.connect(OTHER6) == "ECONNREFUSED"


def test_v6_on_the_link_dns_answers() -> None:
    """A v6 DNS server on the card's own link, which solicits from its own address, can be asked."""
    with walled(egress(dns=GATEWAY6)) as made:
        assert made.ask(query("github.com"), GATEWAY6) == "answered"


def test_no_v6_no_neighbour_discovery() -> None:
    """A card with no v6 pin and no v6 DNS sends no neighbour discovery: a v6 connection is not even resolved."""
    wall = egress(pins={"github.com": (GITHUB4,)})
    with walled(wall) as made:
        made.card.call(lambda: _begin(OTHER6, (socket.SOL_SOCKET, socket.SO_KEEPALIVE, struct.pack("i", 1))))
        assert "FAILED" not in made.card.run("ip", "-6", "neigh")
        assert made.connect(GITHUB4) == "ok"


@pytest.mark.parametrize("dns", [DNS4, DNS6, None])
def test_uid_walls_one_uid(dns: "str | None") -> None:
    """The uid placement judges that uid alone: root on the same bench reaches everything."""
    with walled(egress(kind="uid", value=str(UID), dns=dns)) as made:
        for address, port in PINNED:
            assert made.connect(address, port, uid=UID) == "ok"
        for address, port in DENIED.values():
            assert made.connect(address, port, uid=UID) == "ECONNREFUSED"
            assert made.connect(address, port) == "ok"
        assert made.send(GITHUB4, 443, uid=UID) == "EPERM"
        assert made.send(GITHUB4, 443) == "ok"
        for server in (DNS4, DNS6):
            wanted = "answered" if server == dns else "EPERM"
            assert made.ask(query("github.com"), server, uid=UID) == wanted
        assert made.ask(query("evil.example"), DNS4) == "answered"


@pytest.mark.parametrize("dns", [DNS4, DNS6])
def test_netdev_walls_one_veth(dns: str) -> None:
    """The netdev placement judges what comes out of one veth: the bench itself reaches everything."""
    with walled(egress(kind="netdev", value="bench0", dns=dns)) as made:
        _judges_the_veth(made)
        assert made.ask(query("github.com"), dns) == "answered"
        assert made.ask(query("evil.github.com"), dns) in ("EHOSTUNREACH", "EACCES")


@pytest.mark.parametrize(("dns", "refused"), [(GATEWAY4, "EHOSTUNREACH"), (GATEWAY6, "EACCES"), (DNS4, "EHOSTUNREACH")])
def test_veth_walls_one_veth(dns: str, refused: str) -> None:
    """The routed placement judges what one veth sends on and to the bench; DNS may be either side of the bench."""
    with walled(egress(kind="veth", value="bench0", dns=dns)) as made:
        _judges_the_veth(made)
        assert made.connect(GATEWAY4, 22) == "ECONNREFUSED"
        assert made.ask(query("github.com"), dns) == "answered"
        assert made.ask(query("evil.github.com"), dns) == refused


def _judges_the_veth(made: Wire) -> None:
    for address, port in PINNED:
        assert made.connect(address, port) == "ok"
    for address, port in DENIED.values():
        assert made.connect(address, port) == "ECONNREFUSED"
    bench = Wire(made.bench, made.world, made.bench)
    for address, port in (*PINNED, *DENIED.values()):
        assert bench.connect(address, port) == "ok"


@pytest.mark.parametrize("kind", ["netns", "uid", "netdev", "veth"])
def test_reject_is_what_makes_it_fast(kind: str) -> None:
    """Without the reject rules the same connection is still denied, by silence: the bare drop holds by itself."""
    value = {"uid": str(UID), "netns": ""}.get(kind, "bench0")
    wall = egress(kind=kind, value=value)
    text = "\n".join(line for line in ruleset.render(wall).splitlines() if " reject " not in line) + "\n"
    with wire(routed=kind in ("netdev", "veth")) as made:
        (made.bench if kind in ("netdev", "veth") else made.card).load(text)
        uid = UID if kind == "uid" else 0
        assert made.connect(GITHUB4, uid=uid) == "ok"
        assert made.connect(OTHER4, uid=uid, patience=0.2) == "timeout"


def test_replacing_is_one_transaction_and_removing_is_idempotent() -> None:
    """On the bench a second load replaces the run's own table and no other; removal twice is removal once."""
    wall, other = egress(kind="uid", value=str(UID)), egress(run="t2", kind="uid", value="99")
    with wire() as made:
        for text in (ruleset.render(other), ruleset.render(wall), ruleset.render(wall)):
            made.card.load(text)
        assert made.card.run("nft", "list", "tables").split() == [
            "table",
            "inet",
            other.table,
            "table",
            "inet",
            wall.table,
        ]
        for _ in range(2):
            made.card.delete(wall)
        assert made.card.run("nft", "list", "tables").split() == ["table", "inet", other.table]


def test_a_second_table_in_a_cards_namespace_is_refused() -> None:
    """In a card's own namespace the table is created: what stands there already is not added to."""
    wall = egress()
    with wire() as made:
        made.card.load(ruleset.render(wall))
        before = made.card.listing(wall)
        with pytest.raises(Refused, match="nft-load"):
            made.card.load(ruleset.render(wall))
        assert made.card.listing(wall) == before
