"""What stays read-only inside a writable root, and what must never be inside any root at all.

A mount point cannot be renamed or removed, but the directory that holds it can, and then another takes its place. So
every directory between a write root and a protected path is a mount point too ("held"): writable, and not movable.
"""

import os
import stat

from launcher.fs.git import checkout
from launcher.fs.paths import FLAG, WRITE, Root, ancestors, below, folder, misspelt, not_absolute, unprintable
from launcher.value import Value
from oci.refusal import Refusal


class Protection(Value):
    """What lies read-only in write roots: `held` directories stay writable, `closed` paths do not; parents first.

    `judged` has the device, inode and path of each: two cards may share a root, and one of them must not be able to
    swap what the other mounts. `git` is what the aftermath has to know of git directories (`launcher.fs.git.checkout`).
    """

    held: tuple[str, ...]
    closed: tuple[str, ...]
    judged: tuple[tuple[int, int, str], ...]
    git: tuple[tuple[str, bool, int, str], ...]


def decide(roots: list[Root], asked: list[str], *, git_writable: bool, make: bool) -> tuple[Protection, list[Refusal]]:
    """Return what is protected, and a refusal for each path that cannot be; `make` lets a checkout's hooks be made."""
    writable = [root.path for root in roots if root.access == WRITE]
    closed: list[str] = []
    refusals: list[Refusal] = []
    for text in asked:
        path, refusal = _resolve(text, writable)
        closed += [path] if path else []
        refusals += refusal
    checkouts = checkout.closed([] if git_writable else writable, make=make)
    closed += checkouts.paths
    refusals += checkouts.refusals
    # A root of less access inside a writable one is as movable as a protected path.
    fixed = [*closed, *(root.path for root in roots if root.access != WRITE)]
    held = {parent for path in fixed for root in writable for parent in _between(root, path)}
    taken = {*closed, *(root.path for root in roots)}
    tops = {root.path for root in roots}
    mounted = sorted({*held, *closed} - tops)
    judged, linked = _judge(mounted, fixed={*closed} - tops)
    protection = Protection(
        held=tuple(sorted(held - taken)),
        closed=tuple(sorted(set(closed))),
        judged=tuple(judged),
        git=tuple(checkouts.directories),
    )
    return protection, [*refusals, *linked, *map(_unprintable, filter(unprintable, mounted))]


def _unprintable(path: str) -> Refusal:
    """Refuse a name that no mount can be asked of podman for, or that would drive a terminal; git's are what is left.

    Roots and what `--protect` names are refused for it before.
    """
    text = f"{path!r} holds a control character or is not UTF-8, and cannot be kept from the worker"
    return Refusal("git-unprotectable", text, "an earlier worker may have made it: remove it, or pass --git-writable")


def _judge(paths: list[str], *, fixed: set[str]) -> tuple[list[tuple[int, int, str]], list[Refusal]]:
    """Return the identity of each path, and a refusal for each that is gone, has a link in it, or cannot be fixed."""
    judged: list[tuple[int, int, str]] = []
    refusals: list[Refusal] = []
    for path in paths:
        try:
            found = _seen(path)
            judged.append((found.st_dev, found.st_ino, path))
            refusals += _named_twice(path, found) if path in fixed else []
        except OSError as error:
            text = f"{path} cannot be held in place: {error.strerror}"
            refusals.append(Refusal("path-linked", text, "a symbolic link there is the worker's to replace"))
    return judged, refusals


def _named_twice(path: str, found: os.stat_result) -> list[Refusal]:
    """Refuse a file that has another name (link(2)), or a directory with one in it: a mount closes the name alone."""
    files = [(path, found)]
    if stat.S_ISDIR(found.st_mode):
        with os.scandir(path) as entries:
            files = [(entry.path, entry.stat(follow_symlinks=False)) for entry in entries]
    text = "{} has {} names, and by another one the worker could write it"
    hint = "give it one of its own: cp -p FILE FILE.new && mv FILE.new FILE"
    return [
        Refusal("path-linked", text.format(name, seen.st_nlink), hint)
        for name, seen in files
        if stat.S_ISREG(seen.st_mode) and seen.st_nlink > 1
    ]


def _seen(path: str) -> os.stat_result:
    """Look at a path step by step: raises OSError when any part is a symbolic link."""
    fd = folder(os.path.dirname(path))
    try:
        found = os.stat(os.path.basename(path), dir_fd=fd, follow_symlinks=False)
    finally:
        os.close(fd)
    if stat.S_ISLNK(found.st_mode):
        raise OSError(0, "it is a symbolic link")
    return found


def _resolve(text: str, writable: list[str]) -> tuple[str, list[Refusal]]:
    shown = f"--protect {text!r}"
    wrong = misspelt("--protect", text)
    if wrong:
        return "", wrong
    try:
        path = os.path.realpath(text, strict=True)
    except OSError as error:
        return "", [Refusal("path-missing", f"{shown}: {os.strerror(error.errno or 0)}")]
    through = link(text, writable)
    if through:
        hint = f"protect {path}, and know that the link itself is the worker's to replace"
        return "", [Refusal("path-linked", f"{shown}: {through} is a symbolic link in a --write root", hint)]
    if not any(below(path, root) for root in writable):
        hint = "what is outside every --write is not writable anyway"
        return "", [Refusal("protect-outside", f"{shown} is not below a --write root", hint)]
    return path, []


def link(text: str, writable: list[str]) -> str:
    """Return the first symbolic link on the way to a path that lies in a writable root, or ""."""
    parts = text.strip("/").split("/")
    for count in range(len(parts)):
        place, name = os.path.realpath("/" + "/".join(parts[:count])), parts[count]
        inside = any(place == root or below(place, root) for root in writable)
        if inside and os.path.islink(f"{place}/{name}"):
            return f"{place}/{name}"
    return ""


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
            missing = Refusal("path-missing", f"{shown} does not exist")
            refusals.append(missing if text.startswith("/") else not_absolute("--secret", text))
            continue
        holders = {*ancestors(text), *ancestors(os.path.dirname(text))}
        refusals += [
            Refusal("secret-exposed", f"{shown} is inside {FLAG[root.access]} {root.path}", "name a narrower path")
            for root in roots
            if (root.device, root.inode) in holders
        ]
    return refusals
