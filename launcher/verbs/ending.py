"""Waiting for a run's end, and the status it came to: from its kept receipt, which is written before its launcher ends.

The rule: waited for is the process that answers for the run, by a pidfd (pidfd_open(2)), so nothing is polled and a
process id that was used again is no one's.
"""

import os
import select
import time

from launcher.life import identity, runs
from launcher.life.runs import Ended, Run
from launcher.value import Value
from oci.refusal import EXIT_REFUSED, Refusal, Refused

# Whoever cleans up after a launcher that was killed keeps the receipt a moment later.
_RECEIPT_SECONDS = 10.0
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


def gone(run: Run, *, seconds: float | None = None) -> bool:
    """Wait until nobody answers for a run any more, at most so long; return whether that is so."""
    owner = run.record.launcher if run.record else None
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
        raise Refused([Refusal("no-receipt", f"{run.run} has ended, and no receipt of it was kept", "card gc")])
    return found


def _kept(run: Run) -> End | None:
    """Return the end of this very run, and not of an earlier one of that id."""
    deadline = time.monotonic() + _RECEIPT_SECONDS
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
