"""From names to addresses: the resolver that asks real servers, with dnspython's messages over sockets of our own.

Each name is asked once for A and once for AAAA, absolute, in parallel, under one total deadline; a lost datagram is
sent again and the next server tried within that. Truncated answers are asked again over TCP (RFC 7766).

The hook waits for what this finds, so its import is on the hot path: 35 ms, where with `dns.query` (TLS, HTTP, QUIC)
and the look-up of optional packages it would be 65.
"""

import socket
import sys
import threading
import time
import types
from collections import deque
from typing import Any, cast

from launcher.egress.answers import Answer

# dnspython asks importlib.metadata, whose import is 30 ms, which packages could make it more capable. None is wanted:
# names come here normalised, and only plain DNS is spoken. So it is told so before it can ask.
_UNASKED = "importlib.metadata"
if _UNASKED not in sys.modules:
    sys.modules[_UNASKED] = types.ModuleType(_UNASKED)
    import dns._features

    del sys.modules[_UNASKED]
else:
    import dns._features
for _feature in ("dnssec", "doh", "doq", "idna", "trio", "wmi"):
    dns._features.force(_feature, False)  # noqa: SLF001 - "a workaround where importlib.metadata is ineffective"

import dns.exception  # noqa: E402 - after the above
import dns.message  # noqa: E402
import dns.name  # noqa: E402
import dns.rcode  # noqa: E402
import dns.rdatatype  # noqa: E402

_PORT = 53
_WORKERS = 64
_FIRST_TRY_SECONDS = 0.8
_REASONS = {
    dns.rcode.NXDOMAIN: "does not exist (NXDOMAIN)",
    dns.rcode.SERVFAIL: "the resolver failed (SERVFAIL)",
    dns.rcode.REFUSED: "the resolver refused (REFUSED)",
}


class DnsResolver:
    """Asks the given servers, in order of need, over UDP and TCP port 53."""

    def __init__(self, servers: tuple[str, ...], *, timeout: float, families: tuple[str, ...]) -> None:
        """Take server addresses, the total deadline in seconds, and the record types to ask for ("A", "AAAA")."""
        self._servers = servers
        self._timeout = timeout
        self._types = tuple(dns.rdatatype.from_text(family) for family in families)

    def resolve(self, names: list[str]) -> dict[str, Answer]:
        """Return an answer for every name; one that is not in by the deadline says so."""
        deadline = time.monotonic() + self._timeout
        questions = deque((name, kind) for name in names for kind in self._types)
        answers: dict[tuple[str, dns.rdatatype.RdataType], Answer] = {}

        def work() -> None:
            while questions and time.monotonic() < deadline:
                try:
                    name, kind = questions.popleft()
                except IndexError:
                    return
                answers[name, kind] = _ask(name, kind, self._servers, deadline)

        workers = [threading.Thread(target=work, daemon=True) for _ in range(min(_WORKERS, len(questions)))]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(max(0.0, deadline - time.monotonic()))
        late = Answer(failure="timed out")
        return {name: _merge([answers.get((name, kind), late) for kind in self._types]) for name in names}


def _merge(answers: list[Answer]) -> Answer:
    """Join a name's A and AAAA answers: addresses of either will do, else the reason of the worse one."""
    addresses = tuple(dict.fromkeys(address for answer in answers for address in answer.addresses))
    chain = max((answer.chain for answer in answers), key=len)
    failures = [answer.failure for answer in answers if answer.failure]
    if addresses:
        return Answer(addresses=addresses, chain=chain, source="dns")
    empty = "has no address"
    return Answer(chain=chain, failure=next((why for why in failures if why != empty), empty))


def _ask(name: str, kind: dns.rdatatype.RdataType, servers: tuple[str, ...], deadline: float) -> Answer:
    """Ask until one server answers or the deadline is near; the last failure is the one told."""
    query = dns.message.make_query(dns.name.from_text(name), kind, use_edns=0, payload=1232)
    failure, patience = "timed out", _FIRST_TRY_SECONDS
    while True:
        for server in servers:
            left = deadline - time.monotonic()
            if left <= 0:
                return Answer(failure=failure)
            answer = _ask_once(query, server, min(left, patience))
            if not answer.failure or answer.failure == _REASONS[dns.rcode.NXDOMAIN]:
                return answer
            failure = answer.failure
        if failure != "timed out":
            return Answer(failure=failure)
        patience *= 2


def _ask_once(query: dns.message.Message, server: str, seconds: float) -> Answer:
    try:
        response = _exchange(query, server, time.monotonic() + seconds)
    except TimeoutError:
        return Answer(failure="timed out")
    except (dns.exception.DNSException, OSError, EOFError, ValueError) as error:
        return Answer(failure=f"could not be asked: {error or type(error).__name__}")
    if response.rcode() != dns.rcode.NOERROR:
        return Answer(failure=_REASONS.get(response.rcode(), f"answered {dns.rcode.to_text(response.rcode())}"))
    return _read(response)


def _exchange(query: dns.message.Message, server: str, deadline: float) -> dns.message.Message:
    """Return the server's response, over TCP when it does not fit a datagram; raises TimeoutError at the deadline."""
    wire = query.to_wire()
    try:
        return _over_udp(query, wire, server, deadline)
    except dns.message.Truncated:
        return _over_tcp(query, wire, server, deadline)


def _connect(server: str, kind: int, deadline: float) -> socket.socket:
    """Return a connected socket: the kernel then passes only what comes from that server and port."""
    family, _, _, _, address = socket.getaddrinfo(server, _PORT, type=kind, flags=socket.AI_NUMERICHOST)[0]
    connection = socket.socket(family, kind)
    try:
        _bound(connection, deadline)
        connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


def _bound(connection: socket.socket, deadline: float) -> None:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    connection.settimeout(left)


def _over_udp(query: dns.message.Message, wire: bytes, server: str, deadline: float) -> dns.message.Message:
    with _connect(server, socket.SOCK_DGRAM, deadline) as connection:
        connection.send(wire)
        while True:
            _bound(connection, deadline)
            response = dns.message.from_wire(connection.recv(65535), raise_on_truncation=True)
            if query.is_response(response):
                return response


def _over_tcp(query: dns.message.Message, wire: bytes, server: str, deadline: float) -> dns.message.Message:
    with _connect(server, socket.SOCK_STREAM, deadline) as connection:
        connection.sendall(len(wire).to_bytes(2, "big") + wire)
        size = int.from_bytes(_exactly(connection, 2, deadline), "big")
        response = dns.message.from_wire(_exactly(connection, size, deadline))
    if not query.is_response(response):
        raise ValueError("the answer is to another question")
    return response


def _exactly(connection: socket.socket, size: int, deadline: float) -> bytes:
    data = b""
    while len(data) < size:
        _bound(connection, deadline)
        more = connection.recv(size - len(data))
        if not more:
            raise EOFError("the server hung up")
        data += more
    return data


def _read(response: dns.message.Message) -> Answer:
    """Follow the CNAMEs of one response; a loop or an endless chain is a failure."""
    try:
        chaining: Any = cast("dns.message.QueryMessage", response).resolve_chaining()
    except dns.message.ChainTooLong:
        return Answer(failure="its CNAMEs form a loop or an endless chain")
    targets = [str(record.target) for rrset in chaining.cnames for record in rrset]
    chain = tuple(target.rstrip(".").lower() for target in targets)
    if chaining.answer is None:
        return Answer(chain=chain, failure="has no address")
    addresses = [str(record.address) for record in chaining.answer]
    return Answer(addresses=tuple(dict.fromkeys(addresses)), chain=chain)
