"""How a command ended, and the failures that are no command's end, each with a type of its own."""

from typing import Any

from launcher.value import Value

_SIGNAL_BASE = 128
EXITED, TIMED_OUT, OUT_OF_MEMORY, KILLED = "exited", "timed-out", "out-of-memory", "killed"


class Result(Value):
    """How one command ended, and what its card really enforced.

    `status` is the command's own, 128 + N when signal N ended it, 124 after its timeout. `stdout` and `stderr` are what
    was kept of them: nothing, where the caller read the streams itself. `truncated`: more came than was kept.
    `how` it ended: `exited` (by itself or by a signal), `timed-out`, `out-of-memory`, or `killed` where `kill` left
    nobody to account for the run; `receipt` is then None. `notes` are card-run's own lines, what was denied among them.
    `lifetime_containment`: the kernel ended, or would have, whatever of the command outlived its card-run.
    """

    run_id: str
    command: tuple[str, ...]
    status: int
    stdout: bytes = b""
    stderr: bytes = b""
    truncated: bool = False
    how: str = KILLED
    notes: tuple[str, ...] = ()
    lifetime_containment: bool = False
    receipt: dict[str, Any] | None = None

    @property
    def ok(self) -> bool:
        """Return whether the command ended by itself, with status 0."""
        return self.status == 0 and self.how == EXITED

    @property
    def signal(self) -> int | None:
        """Return the number of the signal that the status speaks of, None when it speaks of none.

        A command that ends with such a status by itself cannot be told from one that a signal ended.
        """
        return self.status - _SIGNAL_BASE if self.status > _SIGNAL_BASE else None

    @property
    def timed_out(self) -> bool:
        """Return whether it was ended because its time was over."""
        return self.how == TIMED_OUT

    @property
    def out_of_memory(self) -> bool:
        """Return whether the kernel ended it because its memory was."""
        return self.how == OUT_OF_MEMORY

    @property
    def guarantees(self) -> dict[str, bool]:
        """Return which guarantees this run measured, none without a receipt."""
        return dict(self.receipt["guarantees"]) if self.receipt is not None else {}


def how(receipt: dict[str, Any] | None) -> str:
    """Return how a run ended, by its receipt, or for want of one."""
    if receipt is None:
        return KILLED
    if receipt["timed_out"]:
        return TIMED_OUT
    return OUT_OF_MEMORY if receipt["oom"] else EXITED


class CardLostError(Exception):
    """card-run ended without saying how the run ended: it was killed, or has a defect. The card has ended with it.

    `status` is card-run's own, negative for a signal, None where this program waits for every child of its own, or
    ignores SIGCHLD, and nobody can know; `said` is the end of its standard error.
    """

    def __init__(self, run_id: str, status: int | None, said: str) -> None:
        self.run_id = run_id
        self.status = status
        self.said = said
        how = f"with {status}" if status is not None else "with a status that is not known"
        super().__init__(f"card-run ended {how} and gave no account of the run {run_id or '(no id yet)'}: {said}")


class TooManyExecutorsError(Exception):
    """The set has `max_executors` already: close one."""


class ClosedError(Exception):
    """The executor, or the whole set, is closed."""
