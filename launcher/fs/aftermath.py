"""What a run may have left in a checkout although it was closed: looked for once the worker is gone.

A read-only mount lies on a file, not on a name. When something on the bench replaces the file meanwhile (`git config`
does, by rename), the kernel takes the mount away and the name is the worker's to write. And a name that was not there
cannot be closed: `commondir` in a main git directory sends git to another config.
"""

import os

from launcher.fs.policy import Filesystem


def look(roots: Filesystem) -> list[str]:
    """Return a line for each thing that git must not be trusted with; a planted `commondir` is removed."""
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
