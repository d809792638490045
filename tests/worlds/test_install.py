"""card-run as a package installs it: unpacked into the root of a bench, used by an ordinary user, and removed."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGING = ("python3", "-B", "-m", "infra.packaging")
DIR = "/tmp/card-run-package"
USER = ("setpriv", "--reuid=card", "--regid=card", "--init-groups", "env", "-i")
# Without /usr/local/bin, where the bench's own card-run is.
ENVIRONMENT = ("HOME=/home/card", "USER=card", "XDG_RUNTIME_DIR=/run/user/1000", "PATH=/usr/bin:/usr/sbin")


def packaging(action: str) -> None:
    """Run the installer as a packager does."""
    words = [*PACKAGING, action, f"--destdir={DIR}", "--prefix=/usr"]
    done = subprocess.run(words, cwd="/src", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module", autouse=True)
def installed() -> Iterator[None]:
    """Build the package's tree, unpack it over the bench's root, and see that uninstalling takes all of it away."""
    packaging("install")
    names = [path.relative_to(DIR) for path in Path(DIR).rglob("*") if path.is_file()]
    shutil.copytree(DIR, "/", dirs_exist_ok=True)
    yield
    packaging("uninstall")
    assert [path for path in Path(DIR).rglob("*") if path.is_file()] == []
    for name in names:
        Path("/", name).unlink()


def as_user(script: str) -> "subprocess.CompletedProcess[str]":
    """Run a shell script as the bench's ordinary user."""
    words = [*USER, *ENVIRONMENT, "sh", "-c", f"cd; {script}"]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=90)


def test_card_run() -> None:
    """The installed card-run runs a card from a Python without its site, and reaches no network to do so."""
    done = as_user("card-run -- echo ran")
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    assert "level=full" in done.stderr


def test_the_hooks_are_registered_for_everybody() -> None:
    """The installed pair is found and fires for a user who registered nothing, and starts a prepared card."""
    done = as_user("card hooks status --json")
    assert done.returncode == 0, done.stdout
    done = as_user("card prepare -- echo ran >/tmp/prepared && sh /tmp/prepared")
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr


def test_nothing_is_written_where_it_is_installed() -> None:
    """A run as root's package leaves the installed tree as it was unpacked: no bytecode, no cache."""
    before = sorted(os.walk("/usr/lib/card-run"))
    assert as_user("card-run -q -- true && card check >/dev/null; card plan -- true >/dev/null").returncode == 0
    assert sorted(os.walk("/usr/lib/card-run")) == before


@pytest.mark.parametrize("page", ["card-run", "card"])
def test_pages_and_completions(page: str) -> None:
    """The manual pages and what shells complete are where they look."""
    assert Path(f"/usr/share/man/man1/{page}.1").read_text().startswith(".")
    assert as_user(f"bash -n /usr/share/bash-completion/completions/{page}").returncode == 0
