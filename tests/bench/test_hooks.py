"""The registration with real podman: found, proved, shadowed, undone; and card-run beside it."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bench.cards import Run, card, run
from tests.bench.lives import RUNS, arguments, below, until
from tests.bench.test_lost import STORED

CONF = Path("~/.config/containers/containers.conf.d").expanduser()
DATA = Path("~/.local/share/card-run").expanduser()


def status() -> tuple[int, dict[str, dict[str, Any]], dict[str, Any]]:
    """Return the exit status of `card hooks status`, its findings by name, and the whole of it."""
    done = run(["card", "hooks", "status", "--json"])
    content = json.loads(done.out)
    return done.status, {one["name"]: one for one in content["findings"]}, content


def hooks(*words: str) -> Run:
    """Run `card hooks` and expect it to do what it was asked."""
    done = run(["card", "hooks", *words])
    assert done.status == 0, done.err
    return done


@pytest.fixture
def registered() -> Iterator[None]:
    """Register the hooks for this test, and see that nothing of it is left afterwards."""
    before = sorted(CONF.glob("*")) if CONF.exists() else None
    hooks("install")
    yield
    hooks("uninstall", "--force")
    assert (sorted(CONF.glob("*")) if CONF.exists() else None) == before
    assert not DATA.exists()


@pytest.mark.usefixtures("nothing_left")
def test_not_registered() -> None:
    """Without a registration status says that no hook fires; the control is the next test."""
    code, found, _ = status()
    assert (code, found["prestart"]["good"], found["files"]["good"]) == (1, False, False)


@pytest.mark.usefixtures("registered", "nothing_left")
def test_registered() -> None:
    """Both hooks fire for a container with the annotation and none for one without; podman, runtime, stage are told."""
    code, found, content = status()
    assert code == 0, found
    assert all(one["good"] for one in found.values())
    assert {"prestart", "poststop", "control", "ownership"} <= set(found)
    assert (content["runtime"], content["stages"]) == ("crun", ["createRuntime"])
    assert content["podman"].startswith("podman version ")


def tried() -> list[Path]:
    """Return the run directories of containers that are tried on."""
    return [path for path in RUNS.iterdir() if (path / "plan.json").exists()] if RUNS.exists() else []


@pytest.mark.usefixtures("registered", "nothing_new")
@pytest.mark.parametrize("trial", ["with the annotation", "without"])
@pytest.mark.parametrize("made", [False, True], ids=["before podman", "with a container"])
def test_status_killed_in_the_middle(trial: str, *, made: bool) -> None:
    """SIGKILL while a throw-away container is made: `card gc` finds all that is left of it by its record."""
    process = subprocess.Popen(["card", "hooks", "status"], stdout=subprocess.DEVNULL)
    until(tried)
    first = tried()
    if trial == "without":
        until(lambda: tried() and tried() != first)
    name = f"card-{tried()[0].name}"
    if made:
        until(lambda: any(name in path.read_text() for path in STORED if path.exists()))
    others = below(process.pid)
    process.kill()
    process.communicate()
    until(lambda: not any(map(arguments, others)))  # the podman that it had called ends by itself
    there = run(["podman", "container", "exists", name]).status == 0
    assert there or not made
    done = run(["card", "gc", "--json"])
    assert (done.status, [json.loads(line)["undone"] for line in done.out.splitlines()]) == (0, [True]), done.out
    assert run(["podman", "container", "exists", name]).status == 1
    assert tried() == []


@pytest.mark.usefixtures("registered", "nothing_left")
def test_card_run_beside_a_registration() -> None:
    """card-run's own pair has the same names and comes last, so its hooks run once: twice would be run-consumed."""
    done = card("--", "echo", "ran")
    assert (done.status, done.out) == (0, "ran\n"), done.err


@pytest.mark.usefixtures("registered")
def test_taken_away_by_a_later_file() -> None:
    """A containers.conf further along that names another directory removes the hooks silently: told twice over."""
    later = CONF / "zzz.conf"
    later.write_text('[engine]\nhooks_dir = ["/nonexistent"]\n')
    try:
        code, found, _ = status()
    finally:
        later.unlink()
    assert code == 1
    assert str(later) in found["containers.conf"]["found"]
    assert not found["prestart"]["good"]


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("damage", ["program", "suffix"])
def test_a_registration_that_podman_drops(damage: str) -> None:
    """A missing program and a wrong suffix, which podman ignores without a word, are told, and nothing fires."""
    if damage == "program":
        for entry in DATA.glob("hooks/*/hooks/__main__.py"):
            entry.unlink()
    else:
        for path in DATA.glob("hooks.d/*.json"):
            path.rename(path.with_suffix(".off"))
    code, found, _ = status()
    for path in DATA.glob("hooks.d/*.off"):
        path.unlink()
    assert (code, found["prestart"]["good"]) == (1, False)
    assert not found.get("program", found["files"])["good"]
