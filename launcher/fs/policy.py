"""What of the bench a card may reach: the roots of `--read`, `--read-noexec`, `--write`, resolved once and judged.

Every root is absolute, exists, is resolved through its symlinks, and is mounted at that same path inside. "Inside" is
a question of device and inode along the ancestors, never of a string prefix: a bind mount or a hard link of a
directory has other names.
"""

import os
import stat

from launcher.fs import protect, submounts
from launcher.fs.paths import FLAG, NOEXEC, READ, WRITE, Root, ancestors, misspelt, unprintable
from launcher.fs.sockets import judge as sockets
from launcher.value import Value
from oci.refusal import Refusal

HOME = "/card"
# Private tmpfs mounts of every card (DESIGN "The filesystem wall").
PRIVATE = ("/tmp", "/var/tmp", "/dev/shm", HOME)  # noqa: S108 - the card's own, not the bench's
# Mount points that are podman's, the kernel's or ours; a root at, above or below these would replace them.
_RESERVED = ("/proc", "/sys", "/dev", "/run/card", "/run/card-runtime", HOME)
_RESERVED_EXACT = ("/", "/run", "/etc", "/tmp", "/var", "/var/tmp", "/home", "/etc/hosts", "/etc/resolv.conf")  # noqa: S108


class Filesystem(Value):
    """Everything of the bench that the card may reach, and where the worker starts.

    `held` directories are mount points that stay writable, `closed` paths are read-only; both lie in write roots, and
    `judged` is the device and inode of each. `mounted` is what of the bench is mounted below the roots, `hidden` what
    of it no card sees, each as (access, path); `git` is for the aftermath (`launcher.fs.git.checkout`).
    """

    roots: tuple[Root, ...]
    held: tuple[str, ...]
    closed: tuple[str, ...]
    judged: tuple[tuple[int, int, str], ...]
    cwd: str
    mounted: tuple[tuple[str, str], ...] = ()
    hidden: tuple[tuple[str, str], ...] = ()
    git: tuple[tuple[str, bool, int, str], ...] = ()


class Asked(Value):
    """What the flags ask of the file system, as text; `granted` may be written even where they are files."""

    read: tuple[str, ...] = ()
    noexec: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    protect: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()
    granted: tuple[str, ...] = ()
    cwd: str | None = None
    git_writable: bool = False
    look_only: bool = False


class _Path(Value):
    flag: str
    access: str
    text: str


def decide(
    asked: Asked, *, forbidden: tuple[tuple[str, str, bool], ...], hidden: tuple[str, ...] = ()
) -> tuple[Filesystem, list[Refusal]]:
    """Return the resolved roots and working directory, and every refusal.

    `forbidden` are what no write root may be or hold, nor lie below where the third says so: (path, what it is, below).
    `hidden` are directories that are not shown in any root.
    """
    roots, refusals = _roots(asked, forbidden)
    refusals += _contradictions(roots) + protect.secrets(list(asked.secret), roots)
    kept, unprotected = protect.decide(
        roots, list(asked.protect), git_writable=asked.git_writable, make=not asked.look_only
    )
    mounted, masks, unmountable = submounts.decide(roots, kept, hidden)
    listening = sockets.judge([root for root in roots if not _reserved(root)], hidden=tuple(path for _, path in masks))
    start, refusal = _start(roots, asked.cwd)
    found = Filesystem(**kept.as_dict(), roots=tuple(roots), cwd=start, mounted=mounted, hidden=masks)
    return found, [*refusals, *listening, *unprotected, *unmountable, *refusal]


def _roots(asked: Asked, forbidden: tuple[tuple[str, str, bool], ...]) -> tuple[list[Root], list[Refusal]]:
    paths = [_Path(flag=FLAG[READ], access=READ, text=text) for text in asked.read]
    paths += [_Path(flag=FLAG[NOEXEC], access=NOEXEC, text=text) for text in asked.noexec]
    paths += [_Path(flag=FLAG[WRITE], access=WRITE, text=text) for text in asked.write]
    roots: list[Root] = []
    refusals: list[Refusal] = []
    for one in paths:
        root, refusal = _resolve(one, asked.granted)
        if root is None:
            refusals += refusal
            continue
        refusals += _judge(one, root, forbidden)
        if root not in roots:
            roots.append(root)
    return roots, refusals


