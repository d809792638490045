"""What of a writable git checkout runs on the bench later, and so is read-only in a card.

git runs hooks and reads commands out of config files (githooks(5), git-config(1)), and a `.git` that is a file says
where both are. A checkout's own, its submodules' and its linked worktrees' are found here, a bare repository's too.

The rule: an earlier worker may have written all of this but what was closed to it. So no symbolic link is followed,
nothing but a regular file is opened, little of it is read, and what cannot be kept from the worker is refused.
"""

import os
import stat

from launcher.fs.paths import below
from oci.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_CLOSED = ("hooks", "config", "config.worktree", "commondir")
# A link in place of one of these cannot be kept: a mount lies on what it points to, and the link can be replaced.
_NO_LINKS = (*_CLOSED, "modules", "worktrees")
_DEPTH = 8
_NOT_SEARCHED = frozenset(("hooks", "info", "logs", "objects", "refs"))
# Each is a handful of mounts, and the worker can make as many as it likes.
_MOST = 200
_READ_LIMIT = 1 << 20
_HINT = "mend it on the bench, or pass --git-writable"


class Closed:
    """What one writable root has to close: `paths` as they are, `refusals` for what cannot be."""

    __slots__ = ("paths", "refusals")

    def __init__(self, paths: list[str], refusals: list[Refusal]) -> None:
        self.paths = paths
        self.refusals = refusals


def closed(root: str, *, make: bool) -> Closed:
    """Return what to make read-only in a writable root; nothing when it is no checkout.

    With `make`, hooks and config that are not there are made, empty: else the worker could make its own.
    """
    paths: list[str] = []
    refusals: list[Refusal] = []
    dot = f"{root}/.git"
    if os.path.islink(dot):
        refusals.append(_refusal(dot, "is a symbolic link"))
    elif os.path.isfile(dot):
        paths.append(dot)
    tops = [root] if _is_git_directory(root) else []
    # A `.git` that git would not take yet counts too: the worker could add what it lacks.
    tops += [dot] if os.path.isdir(dot) and not os.path.islink(dot) else []
    for top in tops:
        found = _checkout(root, top, make=make)
        paths += found.paths
        refusals += found.refusals
    return Closed(paths, refusals)


def _refusal(path: str, why: str) -> Refusal:
    return Refusal("git-unprotectable", f"{path} {why}: the worker could choose what git runs on the bench", _HINT)


def _is_git_directory(path: str) -> bool:
    """Return whether git would take this for a repository (gitrepository-layout(5))."""
    return all(os.path.lexists(f"{path}/{name}") for name in ("HEAD", "objects", "refs"))


def _checkout(root: str, top: str, *, make: bool) -> Closed:
    directories = [top, *_below(top)]
    if len(directories) > _MOST:
        return Closed([], [_refusal(top, f"holds more than {_MOST} git directories")])
    found = Closed([], [])
    for directory in directories:
        _directory(root, directory, found, make=make)
    if top != root and os.path.lexists(f"{top}/commondir"):
        found.refusals.append(_refusal(f"{top}/commondir", "sends git to other hooks and another config"))
    trees = filter(None, (_worktree(directory) for directory in directories[1:]))
    files = [f"{tree}/.git" for tree in trees if below(tree, root)]
    found.paths += [path for path in files if os.path.isfile(path) and os.path.realpath(path) == path]
    return found


def _below(top: str) -> list[str]:
    """Return the git directories of linked worktrees and submodules, nested ones included; no link is followed."""
    found: list[str] = []
    for folder in (f"{top}/worktrees", f"{top}/modules"):
        for place, directories, files in () if os.path.islink(folder) else os.walk(folder):
            if "HEAD" in files:
                found.append(place)
            if len(found) > _MOST:
                return found
            if place.count("/") - top.count("/") > _DEPTH:
                directories.clear()
            directories[:] = sorted(set(directories) - _NOT_SEARCHED)
    return found


def _directory(root: str, directory: str, found: Closed, *, make: bool) -> None:
    """Close one git directory, and whatever of the root its config names as hooks or as more config."""
    config = _read(f"{directory}/config")
    if make:
        _make(directory, config)
    links = [f"{directory}/{name}" for name in _NO_LINKS if os.path.islink(f"{directory}/{name}")]
    found.refusals += [_refusal(path, "is a symbolic link") for path in links]
    there = [f"{directory}/{name}" for name in _CLOSED if os.path.lexists(f"{directory}/{name}")]
    found.paths += [path for path in there if path not in links]
    for path in _named(root, directory, config):
        if os.path.realpath(path) != path or not os.path.exists(path):
            found.refusals.append(_refusal(path, "is named by the config, and is missing or leads elsewhere"))
        else:
            found.paths.append(path)


def _make(directory: str, config: str) -> None:
    """Make what git would look for and not find; harmless where that is not possible, as then no worker can either."""
    if os.path.lexists(f"{directory}/commondir"):
        return  # a linked worktree: its hooks and config are the main one's
    files = ["config", *(["config.worktree"] if "worktreeconfig" in config.lower() else [])]
    try:
        if not os.path.lexists(f"{directory}/hooks"):
            os.mkdir(f"{directory}/hooks")
        for name in files:
            if not os.path.lexists(f"{directory}/{name}"):
                os.close(os.open(f"{directory}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
    except OSError:
        return


def _named(root: str, directory: str, config: str) -> list[str]:
    """Return the paths below the root that a config names: `core.hooksPath`, and every `include.path`."""
    tree = _worktree(directory) or (os.path.dirname(directory) if directory.endswith("/.git") else directory)
    found: list[str] = []
    for section, key, value in _settings(config):
        base = {"core.hookspath": tree, "include.path": directory, "includeif.path": directory}.get(f"{section}.{key}")
        if base is not None and value:
            path = os.path.normpath(os.path.join(base, os.path.expanduser(value)))
            found += [path] if below(path, root) else []
    return found


def _settings(config: str) -> "Iterator[tuple[str, str, str]]":
    """Yield (section, key, value), the first two in lower case and without the subsection (git-config(1), "Syntax")."""
    section = ""
    for text in config.splitlines():
        line = text.strip()
        if line.startswith("["):
            head, _, line = line[1:].partition("]")
            section = head.partition(" ")[0].partition('"')[0].strip().lower()
            line = line.strip()
        key, equals, value = line.partition("=")
        if equals and key[:1] not in ("#", ";"):
            yield section, key.strip().lower(), value.strip().strip('"')


def _worktree(directory: str) -> str | None:
    """Return where a submodule's (`core.worktree`) or a linked worktree's (`gitdir`) files are, as it says itself."""
    gitdir = _read(f"{directory}/gitdir").strip()
    if gitdir:
        return os.path.dirname(gitdir)
    named = [value for section, key, value in _settings(_read(f"{directory}/config")) if (section, key) == _WORKTREE]
    return os.path.normpath(os.path.join(directory, named[-1])) if named else None


_WORKTREE = ("core", "worktree")


def _read(path: str) -> str:
    """Return the beginning of a regular file, or "" for anything else: a pipe would never answer."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        regular = stat.S_ISREG(os.fstat(fd).st_mode)
        return os.read(fd, _READ_LIMIT).decode("utf-8", "replace") if regular else ""
    finally:
        os.close(fd)
