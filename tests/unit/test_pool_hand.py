"""The hand: what it is asked and does not answer is over in time."""

import os
import signal
from pathlib import Path

import pytest

from launcher.pool import hand
from launcher.pool.hand import Hand, Lost


def newest() -> int:
    """Return the process that was forked last."""
    return int(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()[-1])


def test_a_hand_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its order is lost after its time, it does nothing later, and it can be ended."""
    monkeypatch.setattr(hand, "_SECONDS", 0.2)
    one = Hand()
    pid = newest()
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(Lost):
        one.swap()
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    one.end()


def test_a_hand_that_is_stopped_is_ended() -> None:
    """Its end waits for nothing that it does."""
    one = Hand()
    pid = newest()
    os.kill(pid, signal.SIGSTOP)
    one.end()
