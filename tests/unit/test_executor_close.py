"""Closing, with cards that are not real: it misses nothing that was started or granted; one failure stops nothing."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from launcher import CardLostError, ClosedError, Executor, ExecutorSet, IssuedGrant, Profile, Refusal, Refused, aio
from launcher.executor import member, prepared, running, tree
from launcher.executor.child import Streams
from launcher.executor.steps import Steps, Wait
from launcher.grants import spent, state, token

PROFILE = Profile(workspace="/srv/work", workspace_read="allow", command="allow")
SECONDS = 0.2  # how long another thread is given to come in between, which it must not


class Card:
    """What a member knows of a card."""

    def __init__(self, *, fails: int = 0) -> None:
        self.outcome: object = None
        self.child = self
        self.ended = self.cut = False
        self._fails = fails

    def over(self) -> bool:
        """Have ended, or not."""
        return self.outcome is not None

    def drop(self) -> None:
        """Be left to the process that has it."""

    def send_signal(self, number: int) -> None:
        """Be asked to end."""

    def let_go(self) -> None:
        """Be cut off."""
        self.cut = True

    def until_started(self) -> Steps[None]:
        """Have started."""
        yield from ()

    def end(self) -> Steps[None]:
        """End, unless this is to fail so many times first."""
        self._fails -= 1
        if self._fails >= 0:
            raise ArithmeticError("this card does not end")
        yield Wait(until=0.0)
        self.ended = True


class Broken(Card):
    """A card that does not come to its start."""

    def __init__(self, error: Exception, meanwhile: Callable[[], object]) -> None:
        super().__init__()
        self._error = error
        self._meanwhile = meanwhile

    def until_started(self) -> Steps[None]:
        """Fail, with something else happening meanwhile."""
        yield from ()
        self._meanwhile()
        raise self._error


class Slow(Card):
    """A card that takes for ever to end, until it is cut off."""

    def end(self) -> Steps[None]:
        """End as soon as it was cut off."""
        while not self.cut:
            yield Wait()
        yield from super().end()


class Bench:
    """What stands in for card-run and the grants' state."""

    def __init__(self) -> None:
        self.next: list[Card] = []
        self.revoked: list[str] = []
        self.meanwhile: Callable[[], object] = lambda: None
        self.unrecorded = 0

    def start(self, *_: object, **__: object) -> Card:
        """Start a card, with something else happening meanwhile."""
        self.meanwhile()
        return self.next.pop(0) if self.next else Card()

    def issue(self, command: prepared.Command, cls: str, target: str, **_: object) -> IssuedGrant:
        """Issue a grant, with something else happening meanwhile."""
        self.meanwhile()
        run = command.fixed_run_id()
        return IssuedGrant(id=target, cls=cls, target=target, run_id=run, expires=0, token="")

    def revoke(self, grant: IssuedGrant) -> None:
        """Take a grant back, unless that is to fail so many times first."""
        self.unrecorded -= 1
        if self.unrecorded >= 0:
            raise Refused([Refusal("grant-state", "no space")])
        self.revoked.append(grant.id)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Return a bench on which nothing is real."""
    found = Bench()
    monkeypatch.setattr(prepared.Command, "start", found.start)
    monkeypatch.setattr(prepared.Command, "issue", lambda *words, **_: found.issue(*words))
    monkeypatch.setattr(member, "revoke", found.revoke)
    return found


def made(tmp_path: Path) -> ExecutorSet:
    """Return a set."""
    return ExecutorSet(PROFILE, scratch_root=tmp_path / "scratch")


def start(executor: Executor | aio.Executor, *cards: Card, bench: Bench) -> None:
    """Start cards and leave them alone."""
    for card in cards:
        bench.next = [card]
        for _ in executor._member.start(executor.prepare(["true"])._command, (), stdin=False):
            pass


def left(tmp_path: Path) -> list[str]:
    """Return what is in the scratch directory."""
    return [path.name for path in (tmp_path / "scratch").iterdir()]


class Between:
    """Something that another thread tries once, and has not done when this one goes on."""

    def __init__(self, what: Callable[[], object]) -> None:
        self._thread = threading.Thread(target=what)
        self._begun = False

    def __call__(self) -> None:
        """Let the other thread come in between if it can."""
        if not self._begun:
            self._begun = True
            self._thread.start()
            self._thread.join(SECONDS)

    def done(self) -> None:
        """Wait for it."""
        self._thread.join(20)
        assert not self._thread.is_alive()


def test_a_start_does_not_lose_another_threads(bench: Bench, tmp_path: Path) -> None:
    """While one start looks which cards have ended, another adds its own: close() ends both."""
    with made(tmp_path) as executors:
        executor = executors.executor("a")
        first, second, third = Card(), Card(), Card()
        between = Between(lambda: start(executor, third, bench=bench))

        class Looked(Card):
            @property
            def outcome(self) -> object:
                between()
                return None

            @outcome.setter
            def outcome(self, _: object) -> None: ...

        start(executor, Looked(), bench=bench)
        start(executor, second, bench=bench)
        between.done()
        start(executor, first, bench=bench)
    assert (first.ended, second.ended, third.ended) == (True, True, True)


def test_a_start_that_closing_meets_is_ended(bench: Bench, tmp_path: Path) -> None:
    """Closing that begins while a card is being started sees it: the card is ended before its directory goes."""
    executors = made(tmp_path)
    executor = executors.executor("a")
    card = Card()
    between = bench.meanwhile = Between(executor.close)
    start(executor, card, bench=bench)
    between.done()
    assert card.ended
    with pytest.raises(ClosedError):
        start(executor, Card(), bench=bench)
    executors.close()


@pytest.mark.parametrize("error", [CardLostError("", 143, ""), Refused([Refusal("stage2-lost", "")])])
def test_a_start_that_closing_cut_short_is_told_so(error: Exception, bench: Bench, tmp_path: Path) -> None:
    """Not as a defect or a refusal of its own, which it is when nobody closed anything."""
    executors = made(tmp_path)
    executor = executors.executor("a")
    with pytest.raises(type(error)):
        start(executor, Broken(error, lambda: None), bench=bench)
    with pytest.raises(ClosedError) as closed:
        start(executor, Broken(error, executor.close), bench=bench)
    assert closed.value.__cause__ is error
    executors.close()


def test_a_grant_that_closing_meets_is_taken_back(bench: Bench, tmp_path: Path) -> None:
    """Closing that begins while a token is being made takes it back."""
    with made(tmp_path) as executors:
        executor = executors.executor("a")
        command = executor.prepare(["true"])
        between = bench.meanwhile = Between(executor.close)
        grant = command.issue_grant("command.start.v1", "one")
        between.done()
        assert bench.revoked == [grant.id]
        with pytest.raises(ClosedError):
            command.issue_grant("command.start.v1", "two")


def test_one_failure_keeps_nothing_else_open(bench: Bench, tmp_path: Path) -> None:
    """A card that does not end is told when all others have ended; closing once more goes on with it."""
    executors = made(tmp_path)
    stubborn, beside, other = Card(fails=1), Card(), Card()
    for key, cards in (("a", (stubborn, beside)), ("b", (other,))):
        executor = executors.executor(key)
        executor.prepare(["true"]).issue_grant("command.start.v1", key)
        start(executor, *cards, bench=bench)
    with pytest.raises(ArithmeticError):
        executors.close()
    assert bench.revoked == ["a", "b"]
    assert (stubborn.ended, beside.ended, other.ended) == (False, True, True)
    assert executors.keys == ()
    assert len(left(tmp_path)) == 1
    with pytest.raises(ClosedError):
        executors.executor("a")
    executors.close()
    executors.close()
    assert stubborn.ended
    assert left(tmp_path) == []


def test_several_failures_are_told_together(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A grant that could not be taken back, cards that do not end and a directory that stays: each is in the group."""
    executors = made(tmp_path)
    for key in ("a", "b", "c"):
        start(executors.executor(key), Card(fails=int(key != "c")), bench=bench)
    executors.executor("c").prepare(["true"]).issue_grant("command.start.v1", "one")
    bench.unrecorded = 1

    def busy(path: str, **_: object) -> None:
        raise OSError(16, "busy", path)

    with monkeypatch.context() as patched:
        patched.setattr(tree, "remove", busy)
        with pytest.raises(ExceptionGroup) as told:
            executors.close()
    assert [type(one) for one in told.value.exceptions] == [Refused, ArithmeticError, ArithmeticError, OSError]
    executors.close()
    assert bench.revoked == ["one"]
    assert left(tmp_path) == []


