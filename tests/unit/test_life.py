"""Identities, records and kept receipts: what is later said and done about a run rests on these."""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from launcher.life import identity, kept, lost, record, runs, sweep
from launcher.life.containers import Container
from launcher.life.identity import Identity
from launcher.life.record import Record
from launcher.run import directory
from launcher.run.directory import RELEASED, RunDirectory

WAITS = [sys.executable, "-I", "-S", "-c", "input()"]


@pytest.fixture
def process() -> "subprocess.Popen[bytes]":
    """Return a process that waits, and its identity can be looked at."""
    return subprocess.Popen(WAITS, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)


def end(process: "subprocess.Popen[bytes]") -> None:
    """End and reap a process."""
    process.kill()
    process.communicate()


def test_a_process_is_itself_while_it_lives(process: "subprocess.Popen[bytes]") -> None:
    """The identity holds while the process runs, and neither when it is a zombie nor when it is reaped."""
    who = identity.of(process.pid)
    assert who is not None
    assert identity.alive(who)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert Path(f"/proc/{process.pid}/stat").exists()
    assert not identity.alive(who)
    process.communicate()
    assert not identity.alive(who)
    assert identity.hold(who) is None


def test_another_process_under_the_number_is_not_signalled(process: "subprocess.Popen[bytes]") -> None:
    """A signal to an identity whose start differs reaches nobody; the control, with the right start, ends it."""
    who = identity.of(process.pid)
    assert who is not None
    for other in (who.replace(start=who.start - 1), who.replace(start=who.start + 1)):
        assert not identity.alive(other)
        assert not identity.send(other, signal.SIGKILL)
    assert process.poll() is None
    assert identity.send(who, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    process.communicate()


def test_a_name_with_parentheses() -> None:
    """A process may call itself anything; its start is still found."""
    words = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        "open('/proc/self/comm','w').write('a) Z 1 (b'); print(flush=True); input()",
    ]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    process.stdout.readline()
    who = identity.of(process.pid)
    end(process)
    assert who is not None
    assert who.start > 0


@pytest.mark.parametrize("pid", [0, -1, 1 << 31])
def test_a_number_that_is_no_process(pid: int) -> None:
    """Whatever a damaged record says, nobody is found, and nobody is signalled: 0 and -1 would be many."""
    assert not identity.send(Identity(pid=pid, start=0), signal.SIGKILL)


def sample(**changes: object) -> Record:
    """Return a record of this process."""
    good = Record(
        run="r1",
        boot_id=identity.boot_id(),
        launcher=identity.own(),
        started=1.5,
        image="localhost/x:1",
        command=("a", "b c"),
        net="none",
        names=("github.com",),
    )
    return good.replace(**changes)


def test_a_record_is_read_as_it_was_written() -> None:
    """What is written is read; a prepared run's has no launcher."""
    assert record.parse(sample().to_json()) == sample()
    prepared = sample(launcher=None, card="c")
    assert record.parse(prepared.to_json()) == prepared


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b'{"schema":1}',
        b'{"schema":2,"run":"x"}',
        sample().to_json()[:-1],
        sample().to_json().replace(b'"pid"', b'"pod"'),
        sample().to_json().replace(b'"net"', b'"nit"'),
    ],
)
def test_what_is_not_a_record(data: bytes) -> None:
    """Anything else is ValueError and no guess."""
    with pytest.raises(ValueError, match=r".+"):
        record.parse(data)


def test_an_owner_is_of_this_boot_and_alive() -> None:
    """The same process id in another boot, or with another start, is not the owner."""
    own = identity.own()
    assert sample().owned
    assert not sample(boot_id="0" * 36).owned
    assert not sample(launcher=own.replace(start=own.start - 1)).owned
    assert not sample(launcher=None).owned


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where receipts are kept in this test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "card-run/runs"


def test_a_receipt_is_kept_for_its_owner_alone(state: Path) -> None:
    """File and directory are ours alone, whatever the umask; a run id used again replaces receipt and output."""
    kept.keep("r1", {"n": 1})
    assert (state.stat().st_mode & 0o777, (state / "r1.json").stat().st_mode & 0o777) == (0o700, 0o600)
    (state / "r1.log").write_text("earlier output")
    kept.keep("r1", {"n": 2})
    found = runs.find("r1")
    assert isinstance(found, runs.Ended)
    assert found.receipt() == {"n": 2}
    assert [path.name for path in state.iterdir()] == ["r1.json"]


