"""card-run's side of a warm card: ask, take, pass on what the worker says, and return its status.

The attendant does what a cold run does here; this process keeps what must end with it. It holds the lifeline, so the
kernel kills the worker should this process die, and it alone reads what the worker writes. The rule: until the card is
taken nothing was done, and a cold start is as good as ever. Imported only where there is a pool, before podman is
spawned: `_socket`, `_signal`, `_thread`, `select`, nothing slower.
"""

import _socket
import _thread
import fcntl
import os
import select

from launcher.launch import Launch
from launcher.pool import key, place, wire
from launcher.run import events, site
from launcher.run.spawn import HEARD
from launcher.runtime import Runtime
from launcher.suppress import suppress
from oci.refusal import EXIT_REFUSED

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

_ASK_SECONDS = 2.0
_OUT, _ERR = 1, 2
_CHUNK = 65536
_GIVEN = 4  # the lifeline, and the worker's output, errors and input


class Cold(Exception):
    """No warm card for this run; the text says why."""


def run(  # noqa: PLR0913 - what a run is made of
    launch: Launch, built: Runtime, program: str, *, quiet: bool, receipt: int | None, started: float
) -> int:
    """Run the card as a warm one and return the worker's status; raises Cold, with nothing done.

    `started` is when card-run began, in the seconds of time.monotonic().
    """
    unfit = key.unfit(launch)
    if unfit:
        raise Cold(f"no warm card can have {unfit}")
    content: dict[str, object] = {
        "order": "take",
        "key": key.of(launch, built, podman=program, hooks_dirs=site.hooks_dirs()),
        "launch": launch,
        "policy": os.path.abspath(launch.policy_path),
        "quiet": quiet,
        "started": started,
        "receipt": receipt is not None,
        "events": events.heard(),
    }
    also = (receipt, events.sink() if events.heard() else None)
    connection = _connect()
    try:
        held = _Held(connection, _ask(connection, content), interactive=launch.interactive)
        return held.carry_through((_ERR, *(fd for fd in also if fd is not None)))
    finally:
        connection.close()


def _ask(connection: "_socket.socket", content: dict[str, object]) -> list[int]:
    """Ask for a card and return what comes with it: its lifeline and the worker's streams."""
    try:
        wire.send(connection, wire.dump(content))
    except (OSError, ValueError) as error:
        raise Cold(f"the pool could not be asked: {error}") from None
    got = wire.receive(connection)
    if got is None:
        raise Cold("the pool did not answer")
    said = wire.look(got[0])
    if "cold" in said or len(got[1]) != _GIVEN:
        raise Cold(str(said.get("cold", "the pool gave no card")))
    return got[1]


def _connect() -> "_socket.socket":
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    connection.settimeout(_ASK_SECONDS)
    try:
        connection.connect(place.socket())
        if wire.peer(connection)[1] != os.getuid():
            raise Cold("the pool is not ours")
    except OSError as error:
        raise Cold(f"the pool does not answer: {error.strerror or error}") from None
    return connection


