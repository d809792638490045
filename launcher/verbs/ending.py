"""A run's end: asked for, waited for, and the status it came to.

The status is the kept receipt's, which is written before the run's launcher ends. The rule: what is signalled and
waited for is the process that answers for the run, by a pidfd (pidfd_open(2)), so a process id that was used again is
no one's; and a run is over when its directory is gone, for that goes last.
"""

import os
import select
import signal
import time

from launcher.fs import searched
from launcher.life import identity, runs
from launcher.life.identity import Identity
from launcher.life.runs import Ended, Run
from launcher.run import directory
from launcher.value import Value
from oci.refusal import EXIT_REFUSED, Refusal, Refused

# Whoever cleans up after a launcher that was killed keeps the receipt a moment later.
_RECEIPT_SECONDS = 10.0
# A card-run writes its record as soon as it has made its directory.
_RECORD_SECONDS = 1.0
_STEP = 0.02


class End(Value):
    """How a run ended: the worker's status, None where nobody was there to see it, and the receipt's word for it."""

    run: str
    status: int | None
    how: str

    @property
    def code(self) -> int:
        """Return the exit status that stands for it: the worker's, or that of a run nobody answered for."""
        return EXIT_REFUSED if self.status is None else self.status


def recorded(run: Run) -> Run:
    """Return the run with its record, waiting a moment for one that has none yet; as it is when none comes."""
    deadline = time.monotonic() + _RECORD_SECONDS
    while run.record is None and time.monotonic() < deadline:
        time.sleep(_STEP)
        run = runs.look(run.path) or run
    return run


def ask(run: Run) -> None:
    """Ask who answers for a run to end it; a card-run that Ctrl-Z stopped hears it when it is let go on (signal(7))."""
    owner = _owner(run)
    if owner is None:
        return
    for number in (signal.SIGTERM, signal.SIGCONT):
        identity.send(owner, number)


def _owner(run: Run) -> Identity | None:
    """Return who answers for a run, in this boot: a process of an earlier one has nothing but its numbers in common."""
    return run.record.launcher if run.record is not None and run.record.owned else None


def cleared(run: Run, *, seconds: float) -> list[str] | None:
    """Wait until nothing is left of a run that nobody answers for any more, undoing it as `card gc` does.

    Returns what is left in words, empty when nothing is; None when others are still at it after so many seconds.
    Raises Refused without a podman.
    """
    deadline = time.monotonic() + seconds
    while _there(run):
        left = _undone(run)
        if left is not None:
            return left
        if time.monotonic() > deadline:
            return None
        time.sleep(_STEP)
    return []


def _there(run: Run) -> bool:
    """Return whether the directory is this run's still, and not a later one's of its id."""
    found = runs.look(run.path)
    return found is not None and (found.record is None or run.record is None or found.record == run.record)


def _undone(run: Run) -> list[str] | None:
    """Undo a run and return what is left; None when its directory is held, or may be somebody's yet."""
    taken = directory.take(run.path, wait=False)
    if taken is None:
        return None
    # Slow to import, and a card that ends when asked has nothing to undo.
    from launcher.life import gc
    from launcher.life.containers import Containers
    from launcher.run.perform import find_podman

    try:
        found = gc.settle(taken, Containers(find_podman(), searched.environment()))
        return None if found is None else list(found.left)
    finally:
        taken.let_go()


def discarded(run: Run) -> list[str] | None:
    """Undo a card that was prepared and that nobody has started, and return what is left in words: empty for nothing.

    None when it was started meanwhile, or another is cleaning up. Raises Refused without a podman.
    """
    taken = directory.take(run.path, wait=False)
    if taken is None:
        return None if _there(run) else []
    from launcher.life import undo
    from launcher.life.containers import Containers
    from launcher.run.perform import find_podman

    try:
        found = runs.look(run.path)
        if found is None or found.record != run.record or found.state != runs.PREPARED:
            return None
        return undo.undo(taken, Containers(find_podman(), dict(os.environ)))
    finally:
        taken.let_go()


def gone(run: Run, *, seconds: float | None = None) -> bool:
    """Wait until nobody answers for a run any more, at most so long; return whether that is so."""
    owner = _owner(run)
    held = identity.hold(owner) if owner else None
    if held is None:
        return True
    try:
        poll = select.poll()
        poll.register(held, select.POLLIN)
        return bool(poll.poll(None if seconds is None else max(0, seconds * 1000)))
    finally:
        os.close(held)


def of(run: Run | Ended) -> End:
    """Wait for a run's end and return it; raises Refused (`no-receipt`) when none was kept."""
    if isinstance(run, Ended):
        found = _end(run, started=None)
    else:
        gone(run)
        found = _kept(run)
    if found is None:
        there = isinstance(run, Run) and _there(run)
        text = "nobody answers for it any more, and it was not cleaned up" if there else "it has ended"
        raise Refused([Refusal("no-receipt", f"no receipt of {run.run} was kept: {text}", "card gc" if there else "")])
    return found


def _kept(run: Run) -> End | None:
    """Return the end of this very run, and not of an earlier one of that id."""
    # Of a run that podman started, nobody keeps one by himself.
    patience = 0 if run.record is not None and run.record.launcher is None else _RECEIPT_SECONDS
    deadline = time.monotonic() + patience
    started = run.record.started if run.record else None
    while True:
        for one in runs.ended():
            if one.run == run.run and (found := _end(one, started=started)):
                return found
        if time.monotonic() > deadline:
            return None
        time.sleep(_STEP)


def _end(one: Ended, *, started: float | None) -> End | None:
    receipt = one.receipt()
    if receipt is None or (started is not None and receipt.get("started") != started):
        return None
    return End(run=one.run, status=receipt.get("exit_status"), how=str(receipt.get("how", "")))
