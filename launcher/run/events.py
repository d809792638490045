"""What ties card-run to a program that embeds it: what it hears (`--events FD`) and what it holds (`--lifeline FD`).

Events are one JSON object a line. With them nothing of card-run's own is on stderr, which is then the worker's alone:
`note` (text), `refused` (refusals), `started` (run, level, guarantees, lifeline), `ended` (receipt). One sink for the
process, as stderr is. The lifeline is one end of a pipe or socket pair that the caller holds the other end of: when
that is gone, the kernel kills card-run (fcntl(2) F_SETSIG, O_ASYNC), and what ends a card whose card-run was killed
ends this one.
"""

import fcntl
import os

from launcher.suppress import suppress
from oci.refusal import Refusal, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from typing import NoReturn
else:
    import _signal

SCHEMA = 1


class _Sink:
    fd = -1


def listen(target: str) -> None:
    """Send events to an open descriptor from now on; raises Refused when it is none."""
    _Sink.fd = _own("--events", target)
    send("listening", schema=SCHEMA)


def tie(target: str) -> None:
    """Have this process killed once the other end is gone; raises Refused when it is no such end, or gone already."""
    fd = _own("--lifeline", target)
    try:
        fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(fd, fcntl.F_SETSIG, _signal.SIGKILL)
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)
        # Only now: an end that came before the order was given sends no signal any more.
        os.read(fd, 1)
    except BlockingIOError:
        return
    except OSError as error:
        _refuse("--lifeline", target, error.strerror or "")
    _refuse("--lifeline", target, "its other end is gone, or says something")


def _own(flag: str, target: str) -> int:
    try:
        os.set_inheritable(int(target), False)
    except (OSError, ValueError):
        _refuse(flag, target, "it is not an open descriptor")
    return int(target)


def _refuse(flag: str, target: str, why: str) -> "NoReturn":
    raise Refused([Refusal("bad-descriptor", f"{flag} {target!r}: {why}", "it is for the program that runs the card")])


def sink() -> int:
    """Return the descriptor that events go to, -1 for none."""
    return _Sink.fd


def adopt(fd: int) -> None:
    """Send events to a descriptor that another process of the run listens on (`launcher.pool`), or with -1 to none."""
    _Sink.fd = fd


def heard() -> bool:
    """Return whether somebody listens: what is said as an event is not printed."""
    return _Sink.fd >= 0


def send(event: str, **content: object) -> None:
    """Send one event; harmless when nobody reads any more."""
    import json  # 3 ms that only an embedding caller pays

    data = memoryview(json.dumps({"event": event, **content}).encode() + b"\n")
    with suppress(OSError):
        while data:
            data = data[os.write(_Sink.fd, data) :]
