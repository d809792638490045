"""Throwaway network namespaces joined by veth pairs: a card's, a world that answers, a bench between them if asked.

The world owns every address that the tests call pinned or denied, so a refusal can only come from the table: without a
table each of these connections works, which is the control. Needs root, nft and ip, here or in the bench.
"""

import ctypes
import errno
import os
import select
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TypeVar

import dns.flags
import dns.message
import dns.rrset

from hooks import netns, nft, ruleset
from hooks.egress import Egress, Selector

T = TypeVar("T")

GITHUB4, API4, OTHER4 = "203.0.113.10", "203.0.113.11", "198.51.100.7"
GITHUB6, OTHER6 = "2001:db8:1::10", "2001:db8:2::7"
METADATA4, METADATA6 = "169.254.169.254", "fd00:ec2::254"
BENCH4 = "10.77.0.9"
DNS4, DNS6, OTHER_DNS4 = "10.88.0.53", "fd88::53", "10.88.0.54"
WORLD = (GITHUB4, API4, OTHER4, GITHUB6, OTHER6, METADATA4, METADATA6, BENCH4, DNS4, DNS6, OTHER_DNS4)
NAMES = {"github.com": (GITHUB4, GITHUB6), "api.github.com": (API4,)}
GATEWAY4, GATEWAY6 = "10.99.0.1", "fd99::1"
_CLONE_NEWNET = 0x40000000
_UDP_SEGMENT = 103  # linux/udp.h
_unshare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, use_errno=True)(("unshare", ctypes.CDLL(None)))
_setfsuid = ctypes.CDLL(None).setfsuid
_PATIENCE = 3.0


class Namespace:
    """A network namespace that lives as long as this object is open."""

    def __init__(self) -> None:
        found: list[int] = []

        def make() -> None:
            if _unshare(_CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "unshare")
            found.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY))

        _in_thread(make)
        self.fd = found[0]

    def call(self, function: Callable[[], T]) -> T:
        """Return what the function returns when called in the namespace; sockets it makes stay there."""

        def inside() -> T:
            netns.setns(self.fd)
            return function()

        return _in_thread(inside)

    def run(self, *argv: str) -> str:
        """Run a program in the namespace and return its output."""
        return self.call(lambda: subprocess.run(argv, check=True, capture_output=True, text=True).stdout)

    def load(self, text: str) -> None:
        """Load nft text in the namespace."""
        self.call(lambda: nft.load(text))

    def listing(self, egress: Egress) -> str:
        """Return the kernel's own listing of the table."""
        family = "netdev" if egress.selector.kind == "netdev" else "inet"
        return self.call(lambda: nft.list_table(family, egress.table))

    def delete(self, egress: Egress) -> None:
        """Delete the table, whether it is there or not."""
        self.call(lambda: nft.delete_table("netdev" if egress.selector.kind == "netdev" else "inet", egress.table))

    def close(self) -> None:
        """Let the namespace go."""
        os.close(self.fd)


def _in_thread(function: Callable[[], T]) -> T:
    """Call the function in a thread of its own, because a namespace once entered is not left again."""
    results: list[T] = []
    failures: list[BaseException] = []

    def body() -> None:
        try:
            results.append(function())
        except BaseException as failure:  # noqa: BLE001 - handed to the caller whole
            failures.append(failure)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


@dataclass
class Wire:
    """A card's namespace and the world, joined directly (`card0`, `world0`) or by a bench (`bench0` to the card)."""

    card: Namespace
    world: Namespace
    bench: Namespace

    def connect(
        self,
        address: str,
        port: int = 443,
        *,
        option: "Option | None" = None,
        uid: int = 0,
        patience: float = _PATIENCE,
    ) -> str:
        """Return `ok`, `timeout` or the errno's name of a TCP connection from the card."""

        def attempt() -> str:
            with _socket(address, socket.SOCK_STREAM, option, uid) as sock:
                sock.settimeout(patience)
                return _outcome(lambda: sock.connect((address, port)))

        return self.card.call(attempt)

    def send(self, address: str, port: int, data: bytes = b"x", *, uid: int = 0, segment: int = 0) -> str:
        """Return `ok` or the errno's name of one UDP datagram sent from the card, cut in segments of a size."""
        option = (socket.SOL_UDP, _UDP_SEGMENT, struct.pack("i", segment)) if segment else None

        def attempt() -> str:
            with _socket(address, socket.SOCK_DGRAM, option, uid) as sock:
                return _outcome(lambda: sock.sendto(data, (address, port)))

        return self.card.call(attempt)

    def ask(self, data: bytes, server: str = DNS4, *, option: "Option | None" = None, uid: int = 0) -> str:
        """Return `answered`, `timeout` or the errno's name for one DNS message sent from the card to a server."""

        def attempt() -> str:
            with _socket(server, socket.SOCK_DGRAM, option, uid) as sock:
                return _outcome(lambda: _exchange(sock, data, server), "answered")

        return self.card.call(attempt)


Option = tuple[int, int, bytes]
"""Level, name and value of a setsockopt(2)."""


def _socket(address: str, kind: int, option: "Option | None", uid: int) -> socket.socket:
    """Return a socket of this thread, made as a uid (setfsuid(2) is per thread, and nft's skuid reads it)."""
    _setfsuid(uid)
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
    sock.settimeout(_PATIENCE)
    if option:
        sock.setsockopt(*option)
    return sock


def _exchange(sock: socket.socket, data: bytes, server: str) -> None:
    sock.connect((server, 53))
    sock.send(data)
    dns.message.from_wire(sock.recv(4096))