def test_the_newest_thousand_are_kept(state: Path) -> None:
    """The oldest go once a hundred are too many, with their output and what a killed process left; the newest stay."""
    state.mkdir(parents=True, mode=0o700)
    assert (kept.LIMIT, kept.SLACK) == (1000, 100)
    for number in range(kept.LIMIT + kept.SLACK - 1):
        (state / f"r{number}.json").write_text("{}")
        os.utime(state / f"r{number}.json", (number, number))
    for name in ("r0.log", f"r{kept.LIMIT}.log", ".half.1"):
        (state / name).write_text("")
        os.utime(state / name, (1, 1))
    (state / ".now.2").write_text("")
    kept.keep("last", {})
    assert len(runs.ended()) == kept.LIMIT + kept.SLACK
    kept.keep("newest", {})
    names = [one.run for one in runs.ended()]
    assert len(names) == kept.LIMIT
    assert set(names[:2]) == {"newest", "last"}
    assert names[2] == f"r{kept.LIMIT + kept.SLACK - 2}"
    others = sorted(path.name for path in state.iterdir() if not path.name.endswith(".json"))
    assert others == [".now.2", f"r{kept.LIMIT}.log"]


def test_a_directory_that_is_not_ours_alone_keeps_nothing(state: Path) -> None:
    """Receipts name commands and hosts: they are not written where others read, nor through a link."""
    state.mkdir(parents=True)
    state.chmod(0o755)
    with pytest.raises(PermissionError):
        kept.keep("r1", {})
    state.rmdir()
    (state.parent / "elsewhere").mkdir(mode=0o700)
    state.symlink_to(state.parent / "elsewhere")
    with pytest.raises(PermissionError):
        kept.keep("r1", {})
    assert list((state.parent / "elsewhere").iterdir()) == []


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: Path) -> Path:
    """Return an own runtime directory, and nothing kept."""
    assert not state.exists()
    path = tmp_path / "runtime"
    path.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(path))
    monkeypatch.setattr(directory, "parents", lambda: [f"{path}/card-run"])
    return path / "card-run"


def made(**changes: object) -> RunDirectory:
    """Make a run directory with a record."""
    run = directory.create("r1")
    run.write(directory.RECORD, sample(**changes).to_json())
    return run


def seen() -> str:
    """Return the state in which the run is seen."""
    found = runs.find("r1")
    assert isinstance(found, runs.Run)
    assert runs.living() == [found]
    return found.state


@pytest.mark.usefixtures("runtime")
def test_the_states_of_a_run() -> None:
    """From its directory to its end, each state follows from the files that are there."""
    assert runs.living() == []
    assert runs.find("r1") is None
    run = directory.create("r1")
    assert seen() == runs.STARTING
    run.write(directory.RECORD, sample().to_json())
    assert seen() == runs.STARTING
    run.write(RELEASED, b"")
    assert seen() == runs.RUNNING
    run.write("ledger.json", b"{}")
    assert seen() == runs.ENDING
    assert run.remove() == []
    assert runs.find("r1") is None


@pytest.mark.usefixtures("runtime")
@pytest.mark.parametrize(
    ("changes", "expected"), [({"launcher": None}, runs.PREPARED), ({"boot_id": "0" * 36}, runs.ORPHANED)]
)
def test_runs_without_a_launcher(changes: dict[str, object], expected: str) -> None:
    """One that was never started, and one of an earlier boot."""
    made(**changes)
    assert seen() == expected


@pytest.mark.usefixtures("runtime")
@pytest.mark.parametrize("name", ["../r1", "", ".", "R1", "r1/"])
def test_what_is_no_run_id_is_not_looked_for(name: str) -> None:
    """A name never becomes a path."""
    made()
    assert runs.find(name) is None


@pytest.mark.usefixtures("runtime")
def test_a_directory_has_one_that_answers_for_it() -> None:
    """While it is held nobody else takes it; let go of, one does; removed, nobody."""
    run = made()
    assert directory.take(run.path, wait=False) is None
    run.let_go()
    taken = directory.take(run.path, wait=False)
    assert taken is not None
    assert directory.take(run.path, wait=False) is None
    assert taken.remove() == []
    assert directory.take(run.path, wait=True) is None


