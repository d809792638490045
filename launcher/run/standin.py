"""What podman has for standard input where ours is a terminal that is not the card's own (`-i -t` has that).

For a worker with a terminal (`-t`) podman makes the one raw that it finds there, whether it passes input on or not: no
key would mean anything to anybody. And where it reads a terminal (`-i`) it does not stop for Ctrl-Z, but reads on from
the background, for ever (SIGTTIN). So it gets something else, and both terminal and keys stay card-run's. Imported only
for such a card.
"""

import fcntl
import os
import select
import termios
import threading

from launcher.suppress import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable
else:
    import _signal

_SIZE = 8  # struct winsize, see ioctl_tty(2)
_MOST = 65536


class Window:
    """A terminal of the size of ours, and nothing to read; `theirs` is the descriptor to hand to podman."""

    def __init__(self) -> None:
        """Make it; a change of the size waits from now on to be followed. Only while there is one thread."""
        self._ours, self.theirs = os.openpty()
        _signal.pthread_sigmask(_signal.SIG_BLOCK, (_signal.SIGWINCH,))
        self._fit()

    def spawned(self) -> None:
        """Let go of podman's end."""
        os.close(self.theirs)

    def serve(self, resized: "Callable[[], None]") -> None:
        """Have the size follow ours as long as this process lives; `resized` is called after each change."""
        _start(self._follow, resized)

    def _follow(self, resized: "Callable[[], None]") -> None:
        while True:
            _signal.sigwait((_signal.SIGWINCH,))
            self._fit()
            resized()

    def _fit(self) -> None:
        with suppress(OSError):  # our terminal is gone
            fcntl.ioctl(self._ours, termios.TIOCSWINSZ, fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(_SIZE)))


class Lines:
    """A pipe into which goes what is typed, as long as we are in the foreground; `theirs` is as Window's."""

    def __init__(self) -> None:
        self.theirs, self._ours = os.pipe()

    def spawned(self) -> None:
        """Let go of podman's end."""
        os.close(self.theirs)

    def serve(self, resized: "Callable[[], None]") -> None:
        """Pass on what is typed until the end of input, as long as this process lives; there is no size to follow."""
        del resized
        _start(self._pour)

    def _pour(self) -> None:
        with suppress(OSError):  # our terminal is gone, or podman
            while data := _read():
                while data:
                    data = data[os.write(self._ours, data) :]
        os.close(self._ours)


def _read() -> bytes:
    """Read, though whoever gave us the terminal may not want to wait (open(2) O_NONBLOCK)."""
    while True:
        try:
            return os.read(0, _MOST)
        except BlockingIOError:
            select.select([0], [], [])


def _start(do: "Callable[..., None]", *arguments: object) -> None:
    threading.Thread(target=do, args=arguments, daemon=True).start()
