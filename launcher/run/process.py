"""podman as a child: its stderr relayed, signals forwarded to it, its status returned.

Until the worker is released, what podman says is held back: on a refusal it becomes the refusal's text. From then on
every byte passes at once and untouched.
"""

import os
import select
import threading
import time

from launcher.run.spawn import HEARD, Child

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable
    from signal import struct_siginfo
else:
    import _signal

# siginfo_t si_code of a signal that the terminal sent to the whole process group.
_SI_KERNEL = 0x80
_GRACE_SECONDS = 10
# From podman's start to the worker's release, with names resolved and, on a bridge, podman asked twice.
START_SECONDS = 120


class Podman:
    """A running podman command."""

    def __init__(self, child: Child, *, container: str, tty: bool = False, stop_timeout: float = 10) -> None:
        """Take over a podman that was started: relay its stderr and forward signals to it from now on.

        `stop_timeout` is the time in seconds from the worker's SIGTERM until its container is killed; `signalled` is
        the first signal that came to be passed on, 0 for none.
        """
        self.pid = child.pid
        self.program = child.program
        self._environment = child.environment
        self.signalled = 0
        self.expired = False
        self.gave_up = False
        self._deadline = time.monotonic() + START_SECONDS
        self.killed = 0
        self._apart = child.apart
        self._container = container
        self._tty = tty
        self.stop_timeout = stop_timeout
        self._ended = threading.Event()
        self._reaping = threading.Lock()
        self._status: int | None = None
        self._said = bytearray()
        self._relay_now = False
        self._lock = threading.Lock()
        over, self._over = os.pipe()
        self._relay = threading.Thread(target=self._copy, args=(child.stderr, over), daemon=True)
        self._relay.start()
        threading.Thread(target=self._listen, daemon=True).start()
        _later(START_SECONDS, self._give_up)

    def release(self) -> None:
        """Let podman's stderr through from now on: it is the worker's."""
        with self._lock:
            self._relay_now = True
            _write_all(2, bytes(self._said))
            self._said.clear()

    def be_patient(self, *, patient: bool) -> None:
        """Let the worker's release take as long as it takes, or the usual time, which begins anew."""
        with self._lock:
            self._deadline = float("inf") if patient else time.monotonic() + START_SECONDS
        if not patient:
            _later(START_SECONDS, self._give_up)

    def _give_up(self) -> None:
        """End a podman whose time is over: a timer that was started for an earlier deadline ends nothing."""
        with self._lock:
            if not (self._relay_now or time.monotonic() < self._deadline or self._ended.is_set()):
                self.gave_up = True
                self._signal(_signal.SIGKILL)

    def wait(self) -> int:
        """Wait for podman's end; return its exit status, 128 + N for a signal. May be asked again."""
        if self._status is None:
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            with self._reaping:
                self._ended.set()
                _, status = os.waitpid(self.pid, 0)
            os.close(self._over)
            self._relay.join()
            code = os.waitstatus_to_exitcode(status)
            self.killed = max(-code, 0)
            self._status = code if code >= 0 else 128 - code
        return self._status

    def _signal(self, number: int) -> None:
        """Send podman a signal, unless it was reaped: its number may be another process's by then."""
        with self._reaping:
            if not self._ended.is_set():
                os.kill(self.pid, number)

    def resized(self) -> None:
        """Have podman look at its terminal's size anew."""
        self._signal(_signal.SIGWINCH)

    def expire(self) -> None:
        """End the worker because its time is over."""
        self.expired = True
        self.end()

    def end(self) -> None:
        """Ask the worker to end (SIGTERM), and kill its container if that takes too long."""
        self._pass_on(_signal.SIGTERM)
        self._call("unpause")  # a frozen worker hears nothing, see cgroups(7)
        _later(self.stop_timeout, self._kill_unless_ended)

    def _kill_unless_ended(self) -> None:
        if not self._ended.is_set():
            self.kill("KILL")

    def kill(self, name: str) -> None:
        """Send the container's first process a signal past podman's own client (podman-kill(1))."""
        self._call("kill", f"--signal={name}")

    def _call(self, verb: str, *options: str) -> bool:
        """Have another podman do something with the container; return whether it did. Nothing of it is shown."""
        words = [self.program, "--remote=false", verb, *options, self._container]
        quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
        # Of its own group: what comes by the terminal meanwhile is not for it.
        pid = os.posix_spawn(self.program, words, self._environment, file_actions=quiet, setsigmask=(), setpgroup=0)
        return os.waitpid(pid, 0)[1] == 0

    def freeze(self, *, frozen: bool) -> bool:
        """Stop the container's processes, or let them go on (podman-pause(1)); return whether that was done."""
        return self._call("pause" if frozen else "unpause")

    def said(self) -> str:
        """Return what podman said and was held back."""
        return self._said.decode("utf-8", "replace").strip()

    def _copy(self, fd: int, over: int) -> None:
        """Relay what podman says until its end of file, or until all is taken that it said before its end.

        conmon has the descriptor too, and outlives podman by the 6 ms that its own cleaning up takes.
        """
        poll = select.poll()
        for one in (fd, over):
            poll.register(one, select.POLLIN)
        while fd in {one for one, _ in poll.poll()}:
            data = os.read(fd, 65536)
            if not data:
                break
            with self._lock:
                if self._relay_now:
                    _write_all(2, data)
                else:
                    self._said += data
        os.close(fd)

    def _listen(self) -> None:
        while True:
            info = _signal.sigwaitinfo(HEARD)
            if info.si_signo == _signal.SIGTSTP:
                self._suspend()
            else:
                self.signalled = self.signalled or info.si_signo
                self._forward(info)

    def _forward(self, info: "struct_siginfo") -> None:
        """Pass a signal on, once: to the worker, or before there is one to podman, which may hang by then."""
        if not self._relay_now:
            self._signal(info.si_signo)
            with self._lock:
                self._deadline = min(self._deadline, time.monotonic() + _GRACE_SECONDS)
            _later(_GRACE_SECONDS, self._give_up)
        elif info.si_signo == _signal.SIGTERM:
            self.end()
        elif info.si_signo == _signal.SIGHUP and self._tty:
            # The terminal is gone, and podman with it: its client does not pass this one on.
            self.kill("HUP")
            _later(self.stop_timeout, self._kill_unless_ended)
        elif self._apart or info.si_code != _SI_KERNEL:
            self._pass_on(info.si_signo)

    def _pass_on(self, number: int) -> None:
        """Send the worker a signal by podman's client, or past it for a worker with a terminal.

        There podman 4.3's client passes none on: SIGINT and SIGTERM end it, and the card with it.
        """
        if self._tty and self._relay_now:
            self.kill(str(number))
        else:
            self._signal(number)

    def _suspend(self) -> None:
        """Ctrl-Z: freeze the container and stop, as the shell that we are a job of expects; go on when it says so."""
        paused = self.freeze(frozen=True)
        os.kill(os.getpid(), _signal.SIGSTOP)
        if paused:
            self.freeze(frozen=False)


def _later(seconds: float, do: "Callable[[], None]") -> None:
    timer = threading.Timer(seconds, do)
    timer.daemon = True
    timer.start()


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except OSError:
        return  # our own stderr is gone: the worker's exit status is still worth returning
