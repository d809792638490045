"""`card-run -d`: the process that answers for a detached card, parted from the one that a person started.

Forked before podman is spawned and before the run directory is made, so that podman, the locks and the lifeline are
its own. The one that was started waits, passes signals on, and returns once the worker was released. The rule: nothing
of the caller's stays open, no terminal, no descriptor and no directory; the end of the session ends nothing.
"""

import os

from launcher.life import kept
from launcher.run.spawn import FORWARDED
from launcher.suppress import suppress
from oci.refusal import Refusal, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

_RELEASED = b"."
_SIZE = (24, 80)
# An earlier run's log while a start of the same id is not decided; beside it, and kept as long (`launcher.life.kept`).
_EARLIER = ".earlier"


class Parted:
    """The end of the process that answers for the card; whoever started it hears through `fd`."""

    __slots__ = ("_earlier", "_fd", "_log", "_unsure")

    def __init__(self, fd: int, run: str) -> None:
        self._fd = fd
        self._log = kept.log_path(run)
        self._earlier = self._log.removesuffix(kept.LOG) + _EARLIER
        self._unsure = False

    def fresh_log(self) -> None:
        """Make room for the card's log, once the run's id is ours; raises Refused when there is no place for it.

        The log of an earlier run of that id is set aside until the worker is released.
        """
        try:
            kept.prepare()
            with suppress(FileNotFoundError):
                if os.path.lexists(self._earlier):
                    os.unlink(self._log)  # of a start that was killed, and put nothing back
                else:
                    os.rename(self._log, self._earlier)
            self._unsure = True
        except OSError as error:
            text = f"the card's output cannot be kept in {kept.directory()}: {error.strerror}"
            raise Refused([Refusal("no-state-directory", text, "set XDG_STATE_HOME to a directory of yours")]) from None

    def put_back(self) -> None:
        """Remove the log of a card that was not released, and put the earlier one back; otherwise do nothing."""
        if self._unsure:
            with suppress(OSError):
                os.unlink(self._log)
            with suppress(OSError):
                os.rename(self._earlier, self._log)

    def released(self) -> bool:
        """Tell the starter that the worker runs, and let go of stderr; return whether anybody was there to hear.

        The log is this run's from now on, and an earlier one's is gone.
        """
        self._unsure = False
        with suppress(OSError):
            os.unlink(self._earlier)
        try:
            os.write(self._fd, _RELEASED)
        except OSError:
            return False
        finally:
            os.close(self._fd)
            _nothing(2)
        return True


def part(run: str, *, interactive: bool, tty: bool) -> Parted | int:
    """Fork. Return the exit status in the process that was started, and in the new one its end.

    An `interactive` card gets an input that never ends by itself: `card attach` brings one that does. Only while this
    process has one thread, and before anything that the fork would hold twice.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child:
        os.close(write_end)
        return _wait(child, read_end, run)
    _leave()
    if interactive:
        _endless(0, tty=tty)
    return Parted(write_end, run)


def _leave() -> None:
    """Leave the caller's session, directory, input and output; stderr stays until the worker is released.

    What card-run itself has open is not inheritable (PEP 446), so what is was the caller's.
    """
    os.setsid()
    os.chdir("/")
    for fd in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):  # the listing's own
            if fd > 2 and os.get_inheritable(fd):
                os.close(fd)
    _nothing(0)
    _nothing(1)


def _nothing(fd: int) -> None:
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, fd)
    os.close(null)


def _endless(fd: int, *, tty: bool) -> None:
    """Make a descriptor one that is open to read and has nothing: what podman has for the card's input.

    A terminal for a card with one, of the usual size: podman asks its own for that. The other end stays open as long as
    this process lives.
    """
    if tty:
        import fcntl
        import struct
        import termios

        _, end = os.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", *_SIZE, 0, 0))
    else:
        end, _ = os.pipe()
    os.dup2(end, fd)
    os.close(end)


def _wait(child: int, released: int, run: str) -> int:
    """Wait until the card is released or refused; what ends the one ends the other until then.

    A card whose id nobody learns is ended, and told as a refusal.
    """
    for number in FORWARDED:
        if _signal.getsignal(number) != _signal.SIG_IGN:
            _signal.signal(number, lambda heard, _: os.kill(child, heard))
    if os.read(released, 1) == _RELEASED:
        try:
            os.write(1, f"{run}\n".encode())
        except OSError as error:
            os.kill(child, _signal.SIGTERM)
            os.waitpid(child, 0)
            text = f"the run's id cannot be written to standard output, and the card was ended: {error.strerror}"
            raise Refused([Refusal("id-unwritable", text, "`card show` has its account")]) from None
        return 0
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code >= 0:
        return code
    text = f"the process that answers for the card was ended by signal {-code}"
    raise Refused([Refusal("launcher-lost", text)])
