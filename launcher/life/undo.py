"""Undoing a run that nobody answers for any more: its container, its pins and tables, its directory; and its receipt.

The rule: whoever undoes holds the directory's lock, works by identities that were recorded (the container's id and
annotations, the namespace's inode) and never by a process id, and lets the record go last: as long as something is
left, it says whose that is. Every step may find its work done already.
"""

import os
import time

from hooks import rundir
from launcher import runtime
from launcher.fs import aftermath
from launcher.life import kept, remnants, runs
from launcher.life.containers import Containers, Unknown
from launcher.life.record import Record
from launcher.run.directory import RELEASED, RunDirectory
from launcher.run.receipt import ABANDONED, SCHEMA, UNATTENDED
from launcher.suppress import suppress
from oci import annotations
from oci.refusal import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any
else:
    Any = object


KILLED = 137
_DAY = 86400


def undo(run: RunDirectory, containers: Containers, *, tell: "Callable[[str], object]" = str) -> list[str]:
    """Undo a run whose lock we hold, and let go of it; return what is left, in words: empty when nothing is.

    What podman cannot say for sure counts as left. What the worker may have left on the bench is looked for as at any
    end of a run, and told, which goes nowhere where nobody is to hear it.
    """
    name = os.path.basename(run.path)
    found = runs.look(run.path)
    try:
        status, oom = end(run, containers)
        release(run, containers)
    except Unknown as error:
        run.let_go()
        return [f"{name}: {error}"]
    if found is not None and found.record is not None and _ran(run, found.record):
        notes = _aftermath(run)
        ending = {"exit_status": status, "oom": oom or run.read(rundir.OOM) is not None, "notes": notes}
        _keep(found, found.record, ending)
        for line in notes:
            tell(f"NOTE {line}")
    return [f"{name}: {line}" for line in run.remove()]


def _ran(run: RunDirectory, record: Record) -> bool:
    """Return whether the worker may have run: it was released, or is a prepared card's, whose hook vouched for it."""
    vouched = record.launcher is None and run.read(f"{rundir.CARD}/{rundir.PROOF}") is not None
    return vouched or run.read(RELEASED) is not None


def _aftermath(run: RunDirectory) -> list[str]:
    """Return what must not be trusted after the run (`launcher.fs.aftermath`); what was planted is removed."""
    data = run.read(aftermath.NAME)
    try:
        return aftermath.look(aftermath.parse(data)) if data else []
    except ValueError:
        return []  # a record of another version's


def release(run: RunDirectory, containers: Containers) -> None:
    """Do what the poststop hook does, where it did not: read the ledger, take outer tables away, let go of the pins.

    It runs where podman's mounts are, and compares the namespace's inode with the recorded one. Raises Unknown.
    """
    there = set(os.listdir(run.path))
    if not there & {rundir.NETNS, rundir.OUTER}:
        return
    name = os.path.basename(run.path)
    notes = {annotations.RUN: name, annotations.DIRECTORY: run.path}
    # The bundle is podman's and gone, or about to be; nothing of it is needed.
    state: dict[str, object] = {"id": f"card-{name}", "status": "stopped", "bundle": run.path, "annotations": notes}
    try:
        argv = (*runtime.ensure().hook_argv, "poststop")
    except Refused as error:
        raise Unknown(str(error)) from None
    containers.hook(argv, state)


def sweep(run: RunDirectory, containers: Containers, *, killed: bool = True) -> None:
    """Remove what a start that was refused may have left; what cannot be is for the next cleaner: the record stays.

    `killed` is whether podman was: it may then have left what nothing in the run directory tells of.
    """
    found = runs.look(run.path)
    if found is None:
        return
    made = found.containers or rundir.HOOK in os.listdir(run.path)
    with suppress(Unknown):
        if not made and not (killed and containers.made(os.path.basename(run.path))):
            return
        end(run, containers)
        release(run, containers)


def end(run: RunDirectory, containers: Containers) -> tuple[int | None, bool]:
    """End and remove the container, and all of it that podman does not know of.

    Returns the status that was recorded when it ended (None when there is no record), and whether podman says that
    memory ran out. Raises Unknown.
    """
    name, found = os.path.basename(run.path), runs.look(run.path)
    ids = found.containers if found else []
    container = containers.of(name, run.path, ids=ids)
    if container is not None:
        containers.remove(container.id)
        ids = list(dict.fromkeys((*ids, container.id)))
    elif not ids:
        containers.discard(name)  # podman may have been killed before it knew of what it had begun
    for one in ids:
        if not containers.has(one):  # one that podman still has is another's, whatever was recorded
            remnants.clear(one, containers)
    if container is not None and container.ended and container.exit_code >= 0:
        return container.exit_code, container.oom
    # What is over within one second of the clock is still over after it began.
    since = found.record.started - 1 if found and found.record else time.time() - _DAY
    status = containers.died(ids[0], since=since) if ids else None
    if container is None:
        return status, False
    # One that podman had lost track of, or that still ran, was killed just now.
    return KILLED if status is None else status, container.oom


def _keep(found: runs.Run, record: Record, ending: dict[str, Any]) -> None:
    """Keep a receipt that says how the run ended, unless the run's own card-run had kept one before it went."""
    earlier = next((one.receipt() for one in runs.ended() if one.run == record.run), None)
    if earlier is not None and earlier.get("started") == record.started:
        return
    content: dict[str, Any] = {
        "schema": SCHEMA,
        **{name: value for name, value in record.as_dict().items() if name not in {"boot_id", "launcher"}},
        "ended": time.time(),
        "how": ABANDONED if record.launcher else UNATTENDED,
        "hook": found.read(rundir.HOOK) or {},
        "ledger": found.read(rundir.LEDGER),
        **ending,
    }
    try:
        kept.keep(record.run, content)
    except OSError:
        return  # nobody is there to be told; the run is undone all the same
