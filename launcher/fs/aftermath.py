"""What a run may have left although it was closed, or could not be: looked for once the worker is gone.

A read-only mount lies on a file, not on a name. When something on the bench replaces the file meanwhile (`git config`
does, by rename), the kernel takes the mount away and the name is the worker's to write. And a name that was not there
cannot be closed: `commondir` in a main git directory sends git to another config, and a podman in a writable folder of
PATH would be what card-run starts next.

The rule: whoever ends a run, or undoes it, looks (`launcher.run.account`, `launcher.life.undo`), by what is recorded in
the run directory before the worker starts. To look again does nothing more.
"""

import os

from launcher.fs import searched
from launcher.fs.git import checkout
from launcher.fs.git.files import TooMuch
from launcher.fs.paths import folder
from launcher.fs.policy import Filesystem
from launcher.value import Value
from oci import strictjson

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAME = "aftermath.json"


class Before(Value):
    """What an end is compared with: what was closed, git directories, and where a podman would be found first.

    `closed` are device, inode and path; `git` is `launcher.fs.git.checkout`'s; no podman was at `before_podman`.
    """

    closed: tuple[tuple[int, int, str], ...]
    git: tuple[tuple[str, bool, int, str], ...]
    before_podman: tuple[str, ...]

    def to_json(self) -> bytes:
        """Return it as the bytes of its file."""
        return strictjson.dump(self.as_dict()).encode()


def before(roots: Filesystem, *, before_podman: tuple[str, ...]) -> Before | None:
    """Return what to look for when the run is over; None when there is nothing."""
    closed = set(roots.closed)
    judged = tuple(one for one in roots.judged if one[2] in closed)
    return Before(closed=judged, git=roots.git, before_podman=before_podman) if judged or before_podman else None


def parse(data: bytes) -> Before:
    """Return what was recorded; raises ValueError when it is not what this card-run writes."""
    members: "Any" = strictjson.parse(data)
    try:
        return Before(
            closed=tuple((int(device), int(inode), str(path)) for device, inode, path in members["closed"]),
            git=tuple((str(path), bool(was), int(when), str(tree)) for path, was, when, tree in members["git"]),
            before_podman=tuple(map(str, members["before_podman"])),
        )
    except (TypeError, KeyError) as error:
        raise ValueError(f"no record of what was before: {error}") from None


def look(found: Before) -> list[str]:
    """Return a line for each thing that must not be trusted; a planted `commondir` is removed, and a planted podman."""
    lines = [
        f"{path} was replaced on the bench while the card ran, and then was the worker's to write: read it before use"
        for device, inode, path in found.closed
        if not _is(path, device, inode)
    ]
    closed = {path for _, _, path in found.closed}
    for path, was_whole, todo, tree in found.git:
        planted = f"{path}/commondir"
        if planted not in closed and os.path.lexists(planted):
            lines.append(f"{planted} was made by the worker, to send git to its own config and hooks: {_drop(planted)}")
        if was_whole and not checkout.whole(path):
            lines.append(f"{path} is no git directory any more, and git would look for another: mend it before use")
        if checkout.rebasing(path) not in {0, todo}:
            lines.append(f"{path} is in a rebase that the worker changed: read its list, it may have commands to run")
        if tree and _tree(path) != tree:
            lines.append(f"{path}/gitdir was changed by the worker, and hides the worktree {tree}: git worktree repair")
    lines += [
        f"{planted} was made by the worker, and would be run in podman's place: {_remove(planted)}"
        for planted in found.before_podman
        if searched.runs(planted)
    ]
    return lines


def _is(path: str, device: int, inode: int) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (device, inode)


def _tree(path: str) -> str:
    try:
        return checkout.linked_tree(path)
    except TooMuch:
        return ""


def _drop(path: str) -> str:
    """Remove a file where it is, by no symbolic link, and return what came of it."""
    try:
        fd = folder(os.path.dirname(path))
        try:
            os.unlink(os.path.basename(path), dir_fd=fd)
        finally:
            os.close(fd)
    except OSError as error:
        return f"remove it before you use git there ({error.strerror})"
    return "removed"


def _remove(path: str) -> str:
    try:
        os.unlink(path)
    except OSError as error:
        return f"remove it before you run another card ({error.strerror})"
    return "removed"
