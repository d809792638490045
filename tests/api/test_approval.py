"""A separate program that uses only the public interface: what a person approved runs once, and what not, never."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api import approval_product

COMMAND = ["sh", "-c", "echo written > made && cat made"]


def product(workspace: Path, answers: str) -> list[str]:
    """Run the product and return its lines."""
    argv = [
        sys.executable,
        approval_product.__file__,
        str(workspace),
        str(workspace.parent / "scratch"),
        "--",
        *COMMAND,
    ]
    root = Path(approval_product.__file__).parents[2]
    done = subprocess.run(
        argv,
        input=answers,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if not line.startswith("may it")]


@pytest.mark.usefixtures("nothing_left")
def test_a_yes_is_good_for_one_run(workspace: Path) -> None:
    """Both approved: it runs, what it wrote is there, the receipt names the grants; the second time it is a replay."""
    first, printed, second = product(workspace, "y\ny\n")
    assert first.startswith("first: status 0 (exited), grants ")
    assert {"command.start.v1", "filesystem.tree.write.v1"} <= set(first.replace(",", "").split())
    assert "write_boundary" in first
    assert printed == "written"
    assert second == "second: refused: replay"
    assert (workspace / "made").read_text() == "written\n"


def test_a_no_is_a_no(workspace: Path) -> None:
    """The command not approved: nothing is started. Approved, but the writing not: it fails inside, at the wall."""
    assert product(workspace, "y\nn\n") == ["first: refused: required", "second: refused: required"]
    first, *_, second = product(workspace, "n\ny\n")
    assert first.startswith("first: status ")
    assert not first.startswith("first: status 0")
    assert second == "second: refused: replay"
    assert not (workspace / "made").exists()
