"""What stays read-only inside a writable root, and what must never be inside any root at all.

A mount point cannot be renamed or removed, but the directory that holds it can, and then another takes its place. So
every directory between a write root and a protected path is a mount point too ("held"): writable, and not movable.
"""

import os

from launcher.fs import git
from launcher.fs.paths import FLAG, WRITE, Root, ancestors, below, unprintable
from oci.refusal import Refusal


def decide(roots: list[Root], asked: list[str], *, git_writable: bool) -> tuple[list[str], list[str], list[Refusal]]:
    """Return (held directories, read-only paths), parents first, and a refusal for each `--protect` that cannot be."""
    writable = [root.path for root in roots if root.access == WRITE]
    closed: list[str] = []
    refusals: list[Refusal] = []
    for text in asked:
        path, refusal = _resolve(text, writable)
        closed += [path] if path else []
        refusals += refusal
    if not git_writable:
        closed += [path for root in writable for path in git.closed(root)]
    held = {parent for path in closed for root in writable for parent in _between(root, path)}
    taken = {*closed, *(root.path for root in roots)}
    return sorted(held - taken), sorted(set(closed)), refusals


def _resolve(text: str, writable: list[str]) -> tuple[str, list[Refusal]]:
    shown = f"--protect {text!r}"
    if unprintable(text) or not text.startswith("/"):
        return "", [Refusal("bad-path", f"{shown} is not an absolute, printable path")]
    try:
        path = os.path.realpath(text, strict=True)
    except OSError as error:
        return "", [Refusal("path-missing", f"{shown}: {os.strerror(error.errno or 0)}")]
    if not any(below(path, root) for root in writable):
        hint = "what is outside every --write is not writable anyway"
        return "", [Refusal("protect-outside", f"{shown} is not below a --write root", hint)]
    return path, []


def _between(root: str, path: str) -> list[str]:
    """Return the directories strictly between a root and a path below it."""
    if not below(path, root):
        return []
    parts = path[len(root) :].strip("/").split("/")[:-1]
    return ["/".join([root, *parts[: count + 1]]) for count in range(len(parts))]


def secrets(asked: list[str], roots: list[Root]) -> list[Refusal]:
    """Refuse each secret that lies inside a root: where it is named, and where that leads."""
    refusals: list[Refusal] = []
    for text in asked:
        shown = f"--secret {text!r}"
        if not text.startswith("/") or not os.path.exists(text):
            refusals.append(Refusal("path-missing", f"{shown} is not an absolute path that exists"))
            continue
        holders = {*ancestors(text), *ancestors(os.path.dirname(text))}
        refusals += [
            Refusal("secret-exposed", f"{shown} is inside {FLAG[root.access]} {root.path}", "name a narrower path")
            for root in roots
            if (root.device, root.inode) in holders
        ]
    return refusals
