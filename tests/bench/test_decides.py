"""What decides on the bench and lies in the workspace by way of a link, or with card-run itself: no worker gets it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.cards import card, run

pytestmark = pytest.mark.usefixtures("used_bench", "nothing_left")

CONFIG = Path.home() / ".config"
LIB = "/opt/card-run/lib"  # the bench's own installation
# What a worker writes into what it can: each would run a program of its own on the bench at the next start.
EVIL = """\
printf 'home = "real"\\n' > config.toml
printf '[engine.runtimes]\\ncrun = ["%s/crun"]\\n' "$PWD" > containers.conf
printf '[engine]\\nhelper_binaries_dir = ["%s"]\\n' "$PWD" >> containers.conf
for name in crun conmon pasta netavark catatonit; do
    printf '#!/usr/bin/dash\\necho %s >> %s/ran\\nexec /usr/bin/%s "$@"\\n' $name "$PWD" $name > $name
    chmod 755 $name
done
"""


@pytest.fixture
def dot(workspace: Path) -> Iterator[Path]:
    """Return a repository of dotfiles that the user's card-run and podman are configured by."""
    made: list[Path] = []
    kept = CONFIG / "card-run/config.toml"
    before = kept.read_text() if kept.exists() else ""  # the bench's own, of a podman without pasta
    kept.unlink(missing_ok=True)
    (workspace / "config.toml").write_text('net = "none"\n')
    (workspace / "containers.conf").write_text("[engine]\n")
    for name in ("card-run/config.toml", "containers/containers.conf"):
        link = CONFIG / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(workspace / link.name)
        made.append(link)
    yield workspace
    for link in made:
        link.unlink()
    if before:
        kept.write_text(before)


def test_dotfiles_that_the_worker_could_write(dot: Path) -> None:
    """Linked configuration was once the worker's to write; the control is that it decides, and may be read."""
    done = card("-q", f"--write={dot}", "--", "sh", "-c", EVIL)
    assert (done.status, set(done.reasons), done.out) == (125, {"bench-writable"}, "")
    assert all(f"--protect {dot}/{name}" in done.err for name in ("config.toml", "containers.conf"))
    done = card(f"--read={dot}", "--", "sh", "-c", f"echo $HOME; echo > {dot}/config.toml")
    assert (done.out, done.status != 0, (dot / "ran").exists()) == ("/card\n", True, False)
    assert " net=none " in done.err


def test_dotfiles_that_are_protected(dot: Path) -> None:
    """Held in place, the worker has the rest of the repository, and the next card is as it would have been."""
    protect = [f"--protect={dot}/{name}" for name in ("config.toml", "containers.conf")]
    done = card("-q", f"--write={dot}", *protect, "--", "sh", "-c", EVIL)
    assert (done.status, (dot / "crun").exists(), (dot / "containers.conf").read_text()) == (0, True, "[engine]\n")
    done = card("--", "sh", "-c", "echo $HOME")
    assert (done.status, done.out, " net=none " in done.err, (dot / "ran").exists()) == (0, "/card\n", True, False)
    # The control: what the worker would have written runs its programs at the next start.
    subprocess.run(["/usr/bin/dash", "-c", EVIL], cwd=dot, check=True)
    card("--", "true")
    assert (dot / "ran").exists()


def test_a_card_run_in_the_workspace(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is installed into the workspace's own environment was once the worker's to write; another's is not."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(workspace / ".venv")], check=True)
    program = workspace / ".venv/bin/card-run"
    python = f"{workspace}/.venv/bin/python"
    program.write_text(f"#!{python}\nimport sys\nsys.path.append({LIB!r})\nfrom launcher.cli import main\nmain()\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{workspace}/.venv/bin:{os.environ['PATH']}")
    words = ["--net=none", f"--write={workspace}", "--", "sh", "-c", "echo > .venv/bin/card-run"]
    done = card(*words)
    assert (done.status, done.reasons, "import sys" in program.read_text()) == (125, ["bench-writable"], True)
    assert f"card-run {program} is reached through --write {workspace}" in done.err
    # The controls: the same one with another workspace, and the bench's own with this one.
    assert card("--net=none", "--", "true").status == 0
    assert run(["/usr/local/bin/card-run", *words], stdin=subprocess.DEVNULL).status == 0
    assert "import sys" not in program.read_text()
