"""Removing a directory that a worker has filled: however deep, however named, whatever its modes, and nothing outside.

No path is ever built of names that a worker chose, no link is followed, and nothing recurses: what is deeper is moved
up first (rename(2) by descriptors), so that depth costs neither descriptors nor stack.
"""

import os
import secrets

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove(path: str, *, last: str = "") -> None:
    """Remove a directory of ours and everything in it; raises OSError when something is left (a mount, say).

    The file called `last` goes when all else has: who finds it there knows that the rest is still to be removed.
    """
    top = os.open(path, _DIRECTORY)
    try:
        fresh, count = secrets.token_hex(8), 0
        pending = _cleared(top, keep=last)
        while pending:
            name = pending.pop()
            _enterable(name, top)
            fd = os.open(name, _DIRECTORY, dir_fd=top)
            try:
                for below in _cleared(fd):
                    _enterable(below, fd)
                    count += 1
                    moved = f"{fresh}-{count}"
                    os.rename(below, moved, src_dir_fd=fd, dst_dir_fd=top)
                    pending.append(moved)
            finally:
                os.close(fd)
            os.rmdir(name, dir_fd=top)
        if last:
            os.unlink(last, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(path)


def _cleared(fd: int, *, keep: str = "") -> list[str]:
    """Unlink everything in a directory that is none itself; return the names of those that are."""
    with os.scandir(fd) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, directory in found:
        if not directory and name != keep:
            os.unlink(name, dir_fd=fd)
    return [name for name, directory in found if directory]


def _enterable(name: str, directory: int) -> None:
    """Give ourselves a directory of ours back; by descriptor, so that nothing else can be meant by then."""
    fd = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        os.chmod(f"/proc/self/fd/{fd}", 0o700)
    finally:
        os.close(fd)
