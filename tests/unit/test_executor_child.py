"""card-run as a child of a program that has its own ways with children, or no descriptor left."""

import errno
import os
import select
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager

import pytest

from launcher import CardLostError, ClosedError
from launcher.executor.child import Child, Files
from launcher.executor.running import Running
from launcher.executor.steps import drive


@contextmanager
def sigchld(handler: "signal.Handlers | Callable[..., None]") -> Generator[None]:
    """Have SIGCHLD handled so meanwhile."""
    before = signal.signal(signal.SIGCHLD, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, before)


def reap(*_: object) -> None:
    """Wait for every child there is, as a daemon's handler does."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def child(*options: str) -> Child:
    """Start a card-run that says something and ends, or refuses at once."""
    return Child(options, ["true"], Files(), stdin=False, terminal=None)


def ended(one: Child) -> int | None:
    """Wait until it has ended; return its status."""
    select.select([one.exit], [], [])
    assert one.ended()
    return one.status


def test_a_status_is_card_runs_own() -> None:
    """Its exit status, or the signal that ended it, negative."""
    refused, killed = child("--no-such-option"), child("--version")
    killed.let_go()
    killed.send_signal(signal.SIGKILL)
    assert (ended(refused), ended(killed)) == (125, -9)
    for one in (refused, killed):
        one.send_signal(signal.SIGKILL)
        one.close()
        os.close(one.events)


@pytest.mark.parametrize("handler", [signal.SIG_IGN, reap])
def test_a_status_that_somebody_else_took_is_not_made_up(handler: "signal.Handlers | Callable[..., None]") -> None:
    """It is no 0: that it is not known is said, and a run that nobody accounts for is lost."""
    with sigchld(handler):
        one = child("--version")
        assert ended(one) is None
        running = Running(one, command=("true",), stop_seconds=1, output_limit=100)
        with pytest.raises(CardLostError) as lost:
            drive(running.communicate())
    assert lost.value.status is None


def test_a_forked_process_holds_neither_card_nor_input() -> None:
    """It can neither be waited for nor signalled there, and its input ends when it ends here."""
    one = Child(["--version"], ["true"], Files(), stdin=True, terminal=None)
    child = os.fork()
    if child == 0:
        refused = 0
        for attempt in (one.ended, lambda: one.send_signal(signal.SIGKILL)):
            try:
                attempt()
            except ClosedError:
                refused += 1
        lifeline = one._lifeline.fileno()
        one.close()
        one.close()
        os._exit(refused + 10 * (one.streams.stdin + lifeline + 2))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    assert one.streams.stdin >= 0
    assert ended(one) == 0
    one.close()
    os.close(one.events)


def test_a_child_that_there_is_no_descriptor_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it stays open, and its lifeline is among that."""

    def full(*_: object) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(os, "pidfd_open", full)
    with sigchld(signal.SIG_IGN), pytest.raises(OSError, match="too many"):
        child("--version")
    assert os.listdir("/proc/self/fd") == before
