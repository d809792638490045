"""Starting card-run as a child: its descriptors, and the lifeline that ends it and its card with this process.

The child has a session of its own: what a terminal sends this process is this process's to pass on.
"""

import contextlib
import fcntl
import functools
import importlib.util
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Sequence
from typing import NamedTuple

from launcher.executor import start
from launcher.executor.forked import Owner, not_ours_to_share

_DEPENDENCIES = ("idna",)


class Files:
    """Texts for the child that are in no file and no argv: each an anonymous file (memfd_create(2)) of its own."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def add(self, data: bytes) -> int:
        """Return the descriptor of a new one, as the child has it."""
        fd = os.memfd_create("card-run", os.MFD_CLOEXEC)
        self.numbers.append(fd)
        os.fchmod(fd, 0o600)
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
        return fd

    def close(self) -> None:
        """Let go of them here; the child has its own."""
        for fd in self.numbers:
            os.close(fd)


class Streams(NamedTuple):
    """Our ends of the command's streams, -1 where there is none; at a terminal all are its master."""

    stdin: int
    stdout: int
    stderr: int


@functools.cache
def dependencies() -> tuple[str, ...]:
    """Return the folders of what card-run imports of others, as this process has them."""
    places: dict[str, None] = {}
    for name in _DEPENDENCIES:
        found = importlib.util.find_spec(name)
        if found is None or not found.submodule_search_locations:
            raise ModuleNotFoundError(f"card-run needs {name}", name=name)
        places[os.path.dirname(found.submodule_search_locations[0])] = None
    return tuple(places)


class Child:
    """A card-run that was started. `last` is what was last written to it as it came: it may have begun a line."""

    def __init__(
        self,
        options: Sequence[str],
        command: Sequence[str],
        files: Files,
        *,
        stdin: bool,
        terminal: tuple[int, int] | None,
    ) -> None:
        self._owner = Owner()
        self._lifeline, theirs = socket.socketpair()
        self.streams = Streams(-1, -1, -1)
        self.last = b""
        not_ours_to_share(self, Child.forked)
        self.events, events = os.pipe()
        self.tied = True
        given = [events, theirs.fileno(), *files.numbers]
        # Python bare: looking for site packages would cost every card milliseconds, and what is in them startup code.
        argv = [sys.executable, "-IS", start.__file__, os.pathsep.join(dependencies())]
        argv += [",".join(map(str, given)), str(int(terminal is not None))]
        argv += [f"--events={events}", f"--lifeline={theirs.fileno()}", *options]
        argv += ["-it"] if terminal else ["-i"] if stdin else []
        try:
            self.pid, self.streams = (
                _piped([*argv, "--", *command], given, stdin=stdin)
                if terminal is None
                else _at_terminal([*argv, "--", *command], given, terminal)
            )
        except BaseException:
            os.close(self.events)
            self._lifeline.close()
            raise
        finally:
            os.close(events)
            theirs.close()
            files.close()
        self.status: int | None = None
        self._over = False
        self._looking = threading.Lock()
        self.exit = -1
        try:
            self.exit = os.pidfd_open(self.pid)
        except OSError:
            os.close(self.events)
            self.close()
            raise
        for fd in set(self.streams) - {-1}:
            os.set_blocking(fd, False)

    @property
    def ours(self) -> bool:
        """Return whether this process started it, and was not forked from the one that did."""
        return self._owner.here

    def check(self) -> None:
        """Raise ClosedError in a process that was forked from the one that started it."""
        self._owner.check("the command")

    def forked(self) -> None:
        """In a process that was just forked: hold neither the card nor its input, whose end it could not read else."""
        self._lifeline.close()
        if self.streams.stdin != self.streams.stdout:
            self.close_stream(self.streams.stdin)

    def ended(self) -> bool:
        """Return whether card-run has ended; `status` is then its own, negative for a signal, None if not known.

        It is not where this program waits for every child of its own, or ignores SIGCHLD (waitid(2), ECHILD). Raises
        ClosedError in a process that was forked from ours.
        """
        self.check()
        with self._looking:
            return self._ended()

    def _ended(self) -> bool:
        if not self._over:
            try:
                found = os.waitid(os.P_PIDFD, self.exit, os.WEXITED | os.WNOHANG)
            except ChildProcessError:
                self._over = True
            else:
                if found is not None:
                    self._over = True
                    self.status = found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
        return self._over

    def send_signal(self, number: int) -> None:
        """Send card-run a signal; harmless once it has ended. Raises ClosedError as `ended` does."""
        self.check()
        with self._looking, contextlib.suppress(ProcessLookupError):
            if not self._ended():
                signal.pidfd_send_signal(self.exit, number)

    def let_go(self) -> None:
        """End card-run by its lifeline, at once: the kernel kills it. Harmless when said twice."""
        if self.tied:
            self.tied = False
            self._lifeline.close()

    def resize(self, rows: int, columns: int) -> None:
        """Set the terminal's size; the kernel tells whoever is at it (SIGWINCH)."""
        _resize(self.streams.stdin, rows, columns)

    def close_stream(self, fd: int) -> None:
        """Close one of our ends, all that are the same at once; harmless when it is closed already."""
        if fd in self.streams and fd >= 0:
            self.streams = Streams(*(-1 if one == fd else one for one in self.streams))
            os.close(fd)

    def close(self) -> None:
        """Let go of everything; card-run has ended, or is another process's."""
        self.let_go()
        for fd in self.streams:
            self.close_stream(fd)
        held, self.exit = self.exit, -1
        if held >= 0:
            os.close(held)


def _piped(argv: list[str], given: list[int], *, stdin: bool) -> tuple[int, Streams]:
    process = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=given,
        start_new_session=True,
    )
    numbers: list[int] = []
    for stream in (process.stdin, process.stdout, process.stderr):
        numbers.append(-1 if stream is None else os.dup(stream.fileno()))
        if stream is not None:
            stream.close()
    process.stdin = process.stdout = process.stderr = None
    return _ours(process), Streams(*numbers)


def _at_terminal(argv: list[str], given: list[int], size: tuple[int, int]) -> tuple[int, Streams]:
    master, slave = pty.openpty()
    try:
        _resize(slave, *size)
        process = subprocess.Popen(
            argv, stdin=slave, stdout=slave, stderr=slave, pass_fds=given, start_new_session=True
        )
    except BaseException:
        os.close(master)
        raise
    finally:
        os.close(slave)
    return _ours(process), Streams(master, master, master)


def _ours(process: subprocess.Popen[bytes]) -> int:
    """Return a process's id; Popen waits for it no more, which would say 0 for a status that somebody else took."""
    process.returncode = 0
    return process.pid


def _resize(fd: int, rows: int, columns: int) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
