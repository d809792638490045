"""Finding the runs that nobody answers for any more, and undoing them: `card gc`, and what the sweep starts.

The rule: what is judged (`launcher.life.orphans`) is judged under the directory's lock, and the lock is kept until it
is undone.
"""

import os

from launcher.life import orphans, runs
from launcher.life.containers import Container, Containers, Unknown
from launcher.life.undo import undo
from launcher.run import directory
from launcher.run.perform import find_podman
from launcher.value import Value


class Finding(Value):
    """One run that needs undoing, or that something is left of: its id, why, and what is left (empty: nothing)."""

    run: str
    why: str
    undone: bool
    left: tuple[str, ...] = ()


def collect(*, dry: bool = False) -> list[Finding]:
    """Undo every run that nobody answers for, and return what was found; with `dry` only look.

    Two at once, and cards that start meanwhile, do not get in each other's way. Raises Refused without a podman.
    """
    containers = Containers(find_podman(), dict(os.environ))
    found = [one for path in runs.directories() if (one := _collect(path, containers, dry=dry))]
    try:
        strays = [one for one in containers.strays() if _stray(one)]
    except Unknown as error:
        return [*found, Finding(run="-", why="podman could not list its containers", undone=False, left=(str(error),))]
    return [*found, *(_remove(one, containers, dry=dry) for one in strays)]


def _collect(path: str, containers: Containers, *, dry: bool) -> Finding | None:
    run = directory.take(path, wait=False)
    if run is None:
        return None
    try:
        why = orphans.why(path, gone=lambda run: containers.of(run.run, run.path, ids=run.containers) is None)
        if why is None:
            return None
        name = os.path.basename(path)
        if dry:
            return Finding(run=name, why=why, undone=False)
        left = undo(run, containers)
        return Finding(run=name, why=why, undone=not left, left=tuple(left))
    finally:
        run.let_go()


def _stray(container: Container) -> bool:
    """Return whether a container's run has no directory, where this user's runs have theirs."""
    top, _, name = container.directory.rpartition("/")
    return name == container.run and top in directory.parents() and not os.path.lexists(container.directory)


def _remove(container: Container, containers: Containers, *, dry: bool) -> Finding:
    why = "its container was left without a run directory"
    if dry:
        return Finding(run=container.run, why=why, undone=False)
    try:
        containers.remove(container.id)
    except Unknown as error:
        return Finding(run=container.run, why=why, undone=False, left=(str(error),))
    return Finding(run=container.run, why=why, undone=True)
