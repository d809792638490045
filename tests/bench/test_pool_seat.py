"""The one place of a user's pool: who has it, who may speak there, and what a pool does with those it cannot follow."""

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.bench.cards import run
from tests.bench.lives import until
from tests.bench.pools import FOLDER, Tree, asked, cold, full, pool, status, taken

# Who may speak there, and what is said.

ASK = """
import socket, sys
one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
one.connect(sys.argv[1])
one.send(sys.argv[2].encode())
print(one.recv(200000).decode())
"""
ASKING = ("python3", "-c", ASK, str(FOLDER / "socket"))


@pytest.mark.parametrize("order", ["stop", "status", "take"])
def test_nobody_of_another_namespace_is_heard(order: str, receipt: Path) -> None:
    """A process with the same user id in a namespace of its own, as a worker is; the control is the same without."""
    told = json.dumps({"order": order, "key": {}})
    with pool() as found:
        for words in (["unshare", "--user"], ["unshare", "--user", "--map-current-user", "--pid", "--fork"]):
            done = run([*words, *ASKING, told])
            assert json.loads(done.out) == {"cold": "it is in another namespace"}, done.err
        assert status()["ready"] == found["ready"]
        assert taken("--", "true", receipt=receipt).status == 0
        assert "another namespace" not in run([*ASKING, told]).out.partition('"trouble"')[0]


def test_no_pool_where_a_card_can_reach_it() -> None:
    """A card that may read the runtime directory keeps the pool from coming there; without that card it comes."""
    ours, theirs = os.pipe()
    words = ["card-run", "-q", "--net=none", f"--read={FOLDER.parent}", "--", "sh", "-c", "echo up; exec sleep 60"]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=theirs) as process:
        os.close(theirs)
        assert os.read(ours, 3) == b"up\n"
        assert run(["card", "pool", "start"]).reasons == ["pool-exposed"]
        assert not FOLDER.exists()
        process.terminate()
    os.close(ours)
    with pool():
        assert run(["card-run", "--net=none", f"--read={FOLDER.parent}", "--", "true"]).status == 125


@pytest.mark.parametrize(
    "said",
    [
        "[]",
        "x",
        "{}",
        '{"order":"take"}',
        '{"order":"take","key":5}',
        '{"order":"take","key":[1]}',
        '{"order":["take"],"key":{}}',
    ],
)
def test_a_message_that_is_none(said: str, receipt: Path) -> None:
    """It ends nothing: the pool goes on, and says what it was."""
    with pool() as found:
        run([*ASKING, said])
        assert status()["pid"] == found["pid"]
        assert taken("--", "true", receipt=receipt).status == 0


def test_a_judgement_that_fails(tmp_path: Path, receipt: Path) -> None:
    """What nobody expected is told by the status and ends no pool, which recovers by itself."""
    tree, there = Tree(tmp_path), tmp_path / "there"
    there.touch()
    line = "        judged, refusals = launch.judge(self._request())\n"
    tree.change("launcher/pool/declared.py", line, f"        os.stat({str(there)!r})\n{line}")
    with pool(program=tree.card) as found:
        there.unlink()
        assert cold(asked("--read=/usr", "--", "true", receipt=receipt, program=tree.card_run))
        until(lambda: status()["refusals"])
        assert next(one["reason"] for one in status()["refusals"]) in {"pool-failed", "attendant-bug"}
        there.touch()
        assert full()["pid"] == found["pid"]


def test_who_does_not_fit_waits_for_no_judgement(tmp_path: Path, receipt: Path) -> None:
    """It is told at once, however long the pool then thinks about its own cards."""
    tree = Tree(tmp_path)
    tree.change(
        "launcher/pool/daemon.py",
        "            now = self._declared.judge().key\n",
        "            time.sleep(4); now = self._declared.judge().key\n",
    )
    with pool(program=tree.card):
        done = asked("--read=/usr", "--", "true", receipt=receipt, program=tree.card_run)
        assert cold(done) == "the pool's card differs: --mount, roots"


# Who has it.


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
