"""A card's HOME and /tmp that outlive its run: two directories of the bench in the place of two private tmpfs.

For a caller that runs many cards as one (`--keep DIR`). The directory is judged as a write root is, and lies in no
write root of this card, so that no worker can put something else in the place of the two. Whoever runs cards with one
DIR lets each act on the next. Imported only for such a card.
"""

import contextlib
import os
import stat

from launcher.fs import policy
from launcher.fs.paths import FLAG as NAMES
from launcher.fs.paths import WRITE, Root, ancestors, below
from launcher.fs.policy import HOME, Filesystem
from launcher.value import Value
from oci.refusal import Refusal

FLAG = "--keep"
_TMP = "/tmp"  # noqa: S108 - the card's own
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PLACES = ((HOME, "home"), (_TMP, "tmp"))
_HINT = "make a directory for it that is yours alone: mkdir -m 700 DIR"


class Kept(Value):
    """One private directory of the card, kept: where it is inside, where on the bench, and its identity there."""

    path: str
    source: str
    device: int
    inode: int


def decide(
    text: str, roots: Filesystem, *, forbidden: tuple[tuple[str, str, bool], ...], look_only: bool
) -> tuple[tuple[Kept, ...], list[Refusal]]:
    """Return what is kept, and every refusal; makes the two directories where they are missing, unless only looking."""
    root, refusals = policy.writable(FLAG, text, forbidden=forbidden)
    if root is None or refusals:
        return (), refusals
    holders = set(ancestors(root.path))
    around = [one.path for one in roots.roots if one.access == WRITE and (one.device, one.inode) in holders]
    if around:
        wrong = f"{FLAG} {text!r} is inside --write {around[0]}: a worker could replace it"
        return (), [Refusal("keep-writable", wrong, "keep it beside what cards may write")]
    if not _alone(root.path):
        return (), [Refusal("keep-not-yours", f"{FLAG} {text!r} is not a directory that is yours alone", _HINT)]
    found: list[Kept] = []
    for path, name in PLACES:
        source = f"{root.path}/{name}"
        if not look_only and not os.path.lexists(source):
            os.mkdir(source, 0o700)
        if os.path.lexists(source) and not _alone(source):
            refusals.append(
                Refusal("keep-not-yours", f"{FLAG}: {source} is not a directory that is yours alone", _HINT)
            )
        elif os.path.lexists(source):
            seen = os.lstat(source)
            found.append(Kept(path=path, source=source, device=seen.st_dev, inode=seen.st_ino))
            if not look_only:
                refusals += _mount_points(path, source, roots)
    return tuple(found), refusals + _inside(found, roots)


def as_roots(kept: tuple[Kept, ...]) -> tuple[Root, ...]:
    """Return what is kept as the write roots that they are to the bench."""
    return tuple(
        Root(access=WRITE, path=one.source, directory=True, device=one.device, inode=one.inode) for one in kept
    )


def _inside(kept: list[Kept], roots: Filesystem) -> list[Refusal]:
    """Refuse a root that lies in what is kept: whatever it is, and is closed in it, the worker could write it there."""
    refusals: list[Refusal] = []
    for root in roots.roots:
        holders = set(ancestors(root.path))
        if any((one.device, one.inode) in holders for one in kept):
            text = f"{NAMES[root.access]} {root.path} is inside what {FLAG} keeps"
            refusals.append(Refusal("keep-contradiction", text, "keep it elsewhere"))
    return refusals


def _mount_points(place: str, source: str, roots: Filesystem) -> list[Refusal]:
    """Make what this card's roots below `place` are mounted on; crun would make it as a user that we cannot remove."""
    refusals: list[Refusal] = []
    for root in roots.roots:
        if not below(root.path, place):
            continue
        try:
            _make(source, root.path[len(place) + 1 :].split("/"), directory=root.directory)
        except OSError as error:
            text = f"{FLAG}: {root.path} cannot be mounted over what is in {source}: {os.strerror(error.errno or 0)}"
            refusals.append(Refusal("keep-in-the-way", text, "an earlier worker may have put it there: remove it"))
    return refusals


def _make(source: str, names: list[str], *, directory: bool) -> None:
    """Make a path below `source`, part by part, following no link that a worker may have left there."""
    fd = os.open(source, _DIRECTORY)
    try:
        for name in names if directory else names[:-1]:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=fd)
            deeper = os.open(name, _DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = deeper
        if not directory:
            os.close(os.open(names[-1], os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=fd))
    finally:
        os.close(fd)


def _alone(path: str) -> bool:
    """Return whether it is a directory, no link, of ours, and nobody else's to look into."""
    seen = os.lstat(path)
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.getuid() and not seen.st_mode & 0o077
