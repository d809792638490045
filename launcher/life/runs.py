"""The runs of this user: those that live, each with its state, and those that ended, each with its kept receipt.

Read from the run directories and the kept receipts alone; podman is not asked. The rule: looking changes nothing, and
a file that another process is just writing or removing is no failure.
"""

import os

from hooks import rundir
from hooks.egress import is_run_id
from launcher.life import kept, record
from launcher.life.record import Record
from launcher.run import command, directory
from launcher.run.directory import RELEASED, WARM_CARD
from launcher.suppress import suppress
from launcher.value import Value
from oci import strictjson

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any
else:
    Any = object

PREPARED = "prepared"
"""Made ready and never started: it has no launcher."""
WARM = "warm"
"""A card of the pool that nobody has taken (`card pool`)."""
UNATTENDED = "unattended"
"""Prepared, and started by plain podman: nobody of ours answers for it."""
STARTING = "starting"
RUNNING = "running"
"""The worker was released."""
ENDING = "ending"
"""The container is gone; its account is being written."""
ORPHANED = "orphaned"
"""Its launcher is gone, in this boot or an earlier one: `card gc` cleans up after it."""


class Run(Value):
    """A run whose directory is there: its id, directory, state and record (None when that is not readable yet)."""

    run: str
    path: str
    state: str
    record: Record | None

    def read(self, name: str) -> dict[str, Any] | None:
        """Return one of the run's JSON files, `hook.json` or `ledger.json` say; None when it is not there or whole."""
        return _object(f"{self.path}/{name}")

    @property
    def container(self) -> str | None:
        """Return the container's id, or None before podman has made one."""
        return next(iter(self.containers), None)

    @property
    def containers(self) -> list[str]:
        """Return the ids that podman, and the hook that it started, recorded of the container: none, one, the same."""
        found = [_container_id(_text(f"{self.path}/{command.CID}"))]
        found.append(_container_id((self.read(rundir.HOOK) or {}).get("facts", {}).get("container")))
        return list(dict.fromkeys(one for one in found if one))


class Ended(Value):
    """A run that ended: its id, when its receipt was kept (seconds since the epoch), and where."""

    run: str
    kept: float
    path: str

    def receipt(self) -> dict[str, Any] | None:
        """Return the kept receipt; None when it was removed meanwhile."""
        return _object(self.path)


def living() -> list[Run]:
    """Return every run that has a directory, oldest first; none when there is no runtime directory."""
    found = [run for path in directories() if (run := look(path))]
    return sorted(found, key=lambda run: (run.record.started if run.record else 0.0, run.run))


def directories() -> list[str]:
    """Return every run directory of this user, wherever its runtime directory was when the run started."""
    found: list[str] = []
    for top in directory.parents():
        with suppress(OSError):
            found += [f"{top}/{name}" for name in sorted(os.listdir(top)) if is_run_id(name)]
    return found


def ended() -> list[Ended]:
    """Return every run whose receipt is kept, newest first."""
    return [Ended(run=run, kept=when, path=kept.path(run)) for run, when in kept.listed()]


def find(run: str) -> Run | Ended | None:
    """Return the run of that id, a living one before an ended one; None when there is none."""
    if not is_run_id(run):
        return None
    living_one = next((one for top in directory.parents() if (one := look(f"{top}/{run}"))), None)
    return living_one or next((one for one in ended() if one.run == run), None)


def look(path: str) -> Run | None:
    """Return the run of a run directory, or None when that is gone."""
    try:
        there = set(os.listdir(path))
    except OSError:
        return None
    found = read_record(path)
    return Run(run=os.path.basename(path), path=path, state=_state(found, there), record=found)


def read_record(path: str) -> Record | None:
    """Return the record in a run directory; None when there is none, or none that can be read."""
    try:
        with open(f"{path}/{directory.RECORD}", "rb") as file:
            return record.parse(file.read())
    except (OSError, ValueError):
        return None


def _container_id(text: object) -> str | None:
    """Return a container's id, or None for what is none: half written, or no text."""
    return text if isinstance(text, str) and len(text) == 64 and set(text) <= set("0123456789abcdef") else None


def _text(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            return file.read(65).decode("ascii", "replace").strip()
    except OSError:
        return None


def _state(found: Record | None, there: set[str]) -> str:
    if found is None:
        return STARTING
    if found.launcher is None:
        return _prepared(there)
    if not found.owned:
        return ORPHANED
    if WARM_CARD in there:
        return WARM
    if rundir.LEDGER in there:
        return ENDING
    return RUNNING if RELEASED in there else STARTING


def _prepared(there: set[str]) -> str:
    """Return the state of a run without a launcher: the hook pins its namespace, and lets go of it at the end."""
    if rundir.LEDGER in there:
        return ENDING
    return UNATTENDED if rundir.NETNS in there else PREPARED


def _object(path: str) -> dict[str, Any] | None:
    try:
        with open(path, "rb") as file:
            value = strictjson.parse(file.read())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None  # pyright: ignore[reportUnknownVariableType]