@pytest.mark.usefixtures("runtime")
def test_a_new_run_of_the_same_name_is_not_taken_for_the_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waited for a directory that was then removed does not get the new one by mistake."""
    run = made()
    run.let_go()
    real = fcntl.flock

    def flock(fd: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", real)
        (taken := directory.take(run.path, wait=False)) and taken.remove()
        directory.create("r1").let_go()
        real(fd, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    assert directory.take(run.path, wait=True) is None


@pytest.mark.usefixtures("runtime")
def test_the_sweep_looks_for_what_nobody_answers_for(state: Path) -> None:
    """The first of a boot needs no look; then living and prepared runs are nothing to it, and an orphan is."""
    own = made().path
    assert sweep._needed(own)
    state.parent.mkdir(parents=True, mode=0o700)
    (state.parent / "swept").write_text(identity.boot_id())
    assert not sweep._needed(own)
    living = directory.create("r2")
    living.write(directory.RECORD, sample(run="r2", boot_id="0" * 36).to_json())
    assert not sweep._needed(own)  # locked: somebody is at it
    living.let_go()
    assert sweep._needed(own)
    living.write(directory.RECORD, sample(run="r2", launcher=None, started=time.time()).to_json())
    assert not sweep._needed(own)
    living.write(directory.RECORD, sample(run="r2", launcher=None).to_json())
    assert sweep._needed(own)


@pytest.mark.usefixtures("runtime")
def test_the_sweep_is_short(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many runs there are, the look ends in its time, and the next one begins with another."""
    state.parent.mkdir(parents=True, mode=0o700)
    (state.parent / "swept").write_text(identity.boot_id())
    for number in range(100):
        directory.create(f"p{number}").let_go()
    looked: list[str] = []

    def left(path: str) -> bool:
        looked.append(path)
        return False

    monkeypatch.setattr(sweep, "_left", left)
    monkeypatch.setattr(sweep, "_SECONDS", -1.0)
    first = set[int]()
    for pid in (7, 8, 9):
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        assert not sweep._needed(f"{directory.parent()}/own")
        first.add(len(set(looked)))
    assert first == {1, 2, 3}


def test_a_last_word_that_is_written_meanwhile_goes_too(tmp_path: Path) -> None:
    """A hook that was given up may still write into the directory while it is removed."""
    path = tmp_path / "run"
    path.mkdir()
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)

    def write() -> None:
        for number in range(40):
            with contextlib.suppress(FileNotFoundError):
                os.close(os.open(f"word{number}", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=fd))

    writer = threading.Thread(target=write)
    writer.start()
    left = RunDirectory(str(path), held=-1).remove()
    writer.join()
    os.close(fd)
    assert (left, path.exists()) == ([], False)


def container(**changes: Any) -> Container:
    """Return a container whose run directory is gone, as podman tells of one that ended."""
    known: dict[str, Any] = {"id": "0" * 64, "name": "card-r1", "run": "r1", "directory": "/gone/r1"}
    known |= {"status": "exited", "exit_code": 3, "oom": False, "created": 10.0, "started": 11.0, "finished": 12.0}
    known |= {"image": "localhost/i:latest", "network": "slirp4netns", "log": kept.log_path("r1")}
    return Container(**known | changes)


def test_a_receipt_of_what_a_container_tells(state: Path) -> None:
    """Status and end where podman saw them; what it did not see is not known, though it says exited with 0."""
    lost.keep(container())
    (found,) = [one.receipt() or {} for one in runs.ended()]
    assert (found["exit_status"], found["oom"], found["ended"], found["how"]) == (3, False, 12.0, "abandoned")
    assert (found["net"], found["detached"], found["command"]) == ("slirp", True, None)
    (state / "r1.json").unlink()
    before = time.time()
    lost.keep(container(exit_code=0, finished=None, log=""))
    (found,) = [one.receipt() or {} for one in runs.ended()]
    assert (found["exit_status"], found["oom"], found["detached"]) == (None, None, False)
    assert found["ended"] >= before


def test_a_container_that_never_started_has_no_receipt(state: Path) -> None:
    """Nothing ran in it."""
    lost.keep(container(started=None, finished=None, status="created"))
    assert not state.exists()


@pytest.mark.parametrize(("ended", "stands"), [(9, False), (10, True), (13, True)])
def test_the_runs_own_receipt_stands(state: Path, ended: float, *, stands: bool) -> None:
    """A receipt of an end after the container was made is its own or a later one's; an earlier run's is replaced."""
    kept.keep("r1", {"ended": ended, "detached": True})
    lost.keep(container())
    found = (runs.ended()[0].receipt() or {}).get("how")
    assert found == (None if stands else "abandoned")
    assert len(list(state.iterdir())) == 1


def test_output_alone(state: Path, runtime: Path) -> None:
    """Output that is newer than any receipt of its run, and that no directory is there for."""
    state.mkdir(parents=True, mode=0o700)
    for name in ("lost", "used", "over", "lives", "Not-A-Run"):
        (state / f"{name}.log").write_text("said")
    now = time.time()
    kept.keep("used", {"ended": now - 60, "detached": True})
    kept.keep("over", {"ended": now + 60, "detached": True})
    (runtime / "lives").mkdir(parents=True)
    assert lost.outputs() == ["lost", "used"]
    for run in lost.outputs():
        lost.keep_output(run)
    assert lost.outputs() == []
    assert (state / "lost.log").read_text() == "said"
