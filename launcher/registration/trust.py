"""May a path be relied on: nobody but root and its user can change it, or put something else in its place.

Every directory on the way counts, as it is reached and as it really is, since whoever may write to one may rename what
is below it. Looks, and changes nothing.
"""

import os
import stat
from collections.abc import Iterator


def problems(path: str, *, owner: int) -> list[str]:
    """Return why `path` (absolute) is not to be relied on by `owner` (a uid): empty when only root and they hold it."""
    found: list[str] = []
    for place in dict.fromkeys([*_ways(path), *_ways(os.path.realpath(path))]):
        try:
            status = os.lstat(place)
        except OSError as error:
            return [*found, f"{place}: {os.strerror(error.errno or 0)}"]
        found += _problems(place, status, owner)
    return found


def _ways(path: str) -> Iterator[str]:
    """Yield / and every directory down to the path, and the path."""
    parts = path.strip("/").split("/")
    yield from ("/" + "/".join(parts[:count]) for count in range(len(parts) + 1))


def _problems(place: str, status: os.stat_result, owner: int) -> list[str]:
    found: list[str] = []
    if status.st_uid not in (0, owner):
        found.append(f"{place} belongs to uid {status.st_uid}, who can change it")
    mode = stat.S_IMODE(status.st_mode)
    # In a sticky directory (/tmp) an entry is its owner's alone to rename; a link's own mode means nothing.
    if mode & 0o022 and not mode & stat.S_ISVTX and not stat.S_ISLNK(status.st_mode):
        found.append(f"{place} can be written by others (mode {mode:o})")
    return found
