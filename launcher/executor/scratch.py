"""The scratch directory of an executor set: what it owns, and only that, goes with it, also after a crash.

`ROOT/set-ID/` is one set's: `owner` holds a lock (flock(2)) for as long as the set lives, and the kernel lets go of it
however that ends; each executor's HOME and /tmp are in a directory beside it. The rule: a directory is removed by
whoever holds its lock, and what has no such record is nobody's to remove. The root is locked while a set is made, so
that a beginning without a record is that of a process that is gone.
"""

import contextlib
import fcntl
import json
import os
import re
import secrets
import stat
from io import FileIO

from launcher.executor import tree
from launcher.executor.forked import not_ours_to_share

_SET, _NEW, OWNER = "set-", ".new-", "owner"
_BEGUN = re.compile(rf"{re.escape(_NEW)}[0-9a-f]{{12}}")
_RECORD = {"schema": 1, "what": "card-run executor set"}


class Scratch:
    """One set's own directory, locked. Python lets go of the lock, with a ResourceWarning, when nobody removed it."""

    def __init__(self, path: str, lock: FileIO) -> None:
        self.path = path
        self.name = os.path.basename(path).removeprefix(_SET)
        self._lock = lock

    def room(self, name: str) -> str:
        """Make and return the directory of one executor."""
        path = f"{self.path}/{name}"
        os.mkdir(path, 0o700)
        return path

    def drop(self) -> None:
        """Let go of the lock in a process that was forked from the set's own, which keeps it."""
        self._lock.close()

    def remove(self) -> None:
        """Remove all of it and let go; harmless when said twice. Raises OSError, and may then be said again."""
        if not self._lock.closed:
            if os.path.lexists(self.path):
                tree.remove(self.path, last=OWNER)
            self._lock.close()


def take(root: str) -> Scratch:
    """Return a new set's directory below `root`, which is made if it is missing; what crashed sets left goes first.

    Raises PermissionError when `root` is not a directory that only its owner, us, can change.
    """
    root = os.path.realpath(root)
    os.makedirs(root, mode=0o700, exist_ok=True)
    found = os.stat(root)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(0, "scratch_root is not a directory that only you can change", root)
    held = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        sweep(root)
        return _made(root, secrets.token_hex(6))
    finally:
        os.close(held)


def _made(root: str, name: str) -> Scratch:
    new = f"{root}/{_NEW}{name}"
    os.mkdir(new, 0o700)
    fd = os.open(f"{new}/{OWNER}", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    lock = os.fdopen(fd, "wb", buffering=0)
    not_ours_to_share(lock, FileIO.close)
    fcntl.flock(lock, fcntl.LOCK_EX)
    lock.write(json.dumps({**_RECORD, "pid": os.getpid()}).encode())
    path = f"{root}/{_SET}{name}"
    os.rename(new, path)
    return Scratch(path, lock)


def sweep(root: str) -> list[str]:
    """Remove what sets that are gone left below `root`, which is locked; return what is still there and nobody's.

    A card of theirs that has not quite ended yet may keep a directory busy: that one is for the next sweep.
    """
    left: list[str] = []
    for name in sorted(os.listdir(root)):
        path = f"{root}/{name}"
        if not name.startswith((_SET, _NEW)):
            continue
        lock = _orphan(path)
        if lock is None:
            if _BEGUN.fullmatch(name):
                _unmake(path)
            continue
        with contextlib.closing(os.fdopen(lock, "rb")):
            try:
                tree.remove(path, last=OWNER)
            except OSError:
                left.append(path)
    return left


def _unmake(path: str) -> None:
    """Remove what was begun and has no record yet; what holds anything else, or is no directory of ours, stays."""
    with contextlib.suppress(OSError):
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if (
                os.fstat(top).st_uid == os.getuid()
                and os.listdir(top) == [OWNER]
                and not os.stat(OWNER, dir_fd=top).st_size
            ):
                os.unlink(OWNER, dir_fd=top)
        finally:
            os.close(top)
        os.rmdir(path)


def _orphan(path: str) -> int | None:
    """Return the lock of a set's directory whose set is gone; None for one that lives, and for anything else."""
    try:
        lock = os.open(f"{path}/{OWNER}", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        content = json.loads(os.read(lock, 4096))
        known = {name: content.get(name) for name in _RECORD} == _RECORD
        if known and not os.path.islink(path) and os.fstat(lock).st_uid == os.getuid():
            return lock
    except (OSError, ValueError, AttributeError):
        pass
    os.close(lock)
    return None
