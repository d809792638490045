"""The status is the worker's, as its container recorded it: not podman's client's, and OOM is told apart from KILL."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.bench.cards import card, is_old, run
from tests.bench.lives import STORAGE, Live, begin, until
from tests.bench.test_proof import stand_in

pytestmark = pytest.mark.usefixtures("nothing_left")

# Runs the real podman to its end, and then ends otherwise than it did.
LIES = """
if "run" in argv:
    pid = os.spawnv(os.P_NOWAIT, "/usr/bin/podman", ["podman", *argv[1:]])
    os.waitpid(pid, 0)
    os._exit({status})
"""


@pytest.mark.parametrize("status", [1, 124, 125, 126, 127, 128, 130, 137, 139, 143, 255])
def test_the_workers_own_status(status: int) -> None:
    """Those that podman gives a meaning to are the worker's all the same, and nothing is said of podman."""
    done = card("--net=none", "--", "sh", "-c", f"exit {status}")
    assert done.status == status
    assert "podman" not in done.err


@pytest.mark.parametrize("status", [0, 3, 125, 126, 127, 137])
def test_a_client_that_says_something_else(tmp_path: Path, status: int) -> None:
    """The container recorded 7: that is the status, in the receipt too, and a line says what podman's client said."""
    environment = stand_in(tmp_path, LIES.format(status=status))
    words = ("--net=none", "--", "sh", "-c", "exit 7")
    done = card(*words, receipt=tmp_path / "r.json", env=environment)
    assert (done.status, done.receipt["exit_status"]) == (7, 7)
    assert f"NOTE podman ended with {status}; the worker's own status is 7" in done.err


@pytest.mark.parametrize("status", [125, 126, 127])
def test_a_client_that_failed_under_a_worker_that_did_not(tmp_path: Path, status: int) -> None:
    """The worker's 0 is not returned where podman's client says that it failed."""
    environment = stand_in(tmp_path, LIES.format(status=status))
    done = card("--net=none", "--", "true", receipt=tmp_path / "r.json", env=environment)
    assert (done.status, done.receipt["exit_status"]) == (status, status)
    # Podman 4.3 records no 0.
    own = ", and recorded no status of the worker's" if is_old() else "; the worker's own status is 0"
    assert f"NOTE podman ended with {status}{own}" in done.err


def test_output_that_could_not_be_written() -> None:
    """It is no success where standard output is full, as with plain podman, and why is said.

    A worker that has not ended by then is ended with podman's client: the status is its own, of the signal.
    """
    with open("/dev/full", "wb") as full:
        words = ["card-run", "-q", "--net=none", "--", "echo", "said"]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode in {126, 128 + signal.SIGTERM, 128 + signal.SIGKILL}
    assert "no space left on device" in done.stderr
    assert "NOTE podman ended with 126" in done.stderr


WAITS = ["sh", "-c", "touch running; while [ ! -e go ]; do sleep 0.05; done"]


def out_of_memory(live: Live) -> None:
    """Leave word as conmon does when the kernel's OOM killer has acted: an empty file in the bundle."""
    container = (live.path / "cid").read_text()
    bundle = STORAGE / "overlay-containers" / container / "userdata"
    assert (
        run(["podman", "unshare", "touch", str(bundle / "oom")]).status == 0
    )  # podman 4.3 gives it to the card's root


@pytest.mark.parametrize("oom", [True, False])
def test_out_of_memory_is_told_apart_from_kill(workspace: Path, oom: bool) -> None:  # noqa: FBT001 - pytest's way
    """Both are 137; only the first is said to be for want of memory, on stderr and in the receipt.

    Podman 4.3 removes conmon's word of it before the poststop hook runs: there none is told apart, as card-run(1) says.
    """
    known = oom and not is_old()
    live = begin("r1", "--net=none", f"--write={workspace}", f"--json={workspace}/r.json", worker=WAITS)
    until((workspace / "running").exists)
    if oom:
        out_of_memory(live)
    assert live.signal("worker", signal.SIGKILL)
    status, _, err = live.end()
    told = json.loads((workspace / "r.json").read_text())
    assert (status, told["exit_status"], told["oom"]) == (137, 137, known)
    assert told["how"] == ("out-of-memory" if known else "exited")
    assert ("NOTE the worker was killed because the card's memory ran out (OOM)" in err) == known


def test_a_process_beside_the_worker(workspace: Path) -> None:
    """When only a child of the worker's was killed, its own status stands, and a line tells of the other."""
    live = begin("r1", "--net=none", f"--write={workspace}", f"--json={workspace}/r.json", worker=WAITS)
    until((workspace / "running").exists)
    out_of_memory(live)
    (workspace / "go").touch()
    status, _, err = live.end()
    told = json.loads((workspace / "r.json").read_text())
    assert (status, told["oom"], told["how"]) == (0, not is_old(), "exited")
    assert ("NOTE a process of the card was killed because the card's memory ran out (OOM)" in err) != is_old()


def test_podman_killed_is_said(workspace: Path) -> None:
    """The client is killed while the worker runs: the card ends with it, 137, and a line says who was ended."""
    live = begin("r1", "--net=none", f"--write={workspace}", worker=WAITS)
    until((workspace / "running").exists)
    live.kill_all("podman")
    status, _, err = live.end()
    assert status == 137
    assert "NOTE podman was ended by signal 9, and the card with it" in err
    assert os.listdir(workspace) == ["running"]
