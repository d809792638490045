"""What is left of a podman that was killed in creation, of a card command that was killed, and of a boot that ended."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.life import gc, services
from tests.bench.cards import BUSYBOX, IMAGE, card, is_old, run
from tests.bench.lives import (
    RUNS,
    RUNTIME,
    STATE,
    STORAGE,
    arguments,
    begin,
    below,
    inventory,
    name_of,
    processes,
    send,
    settled,
    until,
)
from tests.bench.test_gc import collected, left_behind, plant, receipt

STORED = [STORAGE / "overlay-containers" / name for name in ("containers.json", "volatile-containers.json")]


@pytest.fixture(autouse=True)
def nothing_left_at_all(used_bench: None) -> Iterator[None]:
    """Compare everything there is after the test with what there was before, this boot's first cleaning over."""
    del used_bench
    until(lambda: (STATE / "swept").exists() and not run(["pgrep", "-f", "sweep.clean"]).out)
    before = inventory()
    yield
    assert settled(before) == {}


def stored(name: str) -> bool:
    """Return whether podman's storage has something under a container's name, read without podman."""
    return any(path.exists() and f'"{name}"' in path.read_text() for path in STORED)


def known(name: str) -> bool:
    """Return whether podman knows a container."""
    return run(["podman", "container", "exists", name]).status == 0


def killed_in_creation(run_id: str) -> None:
    """Kill podmans, each as soon as it has made a container's storage, until one did not know of the container yet."""
    name = f"card-{run_id}"
    for _ in range(50):
        words = ["podman", "create", "--pull=never", f"--name={name}", BUSYBOX, "true"]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, start_new_session=True) as podman:
            while not stored(name):
                assert podman.poll() is None
            os.killpg(podman.pid, signal.SIGKILL)
        if not known(name):
            break
        assert run(["podman", "rm", name]).status == 0
    assert stored(name)
    assert run(["podman", "ps", "--all", "--quiet"]).out == ""


def test_storage_that_podman_never_knew_of_goes_with_its_run() -> None:
    """A run directory and nothing of podman's but storage under the name: `card gc` removes both."""
    plant("r1")
    killed_in_creation("r1")
    assert collected() == (0, [{"run": "r1", "why": "its card-run is gone", "undone": True, "left": []}])
    assert not stored("card-r1")


def test_storage_without_a_run_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Left for ten minutes, in which a podman may be about to make it a container; removed then."""
    killed_in_creation("r1")
    assert gc.CREATION_SECONDS == 600
    assert collected() == (0, [])
    assert stored("card-r1")
    monkeypatch.setattr(gc, "CREATION_SECONDS", 0)
    plant("r1")  # whose it would be; its own test is above
    (RUNS / "r1/foreign").touch()
    (RUNS / "r1/record.json").unlink()
    assert gc.collect() == []
    run(["rm", "-r", str(RUNS / "r1")])
    why = "podman was killed while it made its container"
    assert [one.as_dict() for one in gc.collect(dry=True)] == [{"run": "r1", "why": why, "undone": False, "left": ()}]
    assert stored("card-r1")
    assert [one.as_dict() for one in gc.collect()] == [{"run": "r1", "why": why, "undone": True, "left": ()}]
    assert not stored("card-r1")


def test_other_storage_is_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is no run's, and a container that podman has, stay whatever their age."""
    monkeypatch.setattr(gc, "CREATION_SECONDS", 0)
    killed_in_creation("Not-A-Run")
    try:
        assert run(["podman", "create", "--pull=never", "--name=card-r1", BUSYBOX, "true"]).status == 0
        plant("r1")
        assert [one.run for one in gc.collect()] == ["r1"]
        assert known("card-r1")
        assert stored("card-Not-A-Run")
    finally:
        run(["podman", "rm", "--force", "card-r1"])
        run(["podman", "rm", "--force", "card-Not-A-Run"])


