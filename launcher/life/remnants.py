"""What is left of a container that podman's database does not tell of: its monitor, and the runtime's own state.

A podman that is killed while it creates a container leaves conmon with a container that is created and never started;
one whose conmon was killed leaves the runtime's directory. The rule: what belongs to a container is known by its id,
64 hexadecimal digits that nothing else carries, in a command line or as a directory's name; a process is signalled
only as the one that was looked at (`launcher.life.identity`).
"""

import os
import time

from launcher.life import identity
from launcher.life.containers import Containers, Unknown
from launcher.life.identity import Identity
from launcher.run import directory
from launcher.suppress import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

_MONITORS = ("conmon", "crun", "runc")
_RUNTIMES = ("crun", "runc")
# What is already ending has this long to end by itself, and is killed then; after the second, it is left and told.
_SECONDS, _LAST_SECONDS = 5.0, 10.0
_STEP = 0.02


def clear(container: str, containers: Containers) -> None:
    """End and remove what is left of a container that podman does not have any more; raises Unknown when it stays."""
    start = time.monotonic()
    while True:
        busy, state = _busy(container), _state(container)
        if not busy and not state:
            return _forget(container)
        past = time.monotonic() - start
        if past > _LAST_SECONDS:
            raise Unknown(f"of container {container}: {', '.join([*map(_shown, busy), *state])}")
        if state and not any(_creates(one) for one in busy):
            containers.forget(container)
        if past > _SECONDS:
            for one in busy:
                identity.send(one, _signal.SIGKILL)
        time.sleep(_STEP)


def _forget(container: str) -> None:
    """Remove what conmon noted of the container's end, for a podman that does not ask any more (conmon(8))."""
    for top in directory.parents():
        notes = f"{os.path.dirname(top)}/libpod/tmp"
        for path in (
            f"{notes}/exits/{container}",
            *(f"{notes}/persist/{container}/{name}" for name in ("exit", "oom")),
        ):
            with suppress(OSError):
                os.unlink(path)
        with suppress(OSError):
            os.rmdir(f"{notes}/persist/{container}")


def _busy(container: str) -> list[Identity]:
    """Return the processes of this container: its monitor, and a runtime that is at work on it."""
    found: list[Identity] = []
    for name in os.listdir("/proc"):
        who = identity.of(int(name)) if name.isdigit() else None
        if who is not None:
            words = _arguments(who.pid)
            if container in words and os.path.basename(words[0]) in _MONITORS:
                found.append(who)
    return found


def _creates(who: Identity) -> bool:
    """Return whether a process is a runtime at work, which deletes nothing meanwhile.

    A container's first process has the runtime's command line until it is started, and a process namespace of its own.
    """
    try:
        inside = os.stat(f"/proc/{who.pid}/ns/pid").st_ino != os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return False
    return _arguments(who.pid)[0].endswith(_RUNTIMES) and not inside


def _arguments(pid: int) -> list[str]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().decode("utf-8", "replace").split("\0")
    except OSError:
        return [""]


def _shown(who: Identity) -> str:
    return f"process {who.pid} ({os.path.basename(_arguments(who.pid)[0])})"


def _state(container: str) -> list[str]:
    """Return the directories in which a runtime keeps this container's state (crun(1), runc(8) `--root`)."""
    tops = [os.path.dirname(top) for top in directory.parents()]
    paths = [f"{top}/{runtime}/{container}" for top in tops for runtime in _RUNTIMES]
    return [path for path in paths if os.path.isdir(path)]
