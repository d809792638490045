"""Finding the runs that nobody answers for any more, and undoing them: `card gc`, and what the sweep starts.

The rule: what is judged (`launcher.life.orphans`) is judged under the directory's lock, and the lock is kept until it
is undone.
"""

import os
import time

from launcher.fs import searched
from launcher.life import lost, orphans, runs, services
from launcher.life.containers import Container, Containers, Storage, Unknown
from launcher.life.undo import undo
from launcher.pool import seat
from launcher.run import command, directory, output
from launcher.run.directory import RunDirectory
from launcher.run.perform import find_podman
from launcher.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

CREATION_SECONDS = 600
"""How long storage without a container is left alone when no run has it: some podman may be about to make it one."""


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
    containers = Containers(find_podman(), searched.environment())
    found = [one for path in runs.directories() if (one := _collect(path, containers, dry=dry))]
    found += [_end_service(one, dry=dry) for one in services.left()]
    found += _pool(dry=dry)
    try:
        strays, storage = containers.strays()
    except Unknown as error:
        return [*found, Finding(run="-", why="podman could not list its containers", undone=False, left=(str(error),))]
    found += [_remove(one, containers, dry=dry) for one in strays if _stray(one)]
    found += [_discard(one, containers, dry=dry) for one in storage if _begun(one)]
    told = {one.run for one in found}
    return [*found, *(_account(one, dry=dry) for one in lost.outputs() if one not in told)]


def _collect(path: str, containers: Containers, *, dry: bool) -> Finding | None:
    run = directory.take(path, wait=False)
    if run is None:
        return None
    try:
        return settle(run, containers, dry=dry)
    finally:
        run.let_go()


def settle(run: RunDirectory, containers: Containers, *, dry: bool = False) -> Finding | None:
    """Undo one run whose lock we hold, and return what was found; None when somebody answers for it, or may yet."""
    why = orphans.why(run.path, gone=lambda run: containers.of(run.run, run.path, ids=run.containers) is None)
    if why is None:
        return None
    name = os.path.basename(run.path)
    if dry:
        return Finding(run=name, why=why, undone=False)
    left = undo(run, containers, tell=output.say)
    return Finding(run=name, why=why, undone=not left, left=tuple(left))


def _stray(container: Container) -> bool:
    """Return whether a container's run has no directory, where this user's runs have theirs."""
    top, _, name = container.directory.rpartition("/")
    return name == container.run and top in directory.parents() and not os.path.lexists(container.directory)


def _remove(container: Container, containers: Containers, *, dry: bool) -> Finding:
    finding = Finding(run=container.run, why="its container was left without a run directory", undone=False)
    if dry:
        return finding
    lost.keep(container)
    return _done(finding, lambda: containers.remove(container.id))


def _begun(storage: Storage) -> bool:
    """Return whether podman was killed while it made a container, and not at it: no run has it, and it is old."""
    run = _run_of(storage)
    here = any(os.path.lexists(f"{top}/{run}") for top in directory.parents())
    return not here and time.time() - storage.created > CREATION_SECONDS


def _run_of(storage: Storage) -> str:
    return storage.name.removeprefix(command.container(""))


def _discard(storage: Storage, containers: Containers, *, dry: bool) -> Finding:
    run = _run_of(storage)
    finding = Finding(run=run, why="podman was killed while it made its container", undone=False)
    return finding if dry else _done(finding, lambda: containers.discard(run))


def _account(run: str, *, dry: bool) -> Finding:
    if not dry:
        lost.keep_output(run)
    return Finding(run=run, why="of a detached card its output was left alone", undone=not dry)


def _end_service(place: str, *, dry: bool) -> Finding:
    finding = Finding(run="-", why=f"{place} was left by a card command that was killed", undone=False)
    if dry:
        return finding
    left = services.end(place)
    return finding.replace(undone=not left, left=tuple(left))


def _pool(*, dry: bool) -> list[Finding]:
    """Take away what a killed pool left; its cards, if any, are runs like others."""
    path = seat.clear(dry=dry) if directory.parents() else ""
    return [Finding(run="-", why=f"{path} was left by a pool that was killed", undone=not dry)] if path else []


def _done(finding: Finding, act: "Callable[[], None]") -> Finding:
    try:
        act()
    except Unknown as error:
        return finding.replace(left=(str(error),))
    return finding.replace(undone=True)
