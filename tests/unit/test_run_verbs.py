"""The verbs of runs, without podman: what they say of runs that no card-run answers for, and how one is stopped."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer

from hooks import rundir
from launcher import service
from launcher.life import identity, kept, runs
from launcher.life.record import Record
from launcher.run import directory, entry
from launcher.run.directory import RELEASED, WARM_CARD
from launcher.verbs import denials, ending, gc, logs, named, ps, show, stop, wait
from launcher.verbs import exec as enter
from oci import records
from oci.refusal import Refusal, Refused

# A card-run: removes its directory on TERM, and is stopped until somebody lets it go on.
LAUNCHER = """
import os, shutil, signal, sys
def end(*_):
    shutil.rmtree(sys.argv[1])
    os._exit(0)
signal.signal(signal.SIGTERM, end if sys.argv[2] == "polite" else signal.SIG_IGN)
print("up", flush=True)
while True:
    signal.pause()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where run directories are; receipts are the test's own too, and there is no podman."""
    for name in ("state", "runtime", "bin"):
        (tmp_path / name).mkdir(mode=0o700)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(directory, "parents", lambda: [f"{tmp_path}/runtime/card-run"])
    return tmp_path / "runtime/card-run"


def record(run: str, **changes: Any) -> Record:
    """Return a record of this process."""
    good = Record(
        run=run,
        boot_id=identity.boot_id(),
        launcher=identity.own(),
        started=time.time(),
        image="localhost/x:1",
        command=("true",),
        net="none",
        names=(),
    )
    return good.replace(**changes)


def made(run: str, *files: str, **changes: Any) -> Record:
    """Make a run's directory, which nobody holds."""
    held = directory.create(run)
    made = record(run, **changes)
    held.write(directory.RECORD, made.to_json())
    for name in files:
        held.write(name, b"{}")
    held.let_go()
    return made


@contextlib.contextmanager
def launched(place: Path, run: str, kind: str = "polite") -> Generator["subprocess.Popen[str]"]:
    """Have a process answer for a run."""
    words = [sys.executable, "-c", LAUNCHER, str(place / run), kind]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == "up\n"
        made(run, RELEASED, launcher=identity.of(launcher.pid))
        try:
            yield launcher
        finally:
            launcher.kill()


def stopped(*words: str, seconds: float | None = None, every: bool = False) -> int:
    """Stop runs and return the exit status."""
    with pytest.raises(typer.Exit) as ended:
        stop.stop(list(words), every=every, seconds=seconds)
    return ended.value.exit_code


def refused(call: Callable[[], object]) -> list[tuple[str, str]]:
    """Return the reasons and texts that a call is refused for."""
    with pytest.raises(Refused) as error:
        call()
    return [(refusal.reason, refusal.text) for refusal in error.value.refusals]


KINDS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "prepared": ((), {"launcher": None}),
    "unattended": ((rundir.NETNS,), {"launcher": None}),
    "warm": ((WARM_CARD,), {}),
}


@pytest.mark.parametrize("state", KINDS)
def test_nobody_waits_for_what_no_card_run_answers_for(state: str) -> None:
    """It is refused by name and at once, and not said to have ended."""
    files, changes = KINDS[state]
    made("r1", *files, **changes)
    start = time.monotonic()
    assert refused(lambda: wait.wait(["r1"])) == [("not-running", f"r1 is {state}")]
    assert time.monotonic() - start < 5