class _Held:
    """A card that was taken: its lifeline, the worker's streams, and the attendant to talk to."""

    def __init__(self, connection: "_socket.socket", descriptors: list[int], *, interactive: bool) -> None:
        """Take them over."""
        self._lifeline, out, err, self._into = descriptors
        self._pairs = {out: _OUT, err: _ERR}
        self._connection = connection
        self._connection.settimeout(None)
        self._waiter = select.poll()
        self._waiter.register(connection.fileno(), select.POLLIN)
        self._interactive = interactive
        self._released = False
        self._heard: list[int] = []

    def carry_through(self, descriptors: tuple[int, ...]) -> int:
        """Pass on what the worker says until the attendant says what became of it; raises Cold when nothing did.

        `descriptors` are what the attendant may write to. With them the card is accepted: until then a cold start is
        ours to choose, and from then on only the attendant's.
        """
        with suppress(OSError):
            wire.send(self._connection, wire.dump({"accepted": True}), descriptors)
        for number in HEARD:
            if _signal.getsignal(number) != _signal.SIG_IGN:
                _signal.signal(number, self._suspend if number == _signal.SIGTSTP else self._forward)
        while True:
            for fd, _ in self._waiter.poll():
                if fd in self._pairs:
                    self._relay(fd)
                    continue
                status = self._hear()
                if status is not None:
                    return status

    def _relay(self, fd: int) -> None:
        if not _pass_on(fd, self._pairs[fd], _CHUNK):
            self._over(fd)

    def _finish(self) -> None:
        """Pass on what the worker had said by its end: another process may have got its streams from it, and stay."""
        for fd, target in list(self._pairs.items()):
            left = fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)
            while left > 0 and select.select([fd], [], [], 0)[0]:
                passed = _pass_on(fd, target, min(left, _CHUNK))
                left = left - passed if passed else 0
            self._over(fd)

    def _over(self, fd: int) -> None:
        self._waiter.unregister(fd)
        os.close(fd)
        del self._pairs[fd]
        if not self._pairs:
            self._say(drained=True)

    def _hear(self) -> int | None:
        """Hear the attendant; return the status once there is one. Before the worker is released it can be Cold."""
        got = wire.receive(self._connection)
        said = {} if got is None else wire.look(got[0])
        if got is None and not self._released:
            said = {"cold": "the process that had the card ready is gone"}
        if "released" in said:
            self._released = True
            self._open()
            return None
        if "ended" in said:
            self._finish()
            return None
        if "cold" in said:
            self._give_up()
            raise Cold(said["cold"])
        if "status" in said:
            return int(said["status"])
        text = b"NOTE the process that answered for this card is gone: the card was ended\n"
        with suppress(OSError):
            os.write(_ERR, text)
        return EXIT_REFUSED

    def _open(self) -> None:
        """Open the streams: what is said in them before is not the worker's, what we read before a cold start lacks."""
        for fd in self._pairs:
            self._waiter.register(fd, select.POLLIN)
        if self._interactive:
            _thread.start_new_thread(_pour, (0, self._into))
        else:
            os.close(self._into)

    def _give_up(self) -> None:
        """Let go of the card, and be what we were: a signal that came meanwhile is for us, and was for no worker."""
        for fd in (self._lifeline, *self._pairs, self._into):
            os.close(fd)
        before = _signal.pthread_sigmask(_signal.SIG_BLOCK, HEARD)
        for number in HEARD:
            if _signal.getsignal(number) in {self._forward, self._suspend}:
                _signal.signal(number, _signal.SIG_DFL)
        for heard in self._heard:
            os.kill(os.getpid(), heard)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, before)

    def _forward(self, number: int, _: object) -> None:
        self._heard.append(number)
        self._say(signal=number)

    def _suspend(self, _number: int, _frame: object) -> None:
        """Ctrl-Z: have the card frozen and stop, as the shell that we are a job of expects; go on when it says so."""
        self._say(frozen=True)
        os.kill(os.getpid(), _signal.SIGSTOP)
        self._say(frozen=False)

    def _say(self, **content: object) -> None:
        with suppress(OSError):  # it is gone: seen where it is heard
            wire.send(self._connection, wire.dump(content))


def _pass_on(source: int, target: int, most: int) -> int:
    """Pass on what is there and return how much; 0 at its end, or when nobody takes it: the worker then has EPIPE."""
    data = os.read(source, most)
    try:
        _write_all(target, data)
    except OSError:
        return 0
    return len(data)


def _pour(source: int, target: int) -> None:
    """Give the worker our standard input to its end; a thread of its own, because it may wait for ever."""
    with suppress(OSError):
        while data := _read(source):
            _write_all(target, data)
    os.close(target)


def _read(source: int) -> bytes:
    """Read, though whoever gave us the descriptor may not want to wait (open(2) O_NONBLOCK)."""
    while True:
        try:
            return os.read(source, _CHUNK)
        except BlockingIOError:
            select.select([source], [], [])


def _write_all(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(target, view) :]
        except BlockingIOError:
            select.select([], [target], [])