def test_a_card_whose_podman_is_killed_in_creation() -> None:
    """card-run refuses, and leaves no storage behind; the same id starts at once."""
    for _ in range(20):
        live = begin("r1", "--net=none", worker=["true"])
        found: list[int] = []
        while not stored("card-r1"):
            found = live.find("podman") or found
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        knew = known("card-r1")
        status, _, err = live.end()
        assert status == 125, err
        assert "SANDBOX REFUSED" in err
        assert not stored("card-r1")
        if not knew:
            break
    else:
        pytest.fail("podman always knew of its container")
    assert card("--net=none", "--run=r1", "--", "true").status == 0


def reboot() -> None:
    """Do what a reboot does to podman: no process of it left, the runtime directory empty."""
    for pid in run(["pgrep", "-x", "catatonit"]).out.split():
        os.kill(int(pid), signal.SIGKILL)
    run(["sh", "-c", f"rm -rf {RUNTIME}/* {RUNTIME}/.[a-z]* /dev/shm/libpod*"])


def test_the_bench_was_rebooted(workspace: Path) -> None:
    """The runtime directory is gone, podman's storage is not: after `card gc` the container is gone too.

    Podman 5 removes it itself before anybody can ask; what Debian 12's still has, a receipt is made of.
    """
    begun = time.time()
    left_behind(workspace, "r1", "--net=none")
    assert any(len(path.name) == 64 for path in (STORAGE / "overlay-containers").iterdir())
    reboot()
    status, found = collected()
    assert (status, [(one["run"], one["undone"]) for one in found]) == (0, [("r1", True)] if is_old() else [])
    assert run(["podman", "ps", "--all", "--external", "--quiet"]).out == ""
    if is_old():
        told = receipt("r1")
        assert (told["how"], told["image"], told["net"], told["detached"]) == ("abandoned", IMAGE, "none", False)
        assert begun - 1 < told["started"] < told["ended"] < time.time() + 1
        assert {told[name] for name in ("exit_status", "oom", "command", "names", "ledger", "card")} == {None}
        assert "is not known" in told["notes"][0]
    assert card("--net=none", "--", "true").status == 0


def detached(folder: Path, run_id: str, **options: Any) -> list[int]:
    """Start a detached card; return its processes, conmon's too, once its worker runs."""
    worker = ["sh", "-c", "echo said; touch running; sleep 60"]
    done = card("-q", "-d", f"--run={run_id}", "--net=none", f"--write={folder}", "--", *worker, **options)
    assert done.out == f"{run_id}\n", done.err
    until((folder / "running").exists)
    (conmon,) = [pid for pid in processes() if name_of(pid) == "conmon"]
    (answers,) = [pid for pid in processes() if f"--run={run_id}" in arguments(pid) and name_of(pid) != "card-keeper"]
    return [answers, *below(answers), conmon]


@pytest.mark.parametrize("before", ["new", "used"])
def test_a_detached_card_whose_bench_was_rebooted(before: str, workspace: Path) -> None:
    """Its output is read, its end is told, and `card wait` says that the status is not known; with a new id or not."""
    if before == "used":
        assert card("--net=none", "--run=gone", "--", "true").status == 0
    all_of_it = detached(workspace, "gone")
    assert collected() == (0, [])  # it lives
    for number in (signal.SIGSTOP, signal.SIGKILL):
        send(all_of_it, number)
    reboot()
    # The first card of a boot has it done; here by hand, to know when.
    status, found = collected("--dry-run")
    assert (status, [one["undone"] for one in found]) == (0, [False])
    status, found = collected()
    assert (status, [(one["run"], one["undone"]) for one in found]) == (0, [("gone", True)])
    assert collected() == (0, [])
    told: dict[str, Any] = json.loads(run(["card", "show", "--json", "gone"]).out)
    assert (told["state"], told["how"], told["detached"], told["exit_status"]) == ("ended", "abandoned", True, None)
    shown = run(["card", "show", "gone"])
    assert (shown.status, "is not known" in shown.out) == (0, True), shown.err
    assert run(["card", "logs", "gone"]).out == "said\n"
    waited = run(["card", "wait", "gone"])
    assert (waited.status, waited.out) == (125, "125\n")
    assert "abandoned" in waited.err
    listed = [json.loads(line) for line in run(["card", "ps", "--all", "--json"]).out.splitlines()]
    assert [row["how"] for row in listed if row["run"] == "gone"] == ["abandoned"]
    assert "abandoned" in run(["card", "ps", "--all"]).out
    assert card("-q", "--net=none", "--run=gone", "--", "true").status == 0
    assert receipt("gone")["how"] == "exited"
    assert run(["card", "logs", "gone"]).status != 0


