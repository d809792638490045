"""The fault matrix: whoever of a card's processes is killed, and whenever, nothing is left and no worker is unwalled.

Each phase is held and not hit by chance: card-run is stopped before the plan is written or before it says `go`, the
worker waits for a file, and a hook of the site's holds the container's end. What was held is looked at before the
fault, and a phase that was missed is started anew.
"""

import errno
import json
import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.bench.cards import card, is_old, run
from tests.bench.lives import STATE, Live, begin, children, inventory, send, settled, until

SIGNALS = {"KILL": (signal.SIGKILL,), "TERM": (signal.SIGTERM,), "STOP+KILL": (signal.SIGSTOP, signal.SIGKILL)}
# Who is there in each phase. With `--userns=keep-id` pasta comes after the hook, and ends before the container does.
THERE = {
    "before hook": ("launcher", "podman", "conmon", "hook"),
    "between": ("launcher", "podman", "conmon", "stage 2", "pasta"),
    "running": ("launcher", "podman", "conmon", "worker", "pasta"),
    "exiting": ("launcher", "podman", "conmon", "hook"),
}
ALL = ("launcher", "podman", "conmon", "hook", "stage 2", "worker", "pasta")
CASES = [(phase, who, how) for phase, names in THERE.items() for who in names for how in SIGNALS]
# Leaves word of what it met at each wall, and ends when it is told to.
WORKER = """
import ctypes, json, os, socket, time
def met(call):
    try:
        call()
    except OSError as error:
        return error.errno
    return 0
def unshare():
    if ctypes.CDLL(None, use_errno=True).unshare(0):
        raise OSError(ctypes.get_errno(), "")
send = lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"", ("169.254.169.254", 9))
walls = [met(lambda: open("/proc/self/comm", "w")), met(unshare), met(send)]
with open("new", "w") as file:
    json.dump(walls, file)
os.rename("new", "ran")
while not os.path.exists("go"):
    time.sleep(0.01)
"""
# Without pasta there is no way out at all, which is told by another name.
WALLED = [[errno.EACCES, errno.EPERM, met] for met in (errno.EPERM, errno.ENETUNREACH)]
BLOCKER = """#!/bin/sh
[ -e {folder}/armed ] || exit 0
echo $PPID > {folder}/new; mv {folder}/new {folder}/blocked
read line < {folder}/fifo
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give the site a poststop hook that blocks while a file is there; return the folder of that file."""
    folder = tmp_path_factory.mktemp("site")
    hooks = folder / "hooks.d"
    hooks.mkdir()
    blocker = folder / "block"
    blocker.write_text(BLOCKER.format(folder=folder))
    blocker.chmod(0o755)
    os.mkfifo(folder / "fifo")
    entry = {
        "version": "1.0.0",
        "hook": {"path": str(blocker)},
        "when": {"annotations": {"^org.card-run.run$": ".*"}},
        "stages": ["poststop"],
    }
    (hooks / "00-block.json").write_text(json.dumps(entry))
    conf = Path.home() / ".config/containers/containers.conf.d/90-test.conf"
    conf.parent.mkdir(parents=True, exist_ok=True)
    conf.write_text(f'[engine]\nhooks_dir = ["/usr/share/containers/oci/hooks.d", "{hooks}"]\n')
    # Podman's pause process, the runtime, and this boot's first cleaning.
    assert card("--", "true").status == 0
    until(lambda: (STATE / "swept").exists() and not run(["pgrep", "-f", "sweep.clean"]).out)
    yield folder
    conf.unlink()


class Held:
    """A card that is held in a phase."""

    def __init__(self, live: Live, site: Path, *, released: bool) -> None:
        self.live = live
        self.released = released
        self._site = site
        self._caught: list[int] = []

    def find(self, who: str) -> list[int]:
        """Return the processes of a kind in this phase."""
        if who == "stage 2":
            return [] if self.released else self.live.find("worker")
        if who == "worker":
            return self.live.find("worker") if self.released else []
        if who == "hook" and self._site.joinpath("armed").exists():
            self._caught = self._catch()
            return self._caught
        return self.live.find(who)

    def _catch(self) -> list[int]:
        """Let the site's hook go, and stop our own, which comes next."""
        parent = int((self._site / "blocked").read_text())
        before = children(parent)
        with open(self._site / "fifo", "r+b", buffering=0) as fifo:
            fifo.write(b"\n")
            return self._next(parent, before)

    def _next(self, parent: int, before: list[int]) -> list[int]:
        end = time.monotonic() + 5
        while time.monotonic() < end:
            found = [pid for pid in children(parent) if pid not in before]
            if found:
                send(found, signal.SIGSTOP)
                return found
        return []

    def unblock(self) -> None:
        """Let the site's hook go, and not block again."""
        (self._site / "armed").unlink(missing_ok=True)
        with open(self._site / "fifo", "r+b", buffering=0) as fifo:
            if _reads(self._site / "block"):
                fifo.write(b"\n")
                until(lambda: not _reads(self._site / "block"))
        (self._site / "blocked").unlink(missing_ok=True)

    def resume(self) -> None:
        """Let everything go on."""
        send([self.live.process.pid, *self._caught], signal.SIGCONT)
        self.unblock()


def _reads(program: Path) -> bool:
    return bool(run(["pgrep", "-f", str(program)]).out)