def test_a_warm_card_is_not_stopped(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Named, it is refused and nothing else is ended either; --all passes over it, and over a prepared one."""
    for run, state in (("r1", "warm"), ("r3", "prepared")):
        files, changes = KINDS[state]
        made(run, *files, **changes)
    with launched(place, "r2") as other:
        assert refused(lambda: stop.stop(["r2", "r1"])) == [("not-running", "r1 is warm")]
        assert other.poll() is None
        assert stopped(every=True) == 0
        assert capsys.readouterr().out == "r2\n"
    assert (place / "r1").exists()
    assert (place / "r3").exists()


def test_a_prepared_card_is_discarded(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Named, nothing is left of it, no receipt either; one that podman has just started is left alone, and said so."""
    for run in ("r1", "r2", "r3"):
        made(run, launcher=None)
    podman(place, monkeypatch)
    look = runs.look

    def started(path: str) -> runs.Run | None:
        found = look(path)
        if path.endswith("r2"):
            (place / "r2" / rundir.NETNS).touch()
        return found

    monkeypatch.setattr(runs, "look", started)
    assert stopped("r1", "r2") == 1
    assert capsys.readouterr() == ("r1\n", "NOTE r2 could not be discarded (it was started just now)\n")
    assert sorted(path.name for path in place.iterdir()) == ["r2", "r3"]
    assert runs.ended() == []
    with pytest.raises(typer.Exit):
        gc.gc()
    assert capsys.readouterr().err == "prepared, and may be started for a day: 1 (card stop r3 discards)\n"


def test_a_prepared_card_has_no_denials_yet() -> None:
    """It is refused by what it is, and told how to discard it."""
    made("r1", launcher=None)
    with pytest.raises(Refused) as error:
        denials.denials("r1")
    (refusal,) = error.value.refusals
    assert (refusal.reason, refusal.text) == ("not-running", "r1 is prepared")
    assert "card stop r1 discards it" in refusal.hint


def test_a_living_card_is_shown_with_what_it_was_given(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    """The rows are those of its receipt later."""
    made("r1")
    (place / "r1/card/stage2.conf").write_bytes(records.dump([("write", "/w"), ("read", "/a"), ("read", "/b")]))
    show.show(["r1"], as_json=True)
    roots = json.loads(capsys.readouterr().out)["filesystem"]
    assert roots == [
        {"access": access, "path": path} for access, path in (("read", "/a"), ("read", "/b"), ("write", "/w"))
    ]
    show.show(["r1"])
    assert "\nwrite" in capsys.readouterr().out


def test_a_prepared_run_that_has_run_is_cleaned_up(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its ledger is kept and its directory gone when its id is printed."""
    made("r1", rundir.LEDGER, launcher=None)
    podman(place, monkeypatch)
    assert stopped("r1") == 0
    assert (capsys.readouterr().out, (place / "r1").exists()) == ("r1\n", False)


NO_CONTAINERS = """
case "$*" in
    *inspect*) echo no such container >&2; exit 125;;
    *" ps "*) echo "[]";;
esac
"""


def podman(place: Path, monkeypatch: pytest.MonkeyPatch, script: str = NO_CONTAINERS) -> None:
    """Name a podman that has no container."""
    path = place.parents[1] / "bin/podman"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("CARD_RUN_PODMAN", str(path))


ORPHAN = {"boot_id": "0" * 36}


def test_an_orphan_is_undone(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What is printed as stopped is gone, and its receipt is kept as `card gc` keeps it."""
    made("r1", RELEASED, **ORPHAN)
    podman(place, monkeypatch)
    assert stopped("r1") == 0
    assert (capsys.readouterr().out, (place / "r1").exists()) == ("r1\n", False)
    assert isinstance(runs.find("r1"), runs.Ended)


def test_an_orphan_that_cannot_be_undone(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is not claimed to have ended: no id, a note, exit status 1; without a podman it could not be tried."""
    made("r1", RELEASED, **ORPHAN)
    assert refused(lambda: stop.stop(["r1"])) == [("no-podman", "r1: podman is not on PATH")]
    podman(place, monkeypatch, "echo the database is locked >&2; exit 125")
    assert stopped("r1") == 1
    said = capsys.readouterr()
    assert (said.out, (place / "r1").exists()) == ("", True)
    assert "NOTE r1 could not be ended (r1: the database is locked): card gc" in said.err


def test_an_orphan_that_another_cleans_up(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever is at it already is waited for, and its id printed when it is done, or not at all."""
    made("r1", RELEASED, **ORPHAN)
    holder = directory.take(str(place / "r1"), wait=False)
    assert holder is not None
    monkeypatch.setattr(stop, "_ACCOUNT_SECONDS", 0.1)
    assert (stopped("r1"), capsys.readouterr().out) == (1, "")
    real = time.sleep

    def sleep(seconds: float) -> None:
        holder.remove()
        real(seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    assert (stopped("r1"), capsys.readouterr().out) == (0, "r1\n")


def test_a_later_run_of_the_id_is_not_touched(place: Path) -> None:
    """What was stopped is gone when its directory is another run's."""
    earlier = runs.Run(run="r1", path=str(place / "r1"), state=runs.ORPHANED, record=record("r1", started=1.0))
    made("r1", RELEASED, **ORPHAN)
    assert ending.cleared(earlier, seconds=0) == []
    assert (place / "r1").exists()


def test_a_record_that_is_just_being_written(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without a record is waited for until it has one: there is nobody to ask before."""
    held = directory.create("r1")
    first = runs.look(str(place / "r1"))
    assert first is not None

    def sleep(_: float) -> None:
        held.write(directory.RECORD, record("r1").to_json())

    monkeypatch.setattr(time, "sleep", sleep)
    assert first.record is None
    assert ending.recorded(first).record is not None


def test_a_card_run_that_was_stopped_by_a_key(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Stopped as a job, it hears the signal all the same."""
    with launched(place, "r1") as launcher:
        launcher.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, launcher.pid, os.WSTOPPED)
        assert stopped("r1", seconds=5) == 0
    assert capsys.readouterr().out == "r1\n"


def test_what_is_refused_for_one_does_not_keep_the_others(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Podman says no to killing the first: the second is ended all the same, and then it is said, by name."""
    container = "c" * 64

    def connected() -> NoReturn:
        raise Refused([Refusal("no-podman-service", "it did not start")])

    monkeypatch.setattr(service, "connected", connected)
    monkeypatch.setattr(stop, "_ACCOUNT_SECONDS", 0.2)
    with launched(place, "r1", "deaf"), launched(place, "r2"):
        (place / "r1/cid").write_text(container)
        monkeypatch.setattr(runs.Run, "container", container)
        assert refused(lambda: stop.stop(["r1", "r2"], seconds=0.1)) == [("no-podman-service", "r1: it did not start")]
    assert capsys.readouterr().out == "r2\n"


def test_a_refusal_that_came_too_late_to_matter(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The card ended while podman said no: it is gone, and that is what was asked for."""

    def connected() -> NoReturn:
        (found,) = runs.living()
        assert found.record is not None
        assert found.record.launcher is not None
        subprocess.run(["/bin/rm", "-r", found.path], check=True)
        identity.send(found.record.launcher, signal.SIGKILL)
        raise Refused([Refusal("podman-failed", "it is being removed")])

    monkeypatch.setattr(service, "connected", connected)
    monkeypatch.setattr(runs.Run, "container", "c" * 64)
    with launched(place, "r1", "deaf"):
        assert stopped("r1", seconds=0) == 0
    assert capsys.readouterr().out == "r1\n"


def test_a_run_is_listed_once() -> None:
    """One in its last moments, with a receipt kept already, is living; an earlier run of its id is listed too."""
    kept.keep("r1", {"started": 1.0})
    kept.keep("r2", {"started": 1.0})
    os.utime(kept.path("r2"), (2.0, 2.0))
    made("r1", RELEASED, rundir.LEDGER, started=time.time() - 60)
    made("r2", RELEASED, started=time.time() - 60)
    assert [(one.run, type(one).__name__) for one in ps.chosen(every=True, last=0)] == [
        ("r2", "Run"),
        ("r1", "Run"),
        ("r2", "Ended"),
    ]
    assert named.known() == ["r1", "r2"]


def test_the_newest_that_ended() -> None:
    """`--last` bounds those that ended, with `--all` too."""
    for number in range(3):
        kept.keep(f"r{number}", {"started": 1.0})
        os.utime(kept.path(f"r{number}"), (number + 1.0, number + 1.0))
    for every, last, count in ((False, 0, 0), (False, 1, 1), (True, 1, 1), (True, 2, 2), (True, 0, 3)):
        assert [one.run for one in ps.chosen(every=every, last=last)] == ["r2", "r1", "r0"][:count]


def test_a_run_that_ends_between_two_looks_is_listed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever is read first, it is in the list, once."""
    for first in ("living", "ended"):
        made("r1", RELEASED)
        real = getattr(runs, first)

        def look(real: Callable[[], list[Any]] = real) -> list[Any]:
            found = real()
            kept.keep("r1", {"started": 1.0})
            subprocess.run(["/bin/rm", "-rf", str(place / "r1")], check=True)
            return found

        monkeypatch.setattr(runs, first, look)
        assert [one.run for one in ps.chosen(every=True, last=0)] == ["r1"]
        monkeypatch.setattr(runs, first, real)
        os.unlink(kept.path("r1"))


@pytest.mark.parametrize(
    ("detached", "text"),
    [
        (True, "r1's output is not there any more"),
        (False, "r1 was not started with --detach: its output went to who started it"),
    ],
)
def test_why_there_is_no_log(detached: bool, text: str) -> None:  # noqa: FBT001
    """A detached run's log that is gone is said to be gone; another's never was."""
    kept.keep("r1", {"detached": detached})
    assert refused(lambda: logs.logs("r1")) == [("no-log", text)]


@pytest.mark.parametrize(
    ("told", "status"), [({"granted": False}, 0), ({"granted": True}, 125), ({}, 125), ({"start": "gated"}, 125)]
)
def test_a_run_with_a_grant_takes_no_further_command(
    told: dict[str, object],
    status: int,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What a grant opened is for the command that it is bound to; a plan that does not say is no permission."""
    made("r1", RELEASED)
    plan = {"nonce": "", "start": "allow", "home": "/card", "limits": {}, "bundle": {"args": ["init", "--", "stage2"]}}
    (place / "r1" / rundir.PLAN).write_text(json.dumps({**plan, **told}))
    podman(place, monkeypatch)

    def entered(*_: object, **__: object) -> int:
        return 0

    monkeypatch.setattr(entry, "enter", entered)
    with pytest.raises(typer.Exit) as ended:
        enter.execute("r1", ["true"])
    said = capsys.readouterr().err
    assert (ended.value.exit_code, "reason=required" in said) == (status, status != 0)
