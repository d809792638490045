"""podman's own process as card-run has it: how long it may take until the worker's release."""

import os
import signal
import sys
import time
from collections.abc import Callable, Generator

import pytest

from launcher.run import process
from launcher.run.process import START_SECONDS, Podman
from launcher.run.spawn import Child


class Clock:
    """The time as a podman sees it, and the timers that it has started."""

    def __init__(self) -> None:
        """Begin at nought."""
        self.now = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def later(self, seconds: float, do: Callable[[], None]) -> None:
        """Start a timer."""
        self.timers.append((self.now + seconds, do))

    def go_to(self, now: float) -> None:
        """Let time pass, and every timer go off that is due."""
        self.now = now
        due = [one for one in self.timers if one[0] <= now]
        self.timers = [one for one in self.timers if one[0] > now]
        for _, do in due:
            do()


def nobody(_: Podman) -> None:
    """Hear no signal."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the clock that podman goes by; nothing listens for the test's own signals."""
    found = Clock()
    monkeypatch.setattr(process, "_later", found.later)
    monkeypatch.setattr(time, "monotonic", lambda: found.now)
    monkeypatch.setattr(Podman, "_listen", nobody)
    return found


@pytest.fixture
def podman(clock: Clock) -> Generator[Podman]:
    """Return a podman that takes for ever, as a process that waits."""
    assert clock.now == 0
    program = "import sys; sys.stdin.read()"
    into, held = os.pipe()
    reader, writer = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, into, 0), (os.POSIX_SPAWN_DUP2, writer, 2)]
    pid = os.posix_spawn(sys.executable, [sys.executable, "-Sc", program], {}, file_actions=actions)
    os.close(into)
    os.close(writer)
    yield Podman(Child(sys.executable, pid, reader, apart=True), container="none")
    os.close(held)


def given_up(podman: Podman) -> bool:
    """Return whether it was ended because its time was over."""
    return podman.gave_up


def ended(podman: Podman) -> int:
    """Let it end by itself, unless it was ended; return the signal that did."""
    return podman.wait() and podman.killed


def test_a_start_that_takes_too_long_is_given_up(clock: Clock, podman: Podman) -> None:
    """At its time, and not before."""
    clock.go_to(START_SECONDS - 1)
    assert not given_up(podman)
    clock.go_to(START_SECONDS)
    assert given_up(podman)
    assert ended(podman) == signal.SIGKILL


def test_a_card_that_is_taken_has_its_time_anew(clock: Clock, podman: Podman) -> None:
    """A card that waited is given up neither while it waits nor by the time that began when it was made."""
    podman.be_patient(patient=True)
    clock.go_to(START_SECONDS - 1)
    podman.be_patient(patient=False)
    clock.go_to(START_SECONDS + 1)
    assert not given_up(podman)
    clock.go_to(2 * START_SECONDS - 1)
    assert given_up(podman)
    assert ended(podman) == signal.SIGKILL


def test_a_released_worker_has_all_the_time(clock: Clock, podman: Podman) -> None:
    """After its release nothing is given up."""
    podman.release()
    clock.go_to(10 * START_SECONDS)
    assert not given_up(podman)
    os.kill(podman.pid, signal.SIGTERM)
    assert ended(podman) == signal.SIGTERM
