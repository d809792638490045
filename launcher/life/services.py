"""What a `card` command that was killed leaves of the podman that it had started to ask (launcher.service).

A directory with a socket, and for the ten seconds until it finds itself idle the service. The rule: a process is ended
only when its command line names the socket, whose name nobody else draws, and when what took it over says that its
parent is gone; one whose parent lives is somebody's, and so is its directory.
"""

import os
import shutil
import time

from launcher.life import identity
from launcher.life.identity import Identity
from launcher.run import directory
from launcher.suppress import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

PREFIX = "card-run-service-"
YOUNG_SECONDS = 60
"""How long a directory without a service is left alone: its card may be about to start it."""
_SECONDS, _STEP = 5.0, 0.02
_PARENT = 1  # /proc/PID/stat's field 4, counted from behind the name (proc_pid_stat(5))


def left() -> list[str]:
    """Return the directory of each service that nobody answers for any more."""
    found: list[str] = []
    for top in map(os.path.dirname, directory.parents()):
        with suppress(OSError):
            found += [f"{top}/{name}" for name in sorted(os.listdir(top)) if name.startswith(PREFIX)]
    return [place for place in found if _left(place)]


def end(place: str) -> list[str]:
    """End what still serves a directory that nobody answers for, and remove it; return what is left, in words."""
    deadline = time.monotonic() + _SECONDS
    while (serving := _serving(place)) and time.monotonic() < deadline:
        for one in serving:
            identity.send(one, _signal.SIGTERM)
        time.sleep(_STEP)
    if serving:
        return [f"process {one.pid} serves {place}" for one in serving]
    shutil.rmtree(place, ignore_errors=True)
    return [place] if os.path.lexists(place) else []


def _left(place: str) -> bool:
    serving = _serving(place)
    if serving:
        parents = {_parent(one) for one in serving} - {one.pid for one in serving}
        return all(map(_takes_over, parents))
    with suppress(FileNotFoundError):
        found = os.lstat(place)
        return found.st_uid == os.getuid() and time.time() - found.st_mtime > YOUNG_SECONDS
    return False


def _serving(place: str) -> list[Identity]:
    """Return the processes of the service: podman, and for an ordinary user the one in its user namespace."""
    socket, found = f"unix://{place}/podman.sock".encode(), list[Identity]()
    for name in filter(str.isdigit, os.listdir("/proc")):
        who = identity.of(int(name))
        with suppress(OSError):
            if who is not None and socket in _read(who.pid, "cmdline").split(b"\0"):
                found.append(who)
    return found


def _parent(who: Identity) -> int:
    with suppress(OSError):
        return int(_read(who.pid, "stat").rpartition(b")")[2].split()[_PARENT])
    return 1


def _takes_over(pid: int) -> bool:
    """Return whether a process is one that children come to when their parent is gone, and that starts no card."""
    with suppress(OSError):
        return pid == 1 or _read(pid, "comm").strip() == b"systemd"
    return False


def _read(pid: int, name: str) -> bytes:
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()
