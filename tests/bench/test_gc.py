"""What is left of a run that nobody answers for any more: found, undone, and told; and nothing else is touched."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.life import identity, kept, orphans, runs
from launcher.life.record import Record
from tests.bench.cards import BUSYBOX, card, is_old, run
from tests.bench.lives import RUNS, RUNTIME, STATE, Live, begin, inventory, settled, until

DENIED = "import socket; s = socket.socket(); s.connect_ex(('203.0.113.99', 443)); s.close()"
WORKER = ["python3", "-c", f"{DENIED}\nopen('running', 'w').close()\nimport time; time.sleep(60)"]
EVERYONE = ("launcher", "leash", "podman", "conmon")


@pytest.fixture(scope="module", autouse=True)
def _warm() -> None:
    """Run a card first: podman's pause process, the runtime, and this boot's first cleaning."""
    assert card("--net=none", "--", "true").status == 0
    until(lambda: (STATE / "swept").exists() and not run(["pgrep", "-f", "sweep.clean"]).out)


@pytest.fixture(autouse=True)
def nothing_left_at_all() -> Iterator[None]:
    """Compare everything there is after the test with what there was before."""
    before = inventory()
    yield
    assert settled(before) == {}


def collected(*options: str) -> tuple[int, list[dict[str, Any]]]:
    """Run `card gc`; return its status and findings."""
    done = run(["card", "gc", "--json", *options])
    assert "Traceback" not in done.err
    return done.status, [json.loads(line) for line in done.out.splitlines()]


def left_behind(workspace: Path, run_id: str, *options: str, kill: tuple[str, ...] = EVERYONE) -> Live:
    """Start a card and kill those who would clean up after it, all at once."""
    live = begin(run_id, f"--write={workspace}", *options, worker=WORKER)
    until((workspace / "running").exists)
    live.kill_all(*kill)
    live.end()
    return live


def receipt(run_id: str) -> dict[str, Any]:
    """Return a kept receipt."""
    found = runs.find(run_id)
    assert isinstance(found, runs.Ended)
    return found.receipt() or {}


@pytest.mark.parametrize("options", [(), ("--net=none",), ("--net=bridge",), ("--user=root",)], ids=" ".join)
def test_all_who_knew_of_it_are_killed(workspace: Path, options: tuple[str, ...]) -> None:
    """card-run, its leash, podman and conmon gone at once: all is undone, the ledger read, and the receipt says how."""
    left_behind(workspace, "r1", *options)
    assert (RUNS / "r1/netns").exists()
    before = sorted(path.name for path in (RUNS / "r1").iterdir())
    assert collected("--dry-run") == (0, [{"run": "r1", "why": "its card-run is gone", "undone": False, "left": []}])
    assert sorted(path.name for path in (RUNS / "r1").iterdir()) == before
    assert collected() == (0, [{"run": "r1", "why": "its card-run is gone", "undone": True, "left": []}])
    told = receipt("r1")
    assert (told["how"], told["run"], told["image"]) == ("abandoned", "r1", "localhost/card-run/card:latest")
    if options != ("--net=none",):
        assert [row["address"] for row in told["ledger"]["denied"]] == ["203.0.113.99"]
    assert collected() == (0, [])


def test_card_run_and_its_leash_killed(workspace: Path) -> None:
    """What podman and conmon do by themselves is not done twice; the recorded status is the worker's, KILL."""
    live = left_behind(workspace, "r1", kill=("launcher", "leash"))
    until(lambda: not live.find("podman") and not live.find("conmon"))
    assert collected()[0] == 0
    told = receipt("r1")
    assert (told["how"], told["exit_status"], told["oom"]) == ("abandoned", 137, False)
    assert [row["address"] for row in told["ledger"]["denied"]] == ["203.0.113.99"]


def test_the_leash_alone_does_all_of_it(workspace: Path) -> None:
    """card-run killed, its leash not: nothing is left for `card gc`, and the receipt is kept."""
    left_behind(workspace, "r1", kill=("launcher",))
    until(lambda: not (RUNS / "r1").exists())
    assert collected() == (0, [])
    assert receipt("r1")["how"] == "abandoned"


def test_the_next_card_cleans_up(workspace: Path) -> None:
    """A card that starts has what was left behind undone, in the background."""
    left_behind(workspace, "r1")
    assert card("--net=none", "--run=r2", "--", "true").status == 0
    until(lambda: not (RUNS / "r1").exists())
    assert receipt("r1")["how"] == "abandoned"
    assert receipt("r2")["how"] == "exited"


