"""podman as a child: its stderr relayed, signals forwarded to it, its status returned.

Until the worker is released, what podman says is held back: on a refusal it becomes the refusal's text. From then on
every byte passes at once and untouched.
"""

import os
import threading

from launcher.run.spawn import FORWARDED, Child

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

# siginfo_t si_code of a signal that the terminal sent to the whole process group: podman has it already.
_SI_KERNEL = 0x80
_GRACE_SECONDS = 10
# From podman's start to the worker's release, with names resolved and, on a bridge, podman asked twice.
START_SECONDS = 120


class Podman:
    """A running podman command."""

    def __init__(self, child: Child, *, container: str) -> None:
        """Take over a podman that was started: relay its stderr and forward signals to it from now on."""
        self.pid = child.pid
        self.program = child.program
        self.signalled = False
        self.expired = False
        self.gave_up = False
        self._container = container
        self._ended = threading.Event()
        self._reaping = threading.Lock()
        self._status: int | None = None
        self._said = bytearray()
        self._relay_now = False
        self._lock = threading.Lock()
        self._relay = threading.Thread(target=self._copy, args=(child.stderr,), daemon=True)
        self._relay.start()
        threading.Thread(target=self._forward, daemon=True).start()
        self._give_up_after(START_SECONDS)

    def release(self) -> None:
        """Let podman's stderr through from now on: it is the worker's."""
        with self._lock:
            self._relay_now = True
            _write_all(2, bytes(self._said))
            self._said.clear()

    def _give_up_after(self, seconds: float) -> None:
        """Kill podman if the worker is not released by then: an odd image can hang podman for ever."""
        timer = threading.Timer(seconds, self._give_up)
        timer.daemon = True
        timer.start()

    def _give_up(self) -> None:
        with self._lock:
            if not self._relay_now and not self._ended.is_set():
                self.gave_up = True
                self._signal(_signal.SIGKILL)

    def wait(self) -> int:
        """Wait for podman's end; return its exit status, 128 + N for a signal. May be asked again."""
        if self._status is None:
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            with self._reaping:
                self._ended.set()
                _, status = os.waitpid(self.pid, 0)
            self._relay.join()
            code = os.waitstatus_to_exitcode(status)
            self._status = code if code >= 0 else 128 - code
        return self._status

    def _signal(self, number: int) -> None:
        """Send podman a signal, unless it was reaped: its number may be another process's by then."""
        with self._reaping:
            if not self._ended.is_set():
                os.kill(self.pid, number)

    def expire(self) -> None:
        """Ask the worker to end (SIGTERM, which podman passes on), and end its container if that does not help."""
        self.expired = True
        self._signal(_signal.SIGTERM)
        if not self._ended.wait(_GRACE_SECONDS):
            self.kill("KILL")

    def kill(self, name: str) -> None:
        """Send the container's first process a signal past podman's own client (podman-kill(1))."""
        words = [self.program, "--remote=false", "kill", f"--signal={name}", self._container]
        pid = os.posix_spawn(self.program, words, os.environ, setsigmask=())
        os.waitpid(pid, 0)

    def said(self) -> str:
        """Return what podman said and was held back."""
        return self._said.decode("utf-8", "replace").strip()

    def _copy(self, fd: int) -> None:
        while data := os.read(fd, 65536):
            with self._lock:
                if self._relay_now:
                    _write_all(2, data)
                else:
                    self._said += data
        os.close(fd)

    def _forward(self) -> None:
        while True:
            info = _signal.sigwaitinfo(FORWARDED)
            self.signalled = True
            if info.si_signo == _signal.SIGHUP:
                # The terminal is gone. podman does not pass signals on to a card that has one of its own.
                self.kill("HUP")
            elif info.si_code != _SI_KERNEL:
                self._signal(info.si_signo)
            self._give_up_after(_GRACE_SECONDS)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except OSError:
        return  # our own stderr is gone: the worker's exit status is still worth returning