def query(name: str, kind: str = "A", *, edns: bool = False) -> bytes:
    """Return a plain query as a stub resolver sends it."""
    return dns.message.make_query(name, kind, use_edns=edns).to_wire()


def _outcome(act: Callable[[], object], well: str = "ok") -> str:
    try:
        act()
    except TimeoutError:
        return "timeout"
    except OSError as failure:
        return errno.errorcode[failure.errno or 0]
    return well


@contextmanager
def wire(*, routed: bool = False, serving: bool = True) -> Iterator[Wire]:
    """Yield a wire whose world listens on TCP 443, 80 and 22 at every address, and answers DNS on UDP 53."""
    with ExitStack() as stack:
        spaces = [Namespace() for _ in range(3 if routed else 2)]
        for space in spaces:
            stack.callback(space.close)
            space.run("ip", "link", "set", "lo", "up")
        _connect(spaces)
        for port in (443, 80, 22) if serving else ():
            stack.enter_context(_listener(spaces[-1], port))
        for space in spaces[1:] if serving else ():
            stack.enter_context(_dns_server(space))
        yield Wire(spaces[0], spaces[-1], spaces[1])


def _connect(spaces: "list[Namespace]") -> None:
    card, world = spaces[0], spaces[-1]
    if len(spaces) == 2:
        _link(card, world, "card0", "world0", 99)
    else:
        bench = spaces[1]
        _link(card, bench, "card0", "bench0", 99)
        _link(bench, world, "out0", "world0", 98)
        world.run("ip", "route", "add", "default", "via", "10.98.0.2")
        world.run("ip", "-6", "route", "add", "default", "via", "fe80::2", "dev", "world0")
        bench.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
    for address in WORLD:
        size = "128" if ":" in address else "32"
        world.run("ip", "addr", "add", f"{address}/{size}", "dev", "lo", *(["nodad"] if size == "128" else []))


def _link(near: Namespace, far: Namespace, near_device: str, far_device: str, subnet: int) -> None:
    """Join two namespaces, the near one's default route through the far one.

    Fixed link-local addresses and no duplicate detection, so that nothing has to settle.
    """
    near.run("ip", "link", "add", near_device, "type", "veth", "peer", "name", far_device)
    near.run("ip", "link", "set", far_device, "netns", f"/proc/{os.getpid()}/fd/{far.fd}")
    for space, device, last in ((near, near_device, 2), (far, far_device, 1)):
        space.run("ip", "link", "set", device, "addrgenmode", "none")
        space.run("ip", "link", "set", device, "up")
        space.run("ip", "addr", "add", f"10.{subnet}.0.{last}/24", "dev", device)
        space.run("ip", "addr", "add", f"fd{subnet}::{last}/64", "dev", device, "nodad")
        space.run("ip", "addr", "add", f"fe80::{last}/64", "dev", device, "nodad")
    near.run("ip", "route", "add", "default", "via", f"10.{subnet}.0.1")
    near.run("ip", "-6", "route", "add", "default", "via", "fe80::1", "dev", near_device)


@contextmanager
def _listener(world: Namespace, port: int) -> Iterator[None]:
    """Accept connections in the kernel's backlog: a connect succeeds without anyone calling accept."""

    def listen() -> socket.socket:
        sock = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(("::", port))
        sock.listen(1024)
        return sock

    with world.call(listen):
        yield


@contextmanager
def _dns_server(world: Namespace) -> Iterator[None]:
    """Answer every query with an address, at any of the world's addresses."""

    def bind() -> socket.socket:
        sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        sock.bind(("::", 53))
        return sock

    sock = world.call(bind)
    stop, stopper = os.pipe()
    thread = threading.Thread(target=_serve, args=(sock, stop))
    thread.start()
    try:
        yield
    finally:
        os.close(stopper)
        thread.join()
        os.close(stop)
        sock.close()


def _serve(sock: socket.socket, stop: int) -> None:
    """Answer from the address that was asked, until the other end of the pipe `stop` is closed."""
    while stop not in select.select([sock.fileno(), stop], [], [])[0]:
        data, asked, _, sender = sock.recvmsg(4096, 128)
        query = dns.message.from_wire(data)
        response = dns.message.make_response(query)
        response.flags |= dns.flags.RA
        response.answer.append(dns.rrset.from_text(query.question[0].name, 60, "IN", "A", GITHUB4))
        sock.sendmsg([response.to_wire()], asked, 0, sender)


def egress(  # noqa: PLR0913 - the members of an Egress, each with the wire's own value
    *,
    run: str = "t1",
    kind: str = "netns",
    value: str = "",
    pins: "dict[str, tuple[str, ...]] | None" = None,
    dns: "str | None" = DNS4,
    ledger_size: int = 4096,
) -> Egress:
    """Return the wall that the wire's tests share: two names, one denied bench range, DNS at DNS4."""
    return Egress(
        run=run,
        selector=Selector(kind, value),
        pins=NAMES if pins is None else pins,
        dns=dns,
        denied={"10.77.0.0/16": "bench"},
        ledger_size=ledger_size,
    )


@contextmanager
def walled(wall: Egress) -> Iterator[Wire]:
    """Yield a wire with the wall's table where its placement has it: in the card's namespace, or on the bench."""
    on_bench = wall.selector.kind in ("netdev", "veth")
    with wire(routed=on_bench) as made:
        (made.bench if on_bench else made.card).load(ruleset.render(wall))
        yield made
