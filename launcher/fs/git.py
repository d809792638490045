"""What of a writable git checkout runs on the bench later, and so is read-only in a card.

git runs hooks and reads commands out of config files (githooks(5), git-config(1)), and a `.git` that is a file says
where both are. A checkout's own, its submodules' and its linked worktrees' are found here; existing ones only, so that
a checkout without them is not littered.
"""

import os

_CLOSED = ("hooks", "config", "config.worktree")
_DEPTH = 8
_NOT_SEARCHED = frozenset(("hooks", "info", "logs", "objects", "refs"))


def closed(root: str) -> list[str]:
    """Return the paths to make read-only in a writable root; empty when it is no checkout."""
    dot = f"{root}/.git"
    if _plain_file(dot):
        return [dot]
    if os.path.islink(dot) or not os.path.isdir(dot):
        return []
    directories = _git_directories(dot)
    found = [path for directory in directories for path in _existing(directory)]
    trees = filter(None, (_worktree(directory) for directory in directories[1:]))
    files = [f"{tree}/.git" for tree in trees if tree.startswith(f"{root}/")]
    return found + [path for path in files if _plain_file(path) and os.path.realpath(path) == path]


def _plain_file(path: str) -> bool:
    return os.path.isfile(path) and not os.path.islink(path)


def _existing(directory: str) -> list[str]:
    paths = (f"{directory}/{name}" for name in _CLOSED)
    return [path for path in paths if os.path.exists(path) and not os.path.islink(path)]


def _git_directories(dot: str) -> list[str]:
    """Return the git directory, then its linked worktrees' and its submodules', nested ones included."""
    found = [dot]
    for folder in (f"{dot}/worktrees", f"{dot}/modules"):
        for top, directories, files in os.walk(folder):
            if "HEAD" in files:
                found.append(top)
            if top.count("/") - dot.count("/") > _DEPTH:
                directories.clear()
            directories[:] = sorted(set(directories) - _NOT_SEARCHED)
    return found


def _worktree(directory: str) -> str | None:
    """Return where a submodule's (`core.worktree`) or a linked worktree's (`gitdir`) files are, as it says itself."""
    try:
        with open(f"{directory}/gitdir", encoding="utf-8", errors="replace") as file:
            return os.path.dirname(file.read().strip())
    except OSError:
        pass
    try:
        with open(f"{directory}/config", encoding="utf-8", errors="replace") as file:
            lines = [line.strip().partition("=") for line in file]
    except OSError:
        return None
    for key, _, value in lines:
        if key.strip().lower() == "worktree":
            return os.path.normpath(os.path.join(directory, value.strip().strip('"')))
    return None
