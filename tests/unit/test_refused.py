"""A refused start: it ends at once, tells all there is to mend, and has made nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from launcher import launch, options, pins, report
from launcher.egress.answers import Answer, Resolver
from launcher.egress.policy import BASE_NAMES
from launcher.egress.resolver import DnsResolver
from launcher.launch import Launch
from launcher.run import perform
from tests.unit import surroundings

CARD_RUN = "import sys; from launcher.cli import main; main()"
RESOLVE = (
    f"from {DnsResolver.__module__} import *; print(DnsResolver((), timeout=9, families=('A',)).resolve(['x.org']))"
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a HOME with nothing of card-run's in it but a policy file."""
    return surroundings.own_home(tmp_path, monkeypatch)


def test_nobody_to_ask_is_an_answer() -> None:
    """Without a server every name says so, at once."""
    done = subprocess.run([sys.executable, "-c", RESOLVE], capture_output=True, text=True, timeout=5, check=True)
    assert "there is no resolver" in done.stdout


@pytest.mark.parametrize("server", ["foo", "1.1.1.1:53"])
def test_a_resolver_that_is_none(server: str, home: Path) -> None:
    """It is refused by its own name alone, at once, and no runtime is built for it."""
    words = [sys.executable, "-c", CARD_RUN, "--resolver", server, "--", "true"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    lines = [line.split()[2] for line in done.stderr.splitlines() if "REFUSED" in line]
    assert set(lines) - {"reason=not-rootless", "reason=no-route"} == {"reason=bad-resolver"}
    assert done.returncode == 125
    assert "building" not in done.stderr
    assert sorted(os.listdir(home)) == [".config"]


@pytest.mark.usefixtures("home")
def test_all_there_is_to_mend(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside a refused flag, names that cannot be pinned and places that are missing are told in the same run."""

    def ask(judged: Launch, _: Resolver) -> dict[str, Answer]:
        return {name: Answer(failure="does not exist (NXDOMAIN)") for name in judged.names}

    monkeypatch.setattr(pins, "ask", ask)
    judged, refusals = launch.judge(options.read(["--image", "short", "--resolver", "192.0.2.53", "--", "x"])[0])
    monkeypatch.delenv("HOME")
    assert report.plan(judged, refusals, show=False, as_json=False) == 125
    reasons = [line.split()[2].removeprefix("reason=") for line in capsys.readouterr().err.splitlines()]
    assert reasons == ["bad-image", "no-cache-directory", *["name-unresolved"] * len(BASE_NAMES)]


INTERRUPTED = """
import os, signal, sys

class Finder:
    @staticmethod
    def find_spec(name, *_):
        if name in sys.argv[1:]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder)
"""


@pytest.mark.parametrize(
    ("program", "words", "status", "said"),
    [
        ("from launcher.begin import main; main()", ["check", "launcher.card"], -2, ""),
        (CARD_RUN, ["--plan", "--", "launcher.report"], 130, "SANDBOX REFUSED reason=interrupted SIGINT came before"),
    ],
)
@pytest.mark.usefixtures("home")
def test_interrupted_while_it_begins(program: str, words: list[str], status: int, said: str) -> None:
    """There is no traceback, and the status is that of the interrupt."""
    argv = [sys.executable, "-c", f"{INTERRUPTED}\n{program}", *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == bool(said)


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be in a directory that was deleted."""
    (tmp_path / "gone").mkdir()
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()


CARD = "import sys; sys.argv[0] = 'card'; from launcher.begin import main; main()"


@pytest.mark.parametrize(
    ("program", "words", "status", "said"),
    [
        (CARD_RUN, ["--egress", "x", "--", "true"], 125, "bad-command-line --egress 'x' is relative"),
        (CARD, ["new"], 2, "no-working-directory "),
        (CARD, ["lint"], 2, "no-working-directory "),
        (CARD, ["lint", "x.toml"], 2, "no-working-directory "),
    ],
)
@pytest.mark.usefixtures("home", "nowhere")
def test_a_relative_path_in_a_deleted_directory(program: str, words: list[str], status: int, said: str) -> None:
    """It is refused, a flag by its name, and nothing else is said."""
    argv = [sys.executable, "-c", program, *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith(f"SANDBOX REFUSED reason={said}")
    assert done.stderr.count("\n") == 1


@pytest.mark.usefixtures("nowhere")
def test_podman_is_started_in_a_directory_that_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts in no other; a directory that is there stays ours."""
    (tmp_path / "podman").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    perform.find_podman()
    assert os.getcwd() == "/"
    monkeypatch.chdir(tmp_path)
    perform.find_podman()
    assert os.getcwd() == str(tmp_path)
