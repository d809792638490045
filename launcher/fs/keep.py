"""A card's HOME and /tmp that outlive its run: two directories of the bench in the place of two private tmpfs.

For a caller that runs many cards as one (`--keep DIR`). The directory is judged as a write root is, and lies in no
write root of this card, so that no worker can put something else in the place of the two. Whoever runs cards with one
DIR lets each act on the next. Imported only for such a card.
"""

import os
import stat

from launcher.fs import policy
from launcher.fs.paths import WRITE, ancestors
from launcher.fs.policy import HOME, Filesystem
from launcher.value import Value
from oci.refusal import Refusal

FLAG = "--keep"
_TMP = "/tmp"  # noqa: S108 - the card's own
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
    return tuple(found), refusals


def _alone(path: str) -> bool:
    """Return whether it is a directory, no link, of ours, and nobody else's to look into."""
    seen = os.lstat(path)
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.getuid() and not seen.st_mode & 0o077
