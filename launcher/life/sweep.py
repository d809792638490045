"""The sweep at each start: a look whether a run was left behind, which costs microseconds, and a cleaner if one was.

The rule: the look is done while podman starts and touches nothing; the work is another process's, which nobody waits
for, one at a time. Once in each boot it works without a look: an earlier boot's containers have no directory.
"""

import _thread
import fcntl
import os
import sys
import time

from launcher.life import identity, kept
from launcher.suppress import suppress

_PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from launcher.life import sweep; sweep.clean()"
# The boot of the last cleaning, and the lock of the one that is at it; beside the receipts, which outlive a boot.
_STAMP = "swept"
_NICE = 10
_SECONDS = 0.002  # for the look


def start(own: str) -> None:
    """Start a cleaner if something is left of a run other than the one in the directory `own`."""
    try:
        if not _needed(own):
            return
    except OSError:
        return
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    words = [sys.executable, "-I", "-S", "-c", _PROGRAM, root]
    silent = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
    with suppress(OSError):
        pid = os.posix_spawn(words[0], words, os.environ, file_actions=silent, setsid=True, setsigmask=())
        _thread.start_new_thread(os.waitpid, (pid, 0))


def clean() -> None:
    """Undo what is left, quietly, unless another cleaner is at it; whatever cannot be undone is the next one's."""
    from launcher.life import gc

    stamp = _alone()
    if stamp is None:
        return
    try:
        os.nice(_NICE)
        gc.collect()
        os.pwrite(stamp, identity.boot_id().encode(), 0)
    finally:
        os.close(stamp)


def _needed(own: str) -> bool:
    if not _swept():
        return True
    top, _, mine = own.rpartition("/")
    names = os.listdir(top)
    # From another one at each start: where there are too many to look at all of them, each has its turn.
    first = os.getpid() % max(len(names), 1)
    end = time.monotonic() + _SECONDS
    for name in names[first:] + names[:first]:
        if name != mine and _left(f"{top}/{name}"):
            return True
        if time.monotonic() > end:
            return False
    return False


def _swept() -> bool:
    try:
        with open(_stamp(), "rb") as file:
            return file.read() == identity.boot_id().encode()
    except OSError:
        return False


def _left(path: str) -> bool:
    """Return whether nobody answers for a run directory. A lock that is held says at once that somebody does."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    from launcher.life import orphans

    return orphans.why(path) is not None


def _alone() -> int | None:
    """Return the stamp's descriptor, locked; None when another process has the lock or there is no place for it."""
    try:
        kept.prepare()
        fd = os.open(_stamp(), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def _stamp() -> str:
    return f"{os.path.dirname(kept.directory())}/{_STAMP}"
