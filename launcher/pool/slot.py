"""The session of a warm card: its podman was started ahead, its plan comes with the run that takes it.

Everything that a session does for a run it does here too, in the same order and by the same code: names are resolved
and judged, the plan gets its digest and nonce, stage 2 reports, `receipt.shortfall` has the last word. What differs is
where it comes from. The rule: nothing of the time before the taker came is used for the run but what its key says.
"""

import os
import threading
from collections.abc import Callable
from typing import Any

from hooks import rundir
from launcher.egress import own
from launcher.launch import Launch
from launcher.life.record import Record
from launcher.pool import hand
from launcher.pool.exits import Exit
from launcher.pool.hand import Hand
from launcher.pool.stale import Stale
from launcher.run.directory import RECORD, WARM_CARD
from launcher.run.session import Session, refusals_of
from oci.refusal import Refusal, Refused


class Pipes:
    """The worker's standard streams: the ends for whoever takes the card, and the ends for stage 2."""

    __slots__ = ("taker", "worker")

    def __init__(self) -> None:
        """Make them. The worker's are in the order of the descriptors that they become: 1, 2, 0."""
        out, err, into = os.pipe(), os.pipe(), os.pipe()
        self.taker = (out[0], err[0], into[1])
        self.worker = (out[1], err[1], into[0])


class Slot(Session):
    """A session that is warmed, then taken once, then carried through."""

    def warm(self, at: Hand) -> None:
        """Bring stage 2 to where it waits, behind a table that denies all; raises Refused, and the card is over."""
        self._at = at
        self._tell: Callable[..., None] | None = None
        self._drained = threading.Event()
        try:
            self._warm()
        except BaseException:
            self._abandon()
            raise

    def _warm(self) -> None:
        plan = self._finish_plan()
        try:
            self._channel.send([("nonce", plan.nonce), ("warm", "1")])
        except OSError:
            raise self._never_started() from None
        report = self._channel.receive()
        if report is None:
            raise self._never_started()
        if report.get("status") != ["warm"]:
            raise Refused(refusals_of(report))
        facts = self._hook().get("facts", {})
        if (facts.get("digest"), report.get("digest")) != (plan.digest, [plan.digest]):
            raise Refused(
                [Refusal("hook-unproven", "the hook and the proof do not both say that this plan was passed")]
            )
        self._podman.be_patient(patient=True)
        self._at.enter(hand.state(self._launch.run, self._run.path, self._launch.token, facts))
        self._exit = self._watch(facts)
        self.client = os.pidfd_open(self._podman.pid)
        self._own = own.addresses()
        self.pipes = Pipes()
        self._run.write(WARM_CARD, b"")

    def _watch(self, facts: dict[str, Any]) -> Exit | None:
        try:
            return Exit(hand.parent(facts["pid"]), facts["container"])
        except (OSError, ValueError):
            return None  # podman's client is waited for instead

    def end(self) -> None:
        """End a card that nobody took."""
        self._abandon()

    def take(self, launch: Launch, record: Record, *, started: float, tell: Callable[..., None]) -> None:
        """Become the run of whoever took the card; raises Stale when the card does not fit the bench any more.

        `tell` is called with `released` when the worker has its leave to go, and with `ended` when all of it is gone.
        """
        if own.addresses() != self._own:
            raise Stale("the bench's addresses changed")
        self._launch = launch.replace(run=self._launch.run, token=self._launch.token, cold=None)
        self._record = record.replace(run=self._launch.run)
        temporary = f".{RECORD}"
        self._run.write(temporary, self._record.to_json())
        os.rename(self._run / temporary, self._run / RECORD)
        os.unlink(self._run / WARM_CARD)
        self._started = started
        self._times.clear()
        self._mark("taken")
        self._tell = tell
        self._podman.stop_timeout = launch.limits.stop_timeout
        self._podman.be_patient(patient=False)

    def drained(self) -> None:
        """Hear that the worker's output is all passed on, or that nobody is there to pass it on."""
        self._drained.set()

    def _hand_on(self) -> None:
        if self._tell is None:
            super()._hand_on()
            return
        try:
            self._at.swap()
        except hand.Lost as error:
            raise Stale(str(error)) from None

    def _greet(self, secrets: list[tuple[str, str]]) -> None:
        streams, count = ("all", 3) if self._launch.interactive else ("output", 2)
        self._channel.send_with([*secrets, ("streams", streams)], self.pipes.worker[:count])

    def _let_go(self) -> None:
        """Start the worker; its taker is told before: should we be killed in between, nothing was run, not twice."""
        for fd in self.pipes.worker:
            os.close(fd)
        if self._tell is not None:
            self._tell(released=True)
        super()._let_go()

    def _wait(self) -> int:
        """Return the status as soon as it is certain; the account waits for the worker's last word to be passed on."""
        status = self._exit.wait(self.client) if self._exit else None
        if self._exit and self._exit.memory_ran_out():
            self._run.write(rundir.OOM, b"")  # the poststop hook, which copies the word, is yet to come
        if status is None or self._podman.signalled or self._podman.expired:
            status = self._podman.wait()
        if self._tell is not None:
            self._tell(ended=True)
        self._drained.wait()
        return status

    def _ledger(self) -> dict[str, Any] | None:
        """Read the ledger from inside the card's network, which the hand keeps: poststop may be yet to come."""
        try:
            return self._at.ledger()
        except (Refused, hand.Lost):
            return super()._ledger()

    def gone(self) -> None:
        """Wait until podman has taken the container down."""
        self._podman.wait()

    def freeze(self, *, frozen: bool) -> None:
        """Stop the card's processes, or let them go on (Ctrl-Z and fg of who took it)."""
        self._podman.freeze(frozen=frozen)
