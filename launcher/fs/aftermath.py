"""What a run may have left although it was closed, or could not be: looked for once the worker is gone.

A read-only mount lies on a file, not on a name. When something on the bench replaces the file meanwhile (`git config`
does, by rename), the kernel takes the mount away and the name is the worker's to write. And a name that was not there
cannot be closed: `commondir` in a main git directory sends git to another config, and a podman in a writable folder of
PATH would be what card-run starts next.
"""

import os

from launcher.fs import searched
from launcher.fs.policy import Filesystem


def look(roots: Filesystem, *, before_podman: tuple[str, ...] = ()) -> list[str]:
    """Return a line for each thing that must not be trusted; a planted `commondir` is removed, and a planted podman.

    `before_podman` are the paths where one would be found first, and none was before the run.
    """
    closed = [(device, inode, path) for device, inode, path in roots.judged if path in roots.closed]
    lines = [
        f"{path} was replaced on the bench while the card ran, and then was the worker's to write: read it before use"
        for device, inode, path in closed
        if not _is(path, device, inode)
    ]
    for directory in sorted({os.path.dirname(path) for path in roots.closed if path.endswith("/config")}):
        planted = f"{directory}/commondir"
        if planted not in roots.closed and os.path.lexists(planted):
            lines.append(f"{planted} was made by the worker, to send git to its own config and hooks: {_drop(planted)}")
    lines += [
        f"{planted} was made by the worker, and would be run in podman's place: {_drop(planted)}"
        for planted in before_podman
        if searched.runs(planted)
    ]
    return lines


def _is(path: str, device: int, inode: int) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (device, inode)


def _drop(path: str) -> str:
    try:
        os.unlink(path)
    except OSError as error:
        return f"remove it before you use git there ({error.strerror})"
    return "removed"
