"""Where podman is looked for: the folders of PATH (environ(7)), which may lie in what a card can write.

A virtual environment's `bin` or `node_modules/.bin` of the workspace often stands first. The rule: a podman that the
worker could replace is not run, and one that it put before the real one is taken away (`launcher.fs.aftermath`).
"""

import os

from launcher.fs.paths import WRITE, Root, ancestors

_NAME = "podman"


def podman() -> str | None:
    """Return podman's absolute path from PATH, or None when there is none."""
    return next(filter(runs, map(_in, _folders())), None)


def runs(path: str) -> bool:
    """Return whether a file is there that would be run."""
    return os.path.isfile(path) and os.access(path, os.X_OK)


def before_podman(roots: tuple[Root, ...]) -> tuple[str, ...]:
    """Return every path in a write root at which a podman would be found before the one that is found now."""
    if not any(root.access == WRITE for root in roots):
        return ()
    places, found = [_in(folder) for folder in _folders()], podman()
    before = places[: places.index(found)] if found else places
    return tuple(path for path in before if _writable(os.path.dirname(path), roots))


def _folders() -> list[str]:
    return [folder for folder in os.get_exec_path() if folder.startswith("/")]


def _in(folder: str) -> str:
    return f"{folder}/{_NAME}"


def _writable(folder: str, roots: tuple[Root, ...]) -> bool:
    holders = set(ancestors(folder))
    return any(root.access == WRITE and (root.device, root.inode) in holders for root in roots)