def test_output_of_a_card_that_lives_elsewhere(workspace: Path, tmp_path: Path) -> None:
    """A detached card whose runtime directory is not ours: its monitor writes its output, so it is somebody's."""
    (tmp_path / "run").mkdir(mode=0o700)
    elsewhere = {**os.environ, "XDG_RUNTIME_DIR": f"{tmp_path}/run"}
    processes = detached(workspace, "lives", env=elsewhere)
    assert (tmp_path / "run/card-run/lives").exists()
    assert collected() == (0, [])
    send(processes[:1], signal.SIGTERM)
    until(lambda: not (tmp_path / "run/card-run/lives").exists())
    assert receipt("lives")["exit_status"] == 143
    run(["podman", "system", "migrate"], env=elsewhere)  # podman's pause process of that place


def places() -> list[Path]:
    """Return the directories of the services that were started to ask podman."""
    return sorted(RUNTIME.glob(f"{services.PREFIX}*"))


def serving() -> list[int]:
    """Return the processes of such services."""
    return [pid for pid in processes() if any(services.PREFIX in word for word in arguments(pid))]


@pytest.fixture
def running(workspace: Path) -> Iterator[None]:
    """Have a card run meanwhile: only then `card ps` asks podman."""
    live = begin("r1", "--net=none", f"--write={workspace}", worker=["sh", "-c", "touch running; sleep 60"])
    until((workspace / "running").exists)
    yield
    live.signal("launcher", signal.SIGTERM)
    assert live.end()[0] == 143


def asking() -> "subprocess.Popen[str]":
    """Start a `card ps`, and stop it while a podman of its own serves it."""
    for _ in range(20):
        process = subprocess.Popen(["card", "ps"], stdout=subprocess.PIPE, text=True)
        while process.poll() is None and not any(place.joinpath("podman.sock").exists() for place in places()):
            pass
        send([process.pid], signal.SIGSTOP)
        if process.poll() is None and serving() and places():
            return process
        send([process.pid], signal.SIGCONT)
        process.communicate()
    raise AssertionError("card ps was never seen to ask podman")


@pytest.mark.usefixtures("running")
def test_a_service_whose_card_was_killed() -> None:
    """While its card lives, if only stopped, it is left alone; then the service is ended and its directory goes."""
    process = asking()
    (place,) = places()
    os.utime(place, (1, 1))
    before = serving()
    assert collected() == (0, [])
    assert serving() == before
    process.kill()
    process.communicate()
    assert serving() == before
    why = f"{place} was left by a card command that was killed"
    assert collected("--dry-run") == (0, [{"run": "-", "why": why, "undone": False, "left": []}])
    assert serving() == before
    assert collected() == (0, [{"run": "-", "why": why, "undone": True, "left": []}])
    assert (serving(), places()) == ([], [])


@pytest.mark.usefixtures("running")
def test_the_directory_of_a_service_that_ended() -> None:
    """Left while it is young, since its card may be about to start the service, and removed then."""
    process = asking()
    process.kill()
    process.communicate()
    send(serving(), signal.SIGKILL)
    until(lambda: not serving())
    (place,) = places()
    assert collected() == (0, [])
    os.utime(place, (1, 1))
    assert [one["undone"] for one in collected()[1]] == [True]
    assert places() == []