def test_a_running_card_is_left_alone(workspace: Path) -> None:
    """The control: nothing of a card whose card-run lives is touched, however often one looks."""
    live = begin("r1", f"--write={workspace}", worker=["sh", "-c", "touch running; until [ -e go ]; do sleep .1; done"])
    until((workspace / "running").exists)
    for _ in range(3):
        assert collected() == (0, [])
    (workspace / "go").touch()
    assert live.end()[0] == 0


def sample(run_id: str, **changes: Any) -> Record:
    """Return the record of a run whose card-run is gone: this process, under another start time."""
    own = identity.own()
    return Record(
        run=run_id,
        boot_id=identity.boot_id(),
        launcher=own.replace(start=own.start - 1),
        started=time.time(),
        image=BUSYBOX,
        command=("true",),
        net="none",
        names=(),
    ).replace(**changes)


def plant(run_id: str, **changes: Any) -> Path:
    """Make the directory of such a run, as its card-run would have left it."""
    path = RUNS / run_id
    (path / "card").mkdir(parents=True)
    path.chmod(0o700)
    (path / "record.json").write_bytes(sample(run_id, **changes).to_json())
    return path


def test_an_unrelated_process_under_the_recorded_number_is_not_touched() -> None:
    """The recorded number now belongs to another process: the run is undone, and that process lives on."""
    words = [sys.executable, "-I", "-c", "input()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as other:
        who = identity.of(other.pid)
        assert who is not None
        plant("r1", launcher=who.replace(start=who.start - 1))
        plant("r2", launcher=who, boot_id="00000000-0000-0000-0000-000000000000")
        # The control: with its own start time, it answers for the run.
        path = plant("r3", launcher=who)
        status, found = collected()
        assert (status, {one["run"]: one["undone"] for one in found}) == (0, {"r1": True, "r2": True})
        assert path.exists()
        assert other.poll() is None
        other.communicate(b"\n")
    assert [one["run"] for one in collected()[1]] == ["r3"]


def test_a_container_that_is_not_the_runs_is_not_touched(tmp_path: Path) -> None:
    """A recorded id, or a name, of a container that does not carry the run's annotations: it runs on."""
    names = ("someone", "card-r2")
    for name in names:
        run(["podman", "run", "--detach", "--pull=never", f"--name={name}", "--network=none", BUSYBOX, "sleep", "60"])
    other = run(["podman", "container", "inspect", "--format={{.Id}}", "someone"]).out
    (plant("r1") / "cid").write_text(other)
    plant("r2")
    try:
        assert collected()[0] == 0
        assert sorted(run(["podman", "ps", "--format={{.Names}}"]).out.split()) == sorted(names)
        assert list(RUNS.iterdir()) == []
    finally:
        run(["podman", "rm", "--force", "--time=0", *names])
    assert tmp_path.exists()


def test_another_namespace_than_the_recorded_one_is_not_entered(workspace: Path) -> None:
    """With another inode recorded, no ledger is read from the pinned namespace; it is only let go of."""
    live = left_behind(workspace, "r1")
    # Podman's own clean-up would come first: the container is taken away without the hook.
    facts = json.loads((live.path / "hook.json").read_text())
    facts["facts"]["netns"] += 1
    (live.path / "hook.json").write_text(json.dumps(facts))
    assert collected()[0] == 0
    assert receipt("r1")["ledger"] is None


def test_two_at_once_and_a_start(workspace: Path) -> None:
    """Three `card gc` and four cards together: every run is undone once, every card returns its own status."""
    for number in range(8):
        plant(f"stale{number}")
    left_behind(workspace, "real")
    collectors = [
        subprocess.Popen(["card", "gc", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    started = [begin(f"n{n}", "--net=none", worker=["sh", "-c", f"exit {n}"]) for n in range(1, 5)]
    assert [live.end()[0] for live in started] == [1, 2, 3, 4]
    found: list[str] = []
    for one in collectors:
        out, err = one.communicate(timeout=60)
        assert (one.returncode, err) == (0, "")
        found += [json.loads(line)["run"] for line in out.splitlines() if json.loads(line)["undone"]]
    until(lambda: not any(RUNS.iterdir()))  # the cards' own cleaner may have had some
    assert len(found) == len(set(found))
    assert set(found) <= {"real", *(f"stale{number}" for number in range(8))}


def test_prepared_runs_are_left_for_a_day() -> None:
    """A run without a launcher is left until it is older than the stated age."""
    day = orphans.PREPARED_SECONDS
    assert day == 25 * 3600
    plant("young", launcher=None, started=time.time() - day + 600)
    plant("old", launcher=None, started=time.time() - day - 1)
    assert [one["run"] for one in collected()[1]] == ["old"]
    (RUNS / "young/record.json").write_bytes(sample("young", launcher=None, started=time.time() - day - 1).to_json())
    assert [one["run"] for one in collected()[1]] == ["young"]


def test_a_directory_without_a_record() -> None:
    """Left while it is young, and for ever when it holds what no card-run makes; removed when it was only begun."""
    for name in ("begun", "young", "foreign"):
        (RUNS / name / "card").mkdir(parents=True)
        (RUNS / name / "plan.lock").touch()
    (RUNS / "foreign/precious").touch()
    for name in ("begun", "foreign"):
        os.utime(RUNS / name, (1, 1))
    assert [one["run"] for one in collected()[1]] == ["begun"]
    assert sorted(path.name for path in RUNS.iterdir()) == ["foreign", "young"]
    run(["rm", "-r", str(RUNS / "foreign"), str(RUNS / "young")])


def test_what_cannot_be_removed_is_told_and_stays_recorded() -> None:
    """A line says what is left, exit status 1, and the record is there for the next time, when it goes."""
    path = plant("r1")
    (path / "stuck").mkdir()
    (path / "stuck/file").touch()
    (path / "stuck").chmod(0o500)
    done = run(["card", "gc"])
    assert done.status == 1
    assert f"{path}/stuck/file: Permission denied" in done.out
    assert runs.read_record(str(path)) is not None
    (path / "stuck").chmod(0o700)
    assert collected() == (0, [{"run": "r1", "why": "its card-run is gone", "undone": True, "left": []}])


def stray(run_id: str, top: Path, **other: str) -> None:
    """Make a container that carries a run's annotations, as a podman that was killed may leave one."""
    told = {"org.card-run.run": run_id, "org.card-run.directory": f"{top}/{run_id}", **other}
    words = [f"--annotation={key}={value}" for key, value in told.items()]
    made = run(["podman", "create", "--pull=never", f"--name=card-{run_id}", *words, BUSYBOX, "true"])
    assert made.status == 0, made.err


@pytest.mark.parametrize("how", ["gc", "start"])
def test_a_container_without_a_run_directory(how: str) -> None:
    """Found by its annotations and removed, by `card gc` or once in each boot; one of another place is not."""
    stray("r1", RUNS)
    stray("r2", Path("/elsewhere"))
    stray("r3", RUNS, **{"org.card-run.run": "r4"})
    if how == "gc":
        why = "its container was left without a run directory"
        assert collected() == (0, [{"run": "r1", "why": why, "undone": True, "left": []}])
    else:
        (STATE / "swept").write_text("an earlier boot")
        assert card("--net=none", "--", "true").status == 0
        until(lambda: (STATE / "swept").read_text() == identity.boot_id())
    assert sorted(run(["podman", "ps", "--all", "--format={{.Names}}"]).out.split()) == ["card-r2", "card-r3"]
    run(["podman", "rm", "card-r2", "card-r3"])


def test_a_runtime_directory_that_outlived_the_boot(workspace: Path) -> None:
    """Records of an earlier boot, with its container and the leavings of its pin: undone."""
    live = left_behind(workspace, "r1")
    record = runs.read_record(str(live.path))
    assert record is not None
    (live.path / "record.json").write_bytes(record.replace(boot_id="0" * 36).to_json())
    run(["podman", "unshare", "umount", str(live.path / "netns")])
    assert collected() == (0, [{"run": "r1", "why": "it is of an earlier boot", "undone": True, "left": []}])
    assert receipt("r1")["ledger"] is None


def without_poststop(folder: Path) -> dict[str, str]:
    """Return an environment in which podman drops our poststop hook."""
    from tests.bench.test_proof import COPY, stand_in

    change = COPY.replace("prestart.json", "poststop.json") + 'os.rename(path, path + ".off")'
    return stand_in(folder, 'if "run" in argv:\n' + textwrap.indent(change, "    "))


def test_poststop_never(tmp_path: Path) -> None:
    """Podman forgets the poststop hook: card-run does its work, the ledger is in the receipt and the pin is gone."""
    words = ["--", "python3", "-c", DENIED]
    done = card("-q", *words, receipt=tmp_path / "r.json", env=without_poststop(tmp_path))
    assert (done.status, done.err) == (0, "")
    assert [row["address"] for row in done.receipt["ledger"]["denied"]] == ["203.0.113.99"]
    assert (tmp_path / "hooks.d/50-card-run-poststop.json.off").exists()


def test_poststop_twice(workspace: Path) -> None:
    """Run twice while the card's own is still to come, and once when all is over: ledger and receipt are the same."""
    live = begin("r1", "-q", f"--write={workspace}", f"--json={workspace}/r.json", worker=WORKER)
    until((workspace / "running").exists)
    argv = runtime_hook()
    state = json.dumps({"id": "x", "status": "stopped", "bundle": "/", "annotations": notes("r1")})
    ledgers: list[Any] = []
    for _ in range(2):
        assert run([*argv, "poststop"], input=state).status == 0
        ledgers.append(json.loads((live.path / "ledger.json").read_text()))
    # The worker runs, and nothing is accounted for yet.
    assert live.find("worker")
    assert (workspace / "r.json").read_text() == ""
    assert live.signal("worker", signal.SIGTERM)
    assert live.end()[0] == 143
    told = json.loads((workspace / "r.json").read_text())
    assert [row["address"] for row in told["ledger"]["denied"]] == ["203.0.113.99"]
    assert ledgers == [told["ledger"]] * 2
    assert receipt("r1") == told
    assert run([*argv, "poststop"], input=state).status == 0  # cleaned up already


def runtime_hook() -> list[str]:
    """Return how a hook is started where podman's mounts are."""
    from launcher import runtime

    return ["podman", "unshare", *runtime.ensure().hook_argv]


def notes(run_id: str) -> dict[str, str]:
    """Return the annotations by which the hook finds a run."""
    return {"org.card-run.run": run_id, "org.card-run.directory": str(RUNS / run_id)}


# Each place, and whether podman itself works with it: 5, and Debian 12's. card-run's own is then the session's.
PLACES = {
    "unset": (None, True, True),
    "missing": ("/nonexistent", False, False),
    "relative": ("run", False, False),
    "another user's": ("/run", False, False),
    "everybody's": ("/tmp", True, False),
}


def without_session() -> dict[str, str]:
    """Return the environment without a runtime directory in it."""
    return {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}


@pytest.mark.parametrize("what", PLACES)
def test_a_runtime_directory_that_cannot_be_used(what: str) -> None:
    """The session's own is used, or podman refuses in its own words; never a place that others can write."""
    place, *works = PLACES[what]
    usable = works[is_old()]
    environment = without_session() | ({} if place is None else {"XDG_RUNTIME_DIR": place})
    done = card("-q", "--net=none", "--", "echo", "ran", env=environment)
    try:
        if usable:
            assert (done.status, done.out, done.err) == (0, "ran\n", "")
        else:
            assert (done.status, done.out, done.reasons) == (125, "", ["podman-failed"])
            assert is_old() or "Failed to obtain podman configuration" in done.err
        assert not any(Path(top, "card-run").exists() for top in ("/run", "/tmp"))
    finally:
        # Podman itself takes any place, and leaves its pause process there.
        run(["podman", "system", "migrate"], env=environment)
        run(["sh", "-c", "rm -rf /tmp/libpod /tmp/containers /tmp/crun /tmp/netns"])


@pytest.fixture
def no_session() -> Iterator[None]:
    """Make the session's directory one that others may look into: it is not used then."""
    RUNTIME.chmod(0o755)
    yield
    RUNTIME.chmod(0o700)


@pytest.mark.usefixtures("no_session")
@pytest.mark.parametrize(
    ("mode", "reasons"), [(None, ["no-runtime-directory"]), (0o755, ["no-runtime-directory"]), (0o700, [])]
)
def test_a_bench_without_a_session(mode: int | None, reasons: list[str], tmp_path: Path) -> None:
    """The run is where runtime directories are without a session, if that is ours alone; else it is refused."""
    environment, place = without_session() | {"TMPDIR": str(tmp_path)}, tmp_path / f"podman-run-{os.getuid()}"
    if mode is not None:
        place.mkdir()
        place.chmod(mode)
    done = card("-q", "--net=none", "--", "echo", "ran", env=environment)
    assert (done.status, done.out, done.reasons) == (125 if reasons else 0, "" if reasons else "ran\n", reasons)
    assert (place / "card-run").exists() is not bool(reasons)
    if not reasons:
        assert (place / "card-run").stat().st_mode & 0o777 == 0o700
        assert list((place / "card-run").iterdir()) == []


def test_a_state_directory_that_cannot_be_written(tmp_path: Path) -> None:
    """The receipt cannot be kept: the worker's status is returned, and a line says so."""
    (tmp_path / "state").touch()
    done = card("--net=none", "--", "sh", "-c", "exit 3", env={**os.environ, "XDG_STATE_HOME": f"{tmp_path}/state"})
    assert done.status == 3
    assert "NOTE the receipt could not be kept" in done.err
    assert kept.directory() == str(STATE / "runs")
