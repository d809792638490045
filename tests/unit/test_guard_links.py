"""What decides on the bench and is reached through a write root: by a link, by a name in a file, by an installation."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher import guard, launch
from launcher.request import Request
from launcher.run import site
from tests.unit.surroundings import own_home

ROOT = Path(__file__).parents[2]
CONFIG = ".config/containers"


def judged(write: Path, *, protect: tuple[str, ...] = ()) -> list[str]:
    """Return why a run that may write there is refused."""
    asked = Request(command=("true",), resolver="192.0.2.1", write=(str(write),), protect=protect)
    return [one.reason for one in launch.judge(asked)[1]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a HOME with an empty repository of dotfiles, `dot`, and nothing of the caller's configuration."""
    home = own_home(tmp_path, monkeypatch)
    for name in ("CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "CONTAINERS_REGISTRIES_CONF"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("CONTAINERS_HELPER_BINARY_DIR", raising=False)
    (home / "dot").mkdir()
    (home / CONFIG).mkdir(parents=True)
    return home


def link(home: Path, name: str, target: str) -> None:
    """Make a link below HOME, in the place of what is there."""
    (home / name).parent.mkdir(parents=True, exist_ok=True)
    (home / name).symlink_to(home / target)


DECIDES = (
    ".config/card-run/config.toml",
    f"{CONFIG}/containers.conf",
    f"{CONFIG}/containers.conf.d",
    f"{CONFIG}/containers.conf.d/10-mine.conf",
    f"{CONFIG}/storage.conf",
    f"{CONFIG}/registries.conf",
    f"{CONFIG}/registries.conf.d/mine.conf",
    f"{CONFIG}/policy.json",
    f"{CONFIG}/mounts.conf",
)


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("name", DECIDES)
def test_a_file_that_decides_behind_a_link(name: str, there: bool, home: Path) -> None:  # noqa: FBT001 - a column
    """The worker could write what it leads to, or make it; beside it, the control, a worker may write."""
    (home / "beside").mkdir()
    if there:
        (home / "dot/file").mkdir() if name.endswith(".d") else (home / "dot/file").touch()
    link(home, name, "dot/file")
    assert set(judged(home / "dot")) == {"bench-writable"}
    assert judged(home / "beside") == []


def test_a_link_that_leads_on(home: Path) -> None:
    """It leads out of the workspace again by a link in it, which the worker could lead elsewhere."""
    (home / "real.conf").touch()
    link(home, "dot/on", "real.conf")
    link(home, f"{CONFIG}/containers.conf", "dot/on")
    assert set(judged(home / "dot")) == {"bench-writable"}
    assert set(judged(home / "dot", protect=(str(home / "real.conf"),))) == {"bench-writable", "protect-outside"}


def test_what_is_protected_may_be_reached(home: Path) -> None:
    """Held in place by itself or with its folder, it is not the worker's to write."""
    (home / "dot/etc").mkdir()
    (home / "dot/etc/containers.conf").touch()
    link(home, f"{CONFIG}/containers.conf", "dot/etc/containers.conf")
    assert set(judged(home / "dot")) == {"bench-writable"}
    for name in ("dot/etc/containers.conf", "dot/etc"):
        assert judged(home / "dot", protect=(str(home / name),)) == []
    link(home, "dot/link", "dot/etc")
    (home / CONFIG / "containers.conf").unlink()
    link(home, f"{CONFIG}/containers.conf", "dot/link/containers.conf")
    assert set(judged(home / "dot", protect=(str(home / "dot/etc"),))) == {"bench-writable"}


def test_what_is_kept_is_written_too(home: Path) -> None:
    """`--keep` gives the worker a folder for writing as `--write` does."""
    (home / "kept").mkdir(mode=0o700)
    asked = Request(command=("true",), resolver="192.0.2.1", keep=str(home / "kept"))
    found, refusals = launch.judge(asked)
    assert refusals == []
    (home / CONFIG / "containers.conf").symlink_to(f"{found.kept[0].source}/file")
    assert {one.reason for one in launch.judge(asked)[1]} == {"bench-writable"}


@pytest.mark.parametrize("variable", ["CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "CONTAINERS_REGISTRIES_CONF"])
def test_a_file_that_is_named_by_a_variable(variable: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a variable names decides as well."""
    monkeypatch.setenv(variable, str(home / "elsewhere"))
    assert judged(home / "dot") == []
    monkeypatch.setenv(variable, str(home / "dot/file"))
    assert "bench-writable" in judged(home / "dot")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("containers.conf", '[engine]\nhelper_binaries_dir = ["{dot}/bin"]\n'),
        ("containers.conf", "[engine.runtimes]\ncrun = [\n  '{dot}/crun',\n]\n"),
        ("containers.conf", '[engine]\nconmon_path = ["~/dot/conmon"]\n'),
        ("containers.conf.d/1.conf", '[engine]\nhooks_dir = ["{dot}/hooks.d"]\n'),
        ("storage.conf", '[storage]\ngraphroot = "$HOME/dot/storage"\n'),
    ],
)
def test_what_a_configuration_names(name: str, text: str, home: Path) -> None:
    """A program, or podman's storage, that is named in the workspace is the worker's; in a comment nothing is named."""
    file = home / CONFIG / name
    file.parent.mkdir(exist_ok=True)
    text = text.format(dot=home / "dot")
    file.write_text("".join(f"# {line}\n" for line in text.splitlines()))
    assert judged(home / "dot") == []
    file.write_text(text)
    assert set(judged(home / "dot")) == {"bench-writable"}


def test_a_hook_of_the_sites(home: Path) -> None:
    """A hook behind a link is the worker's to write, and one more can be put into a folder that a link leads to."""
    hooks = home / "hooks.d"
    hooks.mkdir()
    (home / CONFIG / "containers.conf").write_text(f'[engine]\nhooks_dir = ["{hooks}"]\n')
    assert judged(home / "dot") == []
    link(home, "hooks.d/one.json", "dot/one.json")
    assert set(judged(home / "dot")) == {"bench-writable"}
    (hooks / "one.json").unlink()
    for place in ("bin", "dot"):
        (hooks / "two.json").write_text(f'{{"version": "1.0.0", "hook": {{"path": "{home}/{place}/hook"}}}}')
        assert set(judged(home / "dot")) == ({"bench-writable"} if place == "dot" else set())
    (hooks / "two.json").unlink()
    hooks.rmdir()
    link(home, "hooks.d", "dot")
    assert set(judged(home / "dot")) == {"bench-writable"}


def test_what_a_file_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Absolute paths in quotes of either kind, the user's HOME spelt out; no file names nothing."""
    monkeypatch.setenv("HOME", "/home/me")
    file = tmp_path / "x.conf"
    file.write_text('a = "/a"\nb = [\'/b\', "c", "~/d"] # "/e"\nf = "$HOME/f"\n#g = "/g"\n')
    assert list(site.named_in(str(file))) == ["/a", "/b", "/home/me/d", "/home/me/f"]
    assert list(site.named_in(str(tmp_path / "none"))) == []


PROGRAM = """
import sys
sys.path[:] = [path for path in sys.path if path] + [{root!r}]
from launcher.cli import main
main()
"""
Start = Callable[..., list[str]]


@pytest.fixture
def start(home: Path) -> Start:
    """Return what runs a card-run, started by its words, that may only write `dot`, and returns its reasons."""

    def started(*words: object, **environment: str) -> list[str]:
        options = ["--plan", "--json=1", "--net=none", f"--write={home}/dot", "--", "true"]
        settings = {"HOME": str(home), "PATH": "/usr/bin:/bin", **environment}
        done = subprocess.run([*map(str, words), *options], capture_output=True, text=True, check=False, env=settings)
        assert done.returncode in {0, 125}, done.stderr
        found = [line.partition("reason=")[2].split()[0] for line in done.stderr.splitlines() if "reason=" in line]
        return [reason for reason in found if reason != "no-podman-profile"]  # of a machine without podman

    return started


def test_a_card_run_in_the_workspace(home: Path, start: Start) -> None:
    """Its program, by whatever link it is started, and its interpreter are not the worker's to write."""
    for place in ("bin", "dot"):
        (home / place).mkdir(exist_ok=True)
        (home / place / "card-run").write_text(PROGRAM.format(root=str(ROOT)))
    assert start(sys.executable, home / "bin/card-run") == []
    assert start(sys.executable, home / "dot/card-run") == ["bench-writable"]
    link(home, "bin/linked", "dot/card-run")
    assert start(sys.executable, home / "bin/linked") == ["bench-writable"]
    (home / "dot/python").symlink_to(sys.executable)
    assert start(home / "dot/python", home / "bin/card-run") == ["bench-writable"]


def test_its_modules_in_the_workspace(home: Path, start: Start) -> None:
    """A folder that it would import from is no workspace; a bare interpreter does not look there."""
    (home / "bin").mkdir()
    (home / "bin/card-run").write_text(PROGRAM.format(root=str(ROOT)))
    (home / "modules").symlink_to(home / "dot")
    program = home / "bin/card-run"
    assert start(sys.executable, program, PYTHONPATH=str(home / "modules")) == ["bench-writable"]
    assert start(sys.executable, "-I", program, PYTHONPATH=str(home / "modules")) == []
    assert start(sys.executable, program, PYTHONPATH=str(home / "bin")) == []


@pytest.mark.parametrize("variable", ["LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT", "GCONV_PATH"])
def test_what_a_loader_is_led_to(variable: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that the bench's programs would load is not the worker's; the card's own variables are its own."""
    asked = Request(command=("true",), resolver="192.0.2.1", write=(str(home / "dot"),), env=(f"{variable}=/x",))
    found = launch.judge(asked)[0].filesystem
    monkeypatch.setenv(variable, "/usr/lib/none:/usr/lib")
    assert guard.installed(found) == []
    monkeypatch.setenv(variable, f"/usr/lib:{home}/dot/lib")
    assert [one.reason for one in guard.installed(found)] == ["bench-writable"]


def test_a_virtual_environment_of_a_workspace(home: Path, start: Start) -> None:
    """One that has nothing to do with card-run is as good as any other folder, activated too."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home / "dot/.venv")], check=True)
    (home / "bin").mkdir()
    (home / "bin/card-run").write_text(PROGRAM.format(root=str(ROOT)))
    settings = {"PATH": f"{home}/dot/.venv/bin:/usr/bin:/bin", "VIRTUAL_ENV": str(home / "dot/.venv")}
    assert start(sys.executable, home / "bin/card-run", **settings) == []
    assert start(home / "dot/.venv/bin/python", home / "bin/card-run", **settings) == ["bench-writable"]


def test_what_is_looked_at_is_looked_at_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without a write root pays nothing, and a folder that many files are in is looked at once."""
    asked = Request(command=("true",), resolver="192.0.2.1")
    nothing = launch.judge(asked)[0].filesystem
    some = launch.judge(asked.replace(write=(str(home / "dot"),)))[0].filesystem
    seen: list[str] = []
    real = os.lstat
    for number in range(30):
        (home / CONFIG / f"{number}.conf").touch()

    def look(path: str, *, dir_fd: int | None = None) -> os.stat_result:
        seen.append(str(path))
        return real(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "lstat", look)
    assert guard.configuration(nothing) == []
    assert seen == []
    assert guard.configuration(some) == []
    assert seen.count(str(home / CONFIG)) == 1
