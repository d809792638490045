"""Linked worktrees of git: what they need of the bench beside themselves, told where a card does not have it.

Imported only where a root's `.git` is a file. The rule: an earlier worker may have written that file, so what it names
is told only where that is a repository which itself says that this is a worktree of it (gitrepository-layout(5)).
"""

import os
import shlex
from collections.abc import Iterator, Sequence

from launcher.fs.paths import Root, ancestors, promptly

_READ_LIMIT = 4096  # each is one path
_GITDIR = "gitdir: "


def notes(tops: Sequence[str], roots: Sequence[Root]) -> Iterator[str]:
    """Yield a note for each worktree whose repository is in no root."""
    for top in tops:
        repository = _repository(top)
        if repository and not _reached(repository, roots):
            named = shlex.quote(repository)
            yield (
                f"{top} is a worktree of {repository}, which the card does not have: git needs --read {named}, "
                f"and --write {named} to commit"
            )


def _reached(path: str, roots: Sequence[Root]) -> bool:
    holders = set(ancestors(path))
    return any((root.device, root.inode) in holders for root in roots if root.directory)


def _repository(top: str) -> str:
    """Return the git directory that a linked worktree shares with others, resolved; "" for anything else."""
    said = _read(f"{top}/.git")
    own = os.path.join(top, said.removeprefix(_GITDIR)) if said.startswith(_GITDIR) else ""
    common = _read(f"{own}/commondir") if own else ""
    back = _read(f"{own}/gitdir") if common else ""
    if not back or os.path.realpath(os.path.join(own, back)) != f"{os.path.realpath(top)}/.git":
        return ""
    found = os.path.realpath(os.path.join(own, common))
    return found if os.path.dirname(os.path.realpath(own)) == f"{found}/worktrees" else ""


def _read(path: str) -> str:
    """Return the one line of a file; "" for what is none."""
    try:
        with open(path, encoding="utf-8", opener=promptly) as file:
            return file.read(_READ_LIMIT).strip("\n")
    except (OSError, ValueError):  # a name with a NUL in it, and what is not UTF-8
        return ""
