"""The examples of the documents are run as they stand, and print what the documents say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import launcher
from launcher import aio

ROOT = Path(__file__).parents[2]


def carried_out(text: str) -> str:
    """Run a program text as a product would, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def home() -> Path:
    """Return the bench user's home directory, with the workspace that the examples name."""
    path = Path.home()
    (path / "work").mkdir(exist_ok=True)
    return path


@pytest.mark.usefixtures("nothing_left")
def test_the_readmes_example_prints_what_the_readme_says(home: Path) -> None:
    """To the letter."""
    section = (ROOT / "README.md").read_text().partition("## In a Python program")[2]
    program, printed = re.findall(r"```(?:python)?\n(.*?)```", section, re.DOTALL)[:2]
    assert carried_out(program) == printed
    assert (home / "work" / "note").read_text() == "hello\n"
    assert list((home / "scratch").iterdir()) == []


@pytest.mark.usefixtures("nothing_left")
def test_the_packages_example_runs(home: Path) -> None:
    """Its paths are this bench's; the rest is as it stands."""
    assert launcher.__doc__ is not None
    lines = [line.removeprefix("    ") for line in launcher.__doc__.splitlines() if line.startswith("    ")]
    text = "\n".join(lines).replace("/srv/work", f"{home}/work").replace("/var/tmp/product", f"{home}/scratch")
    assert carried_out(text + "\nprint(result.how, level)") == "exited 2\n"


def test_the_asyncio_example_runs(home: Path) -> None:
    """That of `launcher.aio`."""
    assert aio.__doc__ is not None
    lines = [line.removeprefix("    ") for line in aio.__doc__.splitlines() if line.startswith("    ")]
    text = "\n".join(lines).replace("/srv/work", f"{home}/work").replace("/var/tmp/product", f"{home}/scratch")
    assert carried_out(text) == "a\nb\nc\n"
