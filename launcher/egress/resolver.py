"""From names to addresses: the resolver that asks real servers, over sockets of our own.

Each name is asked once for A and once for AAAA, absolute, in parallel, under one total deadline; a lost datagram is
sent again and the next server tried within that. Truncated answers are asked again over TCP (RFC 7766).

The hook waits for what this finds, so it is on the hot path: no thread, and `_socket`, without the 7 ms of its enums.
A question in progress is a generator: it yields what it waits for, and is sent whether that came before its time.
"""

import _socket
import os
import select
import time

from launcher.egress import message
from launcher.egress.answers import Answer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import TypeVar

    T = TypeVar("T")
    # A descriptor, what is to happen on it (poll(2)), and until when (time.monotonic).
    Waiting = Generator[tuple[int, int, float], bool, T]

_PORT = 53
_AT_ONCE = 64
_FIRST_TRY_SECONDS = 0.8
_NXDOMAIN = "does not exist (NXDOMAIN)"
_REASONS = {
    message.NXDOMAIN: _NXDOMAIN,
    message.SERVFAIL: "the resolver failed (SERVFAIL)",
    message.REFUSED: "the resolver refused (REFUSED)",
}
_LATE = "timed out"
_NOBODY = "was asked of nobody: there is no resolver"


class DnsResolver:
    """Asks the given servers, in order of need, over UDP and TCP port 53."""

    def __init__(self, servers: tuple[str, ...], *, timeout: float, families: tuple[str, ...]) -> None:
        """Take server addresses, the total deadline in seconds, and the record types to ask for ("A", "AAAA")."""
        self._servers = servers
        self._timeout = timeout
        self._kinds = tuple(message.KINDS[family] for family in families)

    def resolve(self, names: list[str]) -> dict[str, Answer]:
        """Return an answer for every name; one that is not in by the deadline says so."""
        deadline = time.monotonic() + self._timeout
        questions = {(name, kind): _ask(name, kind, self._servers, deadline) for name in names for kind in self._kinds}
        answers = _together(questions, deadline)
        late = Answer(failure=_LATE)
        return {name: _merge([answers.get((name, kind), late) for kind in self._kinds]) for name in names}


def _together(questions: "dict[tuple[str, int], Waiting[Answer]]", deadline: float) -> dict[tuple[str, int], Answer]:
    """Ask all questions side by side, so many at once; return the answers that came by the deadline."""
    answers: dict[tuple[str, int], Answer] = {}
    ahead = list(reversed(questions.items()))
    waiting: dict[int, tuple[tuple[str, int], float]] = {}
    poll = select.poll()

    def step(key: tuple[str, int], *, happened: bool | None) -> None:
        try:
            fd, event, until = next(questions[key]) if happened is None else questions[key].send(happened)
        except StopIteration as done:
            answers[key] = done.value
        else:
            waiting[fd] = key, until
            poll.register(fd, event)

    while (ahead or waiting) and time.monotonic() < deadline:
        while ahead and len(waiting) < _AT_ONCE:
            step(ahead.pop()[0], happened=None)
        soonest = min((until for _, until in waiting.values()), default=0.0)
        happened = {fd for fd, _ in poll.poll(max(0.0, min(soonest, deadline) - time.monotonic()) * 1000)}
        now = time.monotonic()
        for fd, (key, until) in list(waiting.items()):
            if fd in happened or until <= now:
                del waiting[fd]
                poll.unregister(fd)
                step(key, happened=fd in happened)
    for question in questions.values():
        question.close()
    return answers


def _merge(answers: list[Answer]) -> Answer:
    """Join a name's A and AAAA answers: addresses of either will do, else the reason of the worse one."""
    addresses = tuple(dict.fromkeys(address for answer in answers for address in answer.addresses))
    chain = max((answer.chain for answer in answers), key=len)
    failures = [answer.failure for answer in answers if answer.failure]
    if addresses:
        return Answer(addresses=addresses, chain=chain, source="dns")
    empty = "has no address"
    return Answer(chain=chain, failure=next((why for why in failures if why != empty), empty))