def test_a_grant_that_could_not_be_taken_back_is_tried_again(bench: Bench, tmp_path: Path) -> None:
    """Also where nothing else was left of its executor."""
    executors = made(tmp_path)
    executors.executor("a").prepare(["true"]).issue_grant("command.start.v1", "one")
    bench.unrecorded = 1
    with pytest.raises(Refused):
        executors.close()
    assert (bench.revoked, left(tmp_path)) == ([], [])
    executors.close()
    assert bench.revoked == ["one"]


def test_an_executor_that_could_not_be_closed_is_not_made_anew(bench: Bench, tmp_path: Path) -> None:
    """Its key stays its own until closing it has come to its end; the next of that key is not closed by the first."""
    with made(tmp_path) as executors:
        first = executors.executor("a")
        start(first, Card(fails=1), bench=bench)
        with pytest.raises(ArithmeticError):
            first.close()
        assert executors.executor("a") is first
        first.close()
        second = executors.executor("a")
        first.close()
        assert executors.executor("a") is second is not first


def test_closing_that_is_cancelled_cuts_off_and_can_go_on(bench: Bench, tmp_path: Path) -> None:
    """Grants are taken back and cards cut off when the cancellation is known; closing once more removes the rest."""

    async def body() -> None:
        executors = aio.ExecutorSet(PROFILE, scratch_root=tmp_path / "scratch")
        cards = [Slow(), Slow()]
        for key, card in zip("ab", cards, strict=True):
            executor = executors.executor(key)
            executor.prepare(["true"]).issue_grant("command.start.v1", key)
            start(executor, card, bench=bench)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await executors.close()
        assert bench.revoked == ["a", "b"]
        assert [card.cut for card in cards] == [True, True]
        await asyncio.gather(executors.close(), executors.close())
        assert [card.ended for card in cards] == [True, True]
        assert left(tmp_path) == []

    asyncio.run(body())


