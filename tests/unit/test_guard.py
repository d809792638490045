"""What of the bench no worker may write or come near, wherever the environment says that it is."""

import os
from pathlib import Path

import pytest

from launcher import guard, launch, runtime
from launcher.request import Request
from launcher.run import directory


def reasons(*, read: tuple[str, ...] = (), write: tuple[str, ...] = ()) -> list[str]:
    """Return why a run that asks for roots is refused."""
    asked = Request(command=("true",), resolver="192.0.2.1", read=read, write=write)
    return [one.reason for one in launch.judge(asked)[1]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a HOME of the test's own, with nothing of the user's environment."""
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("variable", "place"),
    [
        ("XDG_CACHE_HOME", ".cache/card-run"),
        ("XDG_DATA_HOME", ".local/share/card-run"),
        ("XDG_DATA_HOME", ".local/share/containers"),
        ("XDG_CONFIG_HOME", ".config/card-run"),
        ("XDG_CONFIG_HOME", ".config/containers"),
    ],
)
def test_a_relative_place_is_where_it_would_be_without(
    variable: str, place: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever passes over a relative path keeps things where they always are, which no worker may write."""
    (home / place).mkdir(parents=True)
    control = home / "work"
    control.mkdir()
    for value in ("", "relative"):
        monkeypatch.setenv(variable, value)
        assert set(reasons(write=(str(home / place),))) & {"path-reserved", "path-too-wide"}, value
        assert reasons(write=(str(control),)) == []


def test_the_runtime_is_where_it_is_kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guard and runtime mean the same directory, whatever the environment says, and without a HOME neither has one."""
    for value in ("", "relative", str(home / "elsewhere")):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert runtime.default_cache() in [path for path, _, _ in guard.forbidden()]
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", "")
    assert guard.forbidden()


@pytest.mark.parametrize("name", ["storage-run-{}", "podman-run-{}"])
def test_podmans_state_without_a_session(name: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where podman 5 and 4 keep their state below TMPDIR, when there is no session for it, is no worker's to write."""
    monkeypatch.setattr(directory, "_sessions", list)
    monkeypatch.setenv("TMPDIR", str(home / "tmp"))
    state = home / "tmp" / name.format(os.getuid())
    (state / "inside").mkdir(parents=True)
    (home / "tmp/work").mkdir()
    assert reasons(write=(str(home / "tmp/work"),)) == []
    for place in (home / "tmp", state, state / "inside"):
        assert set(reasons(write=(str(place),))) == {"path-too-wide"}


def test_nobody_comes_near_the_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A root, to read even, that holds the pool's directory is refused as soon as that is there, and not before."""
    runtime_directory = tmp_path / "run"
    runtime_directory.mkdir(mode=0o700)
    monkeypatch.setattr(directory, "parents", lambda: [f"{runtime_directory}/card-run"])
    assert "pool-exposed" not in reasons(read=(str(tmp_path),))
    os.mkdir(runtime_directory / "card-run-pool", mode=0o700)
    assert "pool-exposed" in reasons(read=(str(tmp_path),))
    assert "pool-exposed" in reasons(read=(str(runtime_directory / "card-run-pool"),))
    (tmp_path / "beside").mkdir()
    assert "pool-exposed" not in reasons(read=(str(tmp_path / "beside"),))