def writable(
    flag: str, text: str, *, forbidden: tuple[tuple[str, str, bool], ...]
) -> tuple[Root | None, list[Refusal]]:
    """Return a directory that another flag than `--write` gives the card for writing, judged as a write root is."""
    one = _Path(flag=flag, access=WRITE, text=text)
    root, refusals = _resolve(one)
    return root, [*refusals, *(_judge(one, root, forbidden) if root else [])]


def _resolve(one: _Path, granted: tuple[str, ...] = ()) -> tuple[Root | None, list[Refusal]]:
    shown = f"{one.flag} {one.text!r}"
    wrong = misspelt(one.flag, one.text)
    if wrong:
        return None, wrong
    try:
        path = os.path.realpath(one.text, strict=True)
        found = os.stat(path)
    except OSError as error:
        return None, [Refusal("path-missing", f"{shown}: {os.strerror(error.errno or 0)}")]
    if unprintable(path):
        return None, [Refusal("bad-path", f"{shown} leads to a path with a control character or one that is not UTF-8")]
    directory = stat.S_ISDIR(found.st_mode)
    file = one.access != WRITE or one.text in granted
    if not directory and not (stat.S_ISREG(found.st_mode) and file):
        wanted = "a directory or a regular file" if file else "a directory"
        return None, [Refusal("path-kind", f"{shown} is not {wanted}")]
    return Root(access=one.access, path=path, directory=directory, device=found.st_dev, inode=found.st_ino), []


def _judge(one: _Path, root: Root, forbidden: tuple[tuple[str, str, bool], ...]) -> list[Refusal]:
    shown = f"{one.flag} {one.text!r}"
    if _reserved(root):
        return [Refusal("path-reserved", f"{shown}: {root.path} is the card's own", "name a directory below it")]
    if one.access != WRITE:
        return []
    held = [what for path, what, _ in forbidden if _holds(root, path)]
    within = [what for path, what, below in forbidden if below and _within(root, path) and what not in held]
    return [
        *(Refusal("path-too-wide", f"{shown} is or holds {what}", "name the work directory itself") for what in held),
        *(Refusal("path-too-wide", f"{shown} lies in {what}", "name the work directory itself") for what in within),
    ]


def _reserved(root: Root) -> bool:
    return root.path in _RESERVED_EXACT or any(_under(root.path, reserved) for reserved in _RESERVED)


def _under(path: str, top: str) -> bool:
    return path == top or path.startswith(top + "/")


def _holds(root: Root, path: str) -> bool:
    """Return whether `path` is the root or lies below it, by identity."""
    return (root.device, root.inode) in ancestors(path)


def _within(root: Root, path: str) -> bool:
    """Return whether the root lies below `path`, by identity."""
    try:
        found = os.stat(path)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) in ancestors(root.path)


def _contradictions(roots: list[Root]) -> list[Refusal]:
    """One path with two accesses: the wider would silently win."""
    seen: dict[str, str] = {}
    refusals: list[Refusal] = []
    for root in roots:
        other = seen.setdefault(root.path, root.access)
        if other != root.access:
            text = f"{root.path} is asked for with both {FLAG[other]} and {FLAG[root.access]}"
            refusals.append(Refusal("path-contradiction", text, "give it one access"))
    return refusals


def _start(roots: list[Root], cwd: str | None) -> tuple[str, list[Refusal]]:
    """Return the working directory: `--cwd`, else the first write root, else the card's HOME."""
    if cwd is None:
        first = next((root.path for root in roots if root.access == WRITE), HOME)
        return first, []
    wrong = misspelt("--cwd", cwd)
    if wrong:
        return HOME, wrong
    path = cwd if cwd == HOME else os.path.realpath(cwd)
    if path == HOME or (any(_under(path, private) for private in PRIVATE) and not os.path.isdir(path)):
        return path, []
    holders = set(ancestors(path))
    if not any((root.device, root.inode) in holders for root in roots if root.directory):
        hint = "name it, or a directory above it, with --read or --write"
        return HOME, [Refusal("cwd-outside", f"--cwd {cwd!r} is outside everything the card may reach", hint)]
    if not os.path.isdir(path):
        return HOME, [Refusal("path-kind", f"--cwd {cwd!r} is not a directory")]
    return path, []
