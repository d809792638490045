"""Whether a file that decides about runs is whose it should be: read once, from the descriptor that was judged.

A file decides for whoever can write it. So it belongs to one of its `owners` and nobody else can write it, nor, for
what speaks for the whole bench, any directory on the way to it (a sticky one, such as /tmp, lets nobody replace what is
another's). Imports nothing slow: the bench's own settings are read in front of every card.
"""

import os
import stat

from launcher.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

SIZE_LIMIT = 256 << 10
_OTHERS = 0o022
_MOST_LINKS = 40  # the kernel's own limit


class File(Value):
    """A file's bytes, and what is wrong with it: with any fault it decides nothing. Missing, it has neither."""

    path: str
    data: bytes | None
    faults: tuple[str, ...]


def read(path: str, owners: tuple[int, ...], *, above: bool = False) -> File:
    """Return a file that only `owners` may write; with `above`, so must every directory on the way to it be."""
    try:
        # A pipe that nobody writes to must not hold up the run.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except FileNotFoundError:
        return File(path=path, data=None, faults=())
    except (OSError, ValueError) as error:
        return File(path=path, data=None, faults=(_why(error),))
    try:
        found = os.fstat(fd)
        faults = [*_kind(found), *_faults(found, owners)]
        faults += _above(path, owners) if above else []
        data = None if faults else _all(fd)
    except OSError as error:
        return File(path=path, data=None, faults=(_why(error),))
    finally:
        os.close(fd)
    if data is not None and len(data) > SIZE_LIMIT:
        return File(path=path, data=None, faults=(_TOO_LARGE,))
    return File(path=path, data=data, faults=tuple(faults))


_TOO_LARGE = f"it is larger than {SIZE_LIMIT >> 10} KiB"


def _why(error: Exception) -> str:
    return os.strerror(error.errno or 0) if isinstance(error, OSError) else str(error)


def _all(fd: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while size <= SIZE_LIMIT and (part := os.read(fd, SIZE_LIMIT + 1)):
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _kind(found: os.stat_result) -> list[str]:
    return [] if stat.S_ISREG(found.st_mode) else ["it is not a regular file"]


def _faults(found: os.stat_result, owners: tuple[int, ...]) -> "Iterator[str]":
    if found.st_uid not in owners:
        yield f"it belongs to uid {found.st_uid}, not to {' or '.join(map(_who, owners))}"
    # Where everybody has a group of their own (uid and gid alike), what it may write only its owner may.
    private = found.st_gid == found.st_uid and found.st_uid in owners
    if found.st_mode & (0o002 if private else _OTHERS):
        yield f"others can write it (mode {stat.S_IMODE(found.st_mode):04o})"


def _who(uid: int) -> str:
    return "root" if uid == 0 else "you" if uid == os.getuid() else f"uid {uid}"


def _above(path: str, owners: tuple[int, ...]) -> "Iterator[str]":
    """Judge each directory on the way, those that a link on it leads through among them."""
    for folder in way(os.path.abspath(path))[0]:
        found = os.stat(folder)
        if found.st_uid not in owners or (found.st_mode & _OTHERS and not found.st_mode & stat.S_ISVTX):
            yield f"{folder} can be written by others than {' or '.join(map(_who, owners))}"


def way(path: str) -> tuple[list[str], list[str]]:
    """Return every directory that the kernel looks into to find a path, and every link that it follows.

    See path_resolution(7); raises OSError.
    """
    found, followed = ["/"], list[str]()
    todo = path.strip("/").split("/")
    while todo:
        step = f"{found[-1].rstrip('/')}/{todo.pop(0)}"
        if os.path.islink(step):
            followed.append(step)
            if len(followed) > _MOST_LINKS:
                import errno

                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            target = os.readlink(step)
            todo = [*target.strip("/").split("/"), *todo]
            found += ["/"] if target.startswith("/") else [found[-1]]
        elif todo:
            found.append(os.path.normpath(step))
    return list(dict.fromkeys(found)), followed