def _ask(name: str, kind: int, servers: tuple[str, ...], deadline: float) -> "Waiting[Answer]":
    """Ask until one server answers or the deadline is near; the last failure is the one told."""
    failure, patience = _LATE if servers else _NOBODY, _FIRST_TRY_SECONDS
    while True:
        for server in servers:
            left = deadline - time.monotonic()
            if left <= 0:
                return Answer(failure=failure)
            answer = yield from _ask_once(name, kind, server, time.monotonic() + min(left, patience))
            if answer.failure in {"", _NXDOMAIN}:
                return answer
            failure = answer.failure
        if failure != _LATE:
            return Answer(failure=failure)
        patience *= 2


def _ask_once(name: str, kind: int, server: str, until: float) -> "Waiting[Answer]":
    query = message.query(name, kind, int.from_bytes(os.urandom(2), "big"))
    try:
        response = yield from _over_udp(query, server, until)
        if response.truncated:
            response = yield from _over_tcp(query, server, until)
    except TimeoutError:
        return Answer(failure=_LATE)
    except (OSError, EOFError, ValueError) as error:
        return Answer(failure=f"could not be asked: {error or type(error).__name__}")
    if response.rcode != message.NOERROR:
        return Answer(failure=_REASONS.get(response.rcode, f"answered with error {response.rcode}"))
    return _read(response, name, kind)


def _read(response: message.Response, name: str, kind: int) -> Answer:
    """Follow the CNAMEs of one response; a loop or an endless chain is a failure."""
    try:
        addresses, chain = message.follow(response, name, kind)
    except message.Endless:
        return Answer(failure="its CNAMEs form a loop or an endless chain")
    return Answer(addresses=addresses, chain=chain, failure="" if addresses else "has no address")


def _open(server: str, kind: int) -> "tuple[_socket.socket, tuple[object, ...]]":
    # As bytes: text would go through the codec for international names, whose import is 2 ms.
    family, _, _, _, address = _socket.getaddrinfo(
        server.encode("ascii"), _PORT, type=kind, flags=_socket.AI_NUMERICHOST
    )[0]
    connection = _socket.socket(family, kind | _socket.SOCK_CLOEXEC | _socket.SOCK_NONBLOCK)
    return connection, address


def _until(fd: int, event: int, until: float) -> "Waiting[None]":
    """Wait for an event; raises TimeoutError when it does not come in time."""
    if not (yield fd, event, until):
        raise TimeoutError


def _receive(connection: "_socket.socket", most: int, until: float) -> "Waiting[bytes]":
    while True:
        yield from _until(connection.fileno(), select.POLLIN, until)
        try:
            return connection.recv(most)
        except BlockingIOError:  # what was there had a wrong checksum (select(2), "Bugs")
            continue


def _over_udp(query: bytes, server: str, until: float) -> "Waiting[message.Response]":
    """Return the server's answer. Connected, so that the kernel only passes what comes from that server and port."""
    connection, address = _open(server, _socket.SOCK_DGRAM)
    try:
        connection.connect(address)
        connection.send(query)
        while True:
            response = message.parse((yield from _receive(connection, 65535, until)))
            if response.answers(query):
                return response
    finally:
        connection.close()


def _over_tcp(query: bytes, server: str, until: float) -> "Waiting[message.Response]":
    connection, address = _open(server, _socket.SOCK_STREAM)
    try:
        connection.connect_ex(address)
        yield from _until(connection.fileno(), select.POLLOUT, until)
        number = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_ERROR)
        if number:
            raise OSError(number, os.strerror(number))
        connection.send(len(query).to_bytes(2, "big") + query)  # less than any socket's buffer
        size = int.from_bytes((yield from _exactly(connection, 2, until)), "big")
        response = message.parse((yield from _exactly(connection, size, until)))
    finally:
        connection.close()
    if response.truncated or not response.answers(query):
        raise ValueError("the answer is to another question")
    return response


def _exactly(connection: "_socket.socket", size: int, until: float) -> "Waiting[bytes]":
    data = b""
    while len(data) < size:
        more = yield from _receive(connection, size - len(data), until)
        if not more:
            raise EOFError("the server hung up")
        data += more
    return data
