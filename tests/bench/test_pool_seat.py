"""The one place of a user's pool: who has it, who may speak there, and what a pool does with those it cannot follow."""

import os
import signal
import socket
from pathlib import Path

import pytest

from tests.bench.cards import run
from tests.bench.lives import until
from tests.bench.pools import FOLDER, pool, status, taken


@pytest.mark.usefixtures("nothing_new")
def test_a_pool_that_is_busy(receipt: Path) -> None:
    """It is a pool: no second one takes its place, and who asks it something is told that it does not answer."""
    with pool() as found:
        os.kill(found["pid"], signal.SIGSTOP)
        try:
            assert run(["card", "pool", "start"]).reasons == ["pool-exists"]
            silent = run(["card", "pool", "status"])
            assert (silent.status, silent.reasons) == (2, ["pool-silent"])
        finally:
            os.kill(found["pid"], signal.SIGCONT)
        assert status()["ready"] == found["ready"]
        assert taken("--", "true", receipt=receipt).status == 0


@pytest.mark.usefixtures("nothing_new")
def test_a_pool_takes_away_only_its_own() -> None:
    """A socket that took the place of its own stays, and so does the directory with it."""
    with pool() as found:
        own = FOLDER / "socket"
        os.rename(own, FOLDER / "own")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
            other.bind(str(own))
        identity = own.stat().st_ino
        os.rename(own, FOLDER / "other")
        os.rename(FOLDER / "own", own)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stopping:
            stopping.connect(str(own))
            os.rename(FOLDER / "other", own)
            stopping.send(b'{"order":"stop"}')
            assert stopping.recv(100)
        until(lambda: not Path(f"/proc/{found['pid']}").exists())
        assert own.stat().st_ino == identity
        own.unlink()
        FOLDER.rmdir()


@pytest.mark.usefixtures("nothing_new")
def test_one_after_the_other() -> None:
    """As soon as a pool is stopped another can be started."""
    for _ in range(3):
        with pool():
            assert run(["card", "pool", "stop"]).status == 0
            assert run(["card", "pool", "start"]).status == 0
