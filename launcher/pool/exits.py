"""The worker's end as conmon records it: a file with the status, in conmon's exit directory (conmon(8) `--exit-dir`).

podman's own client returns only when it has taken the container down, tens of milliseconds after the worker's last;
whoever waits for the worker need not wait for that. The rule: it is conmon's word or none. Where the file is not
found, or says what could be podman's or a signal's status, the client is waited for as ever.
"""

import ctypes
import os
import select

from hooks import rundir

# sys/inotify.h
_IN_CLOSE_WRITE, _IN_MOVED_TO = 0x08, 0x80
_IN_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK
_OPTION, _BUNDLE = "--exit-dir", "-b"
# From here on a status may be podman's own (podman-run(1) "Exit Status") or a signal's.
_SURE = 125

_libc = ctypes.CDLL(None, use_errno=True)


class Exit:
    """A watch on the file in which a container's status will be."""

    def __init__(self, conmon: int, container: str) -> None:
        """Watch before the worker starts; raises OSError, or ValueError when that process is no conmon."""
        with open(f"/proc/{conmon}/cmdline", "rb") as file:
            words = [os.fsdecode(word) for word in file.read().split(b"\0")]
        self._path = f"{words[words.index(_OPTION) + 1]}/{container}"
        self._oom = f"{words[words.index(_BUNDLE) + 1]}/{rundir.OOM}"
        self._fd = _checked("inotify_init1", _libc.inotify_init1(_IN_FLAGS))
        folder = os.fsencode(os.path.dirname(self._path))
        _checked("inotify_add_watch", _libc.inotify_add_watch(self._fd, folder, _IN_CLOSE_WRITE | _IN_MOVED_TO))

    def wait(self, client: int) -> int | None:
        """Return the worker's status, or None when podman's client (a pidfd) must be waited for to know it."""
        waiter = select.poll()
        for fd in (self._fd, client):
            waiter.register(fd, select.POLLIN)
        while True:
            status = self._read()
            if status is not None:
                return status if status < _SURE else None
            if any(fd == client for fd, _ in waiter.poll()):
                return None
            os.read(self._fd, 65536)

    def memory_ran_out(self) -> bool:
        """Return whether conmon says so, which it does before it writes the status."""
        return os.path.lexists(self._oom)

    def _read(self) -> int | None:
        try:
            with open(self._path, "rb") as file:
                text = file.read(16).strip()
        except FileNotFoundError:
            return None
        return int(text) if text.isdigit() else None


def _checked(call: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
    return result
