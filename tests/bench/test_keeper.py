"""A real card's hooks are served by its keeper; without it, and with one that is stopped, the card is as safe."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.bench.cards import card
from tests.bench.test_proof import WORKER, never_ran, stand_in

pytestmark = pytest.mark.usefixtures("nothing_left")

# What the stand-in for podman does to the keeper, whose parent is its own parent, before podman starts.
TO_THE_KEEPER = """
import glob, signal
def keeper():
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            number, name, fields = open(path).read().replace("(", ")").split(")")
        except OSError:
            continue
        if name == "card-keeper" and int(fields.split()[1]) == os.getppid():
            return int(number)
if "run" in argv:
    while not keeper():
        pass
    os.kill(keeper(), signal.{signal})
"""
# Hooks whose deadline a test can wait for.
SOON = """
import re
folder = next(w for w in argv if w.startswith("--hooks-dir=") and "card-run" in w).split("=", 1)[1]
for name in os.listdir(folder):
    text = open(folder + "/" + name).read()
    assert '"timeout":' in text
    open(folder + "/" + name, "w").write(re.sub('"timeout":[0-9]+', '"timeout":1', text))
"""


@pytest.mark.parametrize("user", ["keep-id", "root"])
def test_the_keeper_serves_both_hooks(user: str, tmp_path: Path) -> None:
    """The receipt says who built the wall, and the ledger is there."""
    done = card("--user", user, *WORKER, receipt=tmp_path / "receipt.json")
    assert (done.status, done.out) == (0, "ran\n"), done.err
    assert done.receipt["hook"]["by"] == "keeper"
    assert done.receipt["ledger"] is not None
    assert done.receipt["level"] == "full"


@pytest.mark.parametrize("user", ["keep-id", "root"])
def test_a_keeper_that_is_killed_at_once(user: str, tmp_path: Path) -> None:
    """The ordinary hooks build the same wall and keep the ledger."""
    environment = stand_in(tmp_path, TO_THE_KEEPER.format(signal="SIGKILL"))
    done = card("--user", user, *WORKER, receipt=tmp_path / "receipt.json", env=environment)
    assert (done.status, done.out) == (0, "ran\n"), done.err
    assert done.receipt["hook"]["by"] == "hook"
    assert done.receipt["ledger"] is not None
    assert done.receipt["level"] == "full"


def test_a_keeper_that_is_killed_while_the_worker_runs(tmp_path: Path) -> None:
    """The poststop hook reads the ledger itself."""
    receipt = tmp_path / "receipt.json"
    words = ["card-run", "-q", "-i", f"--json={receipt}", "--", "sh", "-c", "echo up; read line"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as card_run:
        assert card_run.stdin
        assert card_run.stdout
        assert card_run.stdout.readline() == b"up\n"
        os.kill(keeper_of(card_run.pid), signal.SIGKILL)
        card_run.stdin.write(b"\n")
        card_run.stdin.close()
        assert card_run.wait(timeout=60) == 0
    found = json.loads(receipt.read_text())
    assert found["hook"]["by"] == "keeper"
    assert found["ledger"] is not None


def test_a_keeper_that_is_stopped(tmp_path: Path) -> None:
    """The runtime ends a hook that is not answered within its deadline, and nothing of the worker runs."""
    done = card(*WORKER, env=stand_in(tmp_path, SOON + TO_THE_KEEPER.format(signal="SIGSTOP")))
    for path in Path("/proc").glob("[0-9]*/comm"):
        if path.read_text() == "card-keeper\n":
            os.kill(int(path.parent.name), signal.SIGKILL)
    never_ran(done)
    assert done.reasons == ["hook-timeout"]


def test_control_of_the_deadline(tmp_path: Path) -> None:
    """The same deadline is enough for a keeper that is left alone."""
    done = card(*WORKER, env=stand_in(tmp_path, SOON))
    assert (done.status, done.out) == (0, "ran\n"), done.err


def keeper_of(pid: int) -> int:
    """Return the keeper of a card-run."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return next(int(child) for child in children if Path(f"/proc/{child}/comm").read_text() == "card-keeper\n")
