"""Which runs nobody answers for any more. Reads the run directory alone, and imports nothing slow: each start looks.

The rule: a run is somebody's as long as its directory is locked, which the caller sees to, or the card-run of its
record lives; and a run that was prepared is left for a day, or while podman has its container.
"""

import os
import time

from hooks import rundir
from launcher.life import identity, runs
from launcher.run import directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PREPARED_SECONDS = 25 * 3600
"""How long a prepared run that was not started is left alone: an hour longer than it may be started."""
YOUNG_SECONDS = 60
"""How long a directory without a record is left alone: its card-run may be about to write it."""
# What card-run makes before the record: a directory that holds anything else without a record is no run of ours.
_FIRST = frozenset({"card", "plan.lock", directory.RECORD})


def why(path: str, *, gone: "Callable[[runs.Run], bool] | None" = None) -> str | None:
    """Return why nobody answers for a run directory whose lock is free, or None when somebody may yet.

    `gone` says whether podman has no container of a run; without it a prepared run that was started is somebody's.
    """
    found = runs.look(path)
    if found is None:
        return None
    if found.record is None:
        return _without_record(path)
    if found.record.launcher is None:
        return _prepared(found, found.record.started, gone)
    if found.record.owned:
        return None
    same = found.record.boot_id == identity.boot_id()
    return "its card-run is gone" if same else "it is of an earlier boot"


def _without_record(path: str) -> str | None:
    try:
        old = time.time() - os.stat(path).st_mtime > YOUNG_SECONDS
        return "its card-run was gone before it began" if old and _FIRST.issuperset(os.listdir(path)) else None
    except FileNotFoundError:
        return None


def _prepared(found: runs.Run, started: float, gone: "Callable[[runs.Run], bool] | None") -> str | None:
    """Judge a run that plain podman starts: over when its container is gone, or when it was never started in time."""
    there = set(os.listdir(found.path))
    if rundir.LEDGER in there and rundir.NETNS not in there:
        return "it was prepared, and has run"
    if rundir.HOOK in there:
        return "it was prepared, and its container is gone" if gone is not None and gone(found) else None
    late = time.time() - started > PREPARED_SECONDS
    return "it was prepared and not started in time" if late else None