def hold(phase: str, folder: Path, site: Path, name: str) -> Held:
    """Start cards until one is held in the phase."""
    for attempt in range(5):
        live = begin(f"{name}{attempt}", f"--write={folder}", worker=["python3", "-c", WORKER])
        if phase in {"before hook", "between"}:
            # Podman and the leash are there, or the hook has passed the card; what must not be yet is looked for below.
            proof, late = live.path / "card/proof", live.path / ("plan.json" if phase == "before hook" else "released")
            there = partial(live.find, "leash") if phase == "before hook" else proof.exists
            while not there() and live.process.poll() is None:
                pass
            send([live.process.pid], signal.SIGSTOP)
            if not late.exists() and live.process.poll() is None:
                until(partial(live.find, "hook" if phase == "before hook" else "worker"))
                if phase == "between":
                    until(partial(live.find, "pasta"))
                (folder / "go").touch()
                return Held(live, site, released=False)
            send([live.process.pid], signal.SIGCONT)
            (folder / "go").touch()
            live.end()
            clean(folder)
            continue
        if phase == "exiting":
            (site / "armed").touch()
        until((folder / "ran").exists)
        if phase == "exiting":
            (folder / "go").touch()
            until((site / "blocked").exists)
        return Held(live, site, released=True)
    raise AssertionError(f"no card could be held {phase}")


def clean(folder: Path) -> None:
    """Take away what the worker left."""
    for path in folder.iterdir():
        path.unlink()


NEVER_RAN = {125}
OWN, TERM, KILL = {0}, {143}, {137}
# The status for each phase and process; of KILL and STOP+KILL first, of TERM second.
STATUS: dict[tuple[str, str], tuple[set[int], set[int]]] = {
    ("before hook", "launcher"): ({-9}, TERM),
    # Podman has TERM end it, or passes it on, if it comes so far, to what it then has started.
    ("before hook", "podman"): (NEVER_RAN, NEVER_RAN | TERM),
    ("before hook", "conmon"): (NEVER_RAN, NEVER_RAN),
    # The runtime starts hooks with every signal blocked: TERM waits until the hook is done.
    ("before hook", "hook"): (NEVER_RAN, OWN),
    # Stage 2 goes on while card-run is held, which may have heard its report already and be about to say `go`: the
    # worker is then released behind all its walls, to end with its container or, told to, before.
    ("between", "launcher"): ({-9}, TERM | OWN),
    ("between", "podman"): (NEVER_RAN | KILL | OWN, NEVER_RAN | TERM | OWN),
    ("between", "conmon"): (NEVER_RAN | KILL | OWN, NEVER_RAN | TERM | OWN),
    ("between", "stage 2"): (NEVER_RAN | KILL, NEVER_RAN | TERM),
    # Stage 2 may have felt the wall already; without pasta it feels no way out at all, and refuses.
    ("between", "pasta"): (OWN | NEVER_RAN, OWN | NEVER_RAN),
    ("running", "launcher"): ({-9}, TERM),
    ("running", "podman"): (KILL, TERM),
    ("running", "conmon"): (KILL, TERM),
    ("running", "worker"): (KILL, TERM),
    ("running", "pasta"): (OWN, OWN),
    ("exiting", "launcher"): ({-9}, OWN),
    ("exiting", "podman"): (OWN, OWN),
    ("exiting", "conmon"): (OWN, OWN),
    ("exiting", "hook"): (OWN, OWN),
}
# Podman 4.3 records the worker's status after the runtime's clean-up: a client that dies in that leaves its own alone.
OLD = {("exiting", "launcher"): ({-9}, OWN | TERM), ("exiting", "podman"): (OWN | KILL, OWN | TERM)}


@pytest.mark.parametrize(("phase", "who", "how"), CASES, ids=lambda word: word.replace(" ", "-"))
def test_a_fault(phase: str, who: str, how: str, workspace: Path, site: Path) -> None:
    """The right status, nothing left, and a worker that ran had every wall."""
    before = inventory()
    held = hold(phase, workspace, site, "f")
    found = held.find(who)
    assert found, f"there is no {who}"
    for number in SIGNALS[how]:
        send(found, number)
    held.resume()
    if phase == "running" and who == "pasta":
        (workspace / "go").touch()
    status, _, err = held.live.end()
    left = settled(before, seconds=15)
    ran = (workspace / "ran").exists()
    assert left == {}, err
    released = "SANDBOX OK" in err
    if ran:
        assert json.loads((workspace / "ran").read_text()) in WALLED
        assert released, err
    elif not released and status != -9:
        assert status in ({125} if who != "launcher" else TERM), err
        assert "SANDBOX REFUSED" in err
    known = STATUS | OLD if is_old() else STATUS
    assert status in known[phase, who][how == "TERM"], err


@pytest.mark.parametrize("phase", THERE, ids=lambda word: word.replace(" ", "-"))
def test_who_is_not_there(phase: str, workspace: Path, site: Path) -> None:
    """What the matrix leaves out of a phase is not there to be killed; and without a fault all ends well."""
    before = inventory()
    held = hold(phase, workspace, site, "n")
    absent = [who for who in ALL if who not in THERE[phase]]
    assert {who: held.find(who) for who in absent} == {who: [] for who in absent}
    (workspace / "go").touch()
    held.resume()
    status, _, err = held.live.end()
    assert status == 0, err
    assert json.loads((workspace / "ran").read_text()) in WALLED
    assert settled(before) == {}