def test_who_waits_for_a_card_that_is_being_ended_waits_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing in another thread that came first is no reason to be told that somebody waits already."""
    events, theirs = os.pipe()
    os.close(theirs)
    over = False
    child = SimpleNamespace(events=events, exit=events, streams=Streams(-1, -1, -1), tied=True, status=143)
    child.ended = lambda: over
    child.send_signal = child.close_stream = lambda _: None
    child.let_go = child.close = child.check = lambda: None
    child.ours = True
    card = running.Running(child, command=("true",), stop_seconds=0, output_limit=0)  # type: ignore[arg-type]
    monkeypatch.setattr(running, "_POLL_SECONDS", 0)
    ending, waiting = card.end(), card.wait()
    next(ending)
    next(waiting)
    over = True
    assert list(ending) == []
    with pytest.raises(CardLostError):
        next(waiting)


def test_a_forked_process_leaves_everything_to_its_parent(bench: Bench, tmp_path: Path) -> None:
    """It may leave the `with` block and close what it likes: cards, grants and directories are the parent's still."""
    with made(tmp_path) as executors:
        executor, card = executors.executor("a"), Card()
        start(executor, card, bench=bench)
        prepared = executor.prepare(["true"])
        prepared.issue_grant("command.start.v1", "one")
        executor._member._lock.acquire()  # as by another thread: nobody lets go of it in the child
        child = os.fork()
        if child == 0:
            refused = 0
            for attempt in (
                lambda: executors.executor("b"),
                lambda: executors.keys,
                lambda: executor.prepare(["true"]),
                lambda: prepared.issue_grant("command.start.v1", "two"),
                prepared.start,
            ):
                try:
                    attempt()
                except ClosedError:
                    refused += 1
            executor.close()
            executors.close()
            os._exit(refused + (10 if card.ended or bench.revoked else 0))
        executor._member._lock.release()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
        assert len(list((tmp_path / "scratch").glob("set-*/0001"))) == 1
    assert (card.ended, bench.revoked, left(tmp_path)) == (True, ["one"], [])


def test_what_nobody_has_in_hand_any_more_is_let_go_of() -> None:
    """Once it has ended; what somebody may still read or wait for is left to him."""
    events, theirs = os.pipe()
    os.close(theirs)
    child = SimpleNamespace(events=events, exit=events, streams=Streams(-1, -1, -1), tied=True, status=143)
    closed: list[bool] = []
    child.ended = lambda: True
    child.close = lambda: closed.append(True)
    card = running.Running(child, command=("true",), stop_seconds=0, output_limit=0)  # type: ignore[arg-type]
    assert not card.over()
    card.forsake()
    assert card.over()
    assert closed == [True]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(events)


def test_an_output_limit_is_a_number_of_bytes(bench: Bench, tmp_path: Path) -> None:
    """Less than none is refused before anything starts."""
    bench.meanwhile = pytest.fail
    with made(tmp_path) as executors, pytest.raises(ValueError, match="output_limit"):
        executors.executor("a").run_command(["true"], output_limit=-1)


def test_a_grant_that_cannot_be_taken_back_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is over by itself is passed over in silence."""
    reasons = ["replay", "denied", "grant-state"]

    def refused(*_: object, **__: object) -> None:
        raise Refused([Refusal(reasons.pop(0), "")])

    grant = IssuedGrant(id="", cls="", target="", run_id="", expires=0, token="")
    monkeypatch.setattr(token, "decode", lambda _: (SimpleNamespace(nonce="", expires=0),))
    monkeypatch.setattr(state, "opened", contextlib.nullcontext)
    monkeypatch.setattr(spent, "revoke", refused)
    for _ in range(2):
        prepared.revoke(grant)
    with pytest.raises(Refused):
        prepared.revoke(grant)
