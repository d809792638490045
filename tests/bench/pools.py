"""A pool in the bench, and runs that want a card of it."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from launcher.verbs.pool import ask
from tests.bench.cards import Run, run
from tests.bench.lives import RUNTIME, children, name_of, until

FOLDER = RUNTIME / "card-run-pool"
LIBRARY = Path("/opt/card-run/lib")


def status() -> dict[str, Any]:
    """Return the pool's own word on how it is, asked without the quarter of a second that `card` takes to start."""
    found = ask("status")
    assert found is not None
    return found


def full(seconds: float = 90) -> dict[str, Any]:
    """Wait until the pool has all its cards; return its status."""
    end = time.monotonic() + seconds
    while len((found := status())["ready"]) != found["size"]:
        assert time.monotonic() < end, found
        time.sleep(0.05)
    return found


@contextlib.contextmanager
def pool(*options: str, size: int = 1, program: tuple[str, ...] = ("card",), **popen: Any) -> Generator[dict[str, Any]]:
    """Have a pool for the time of a block; yields its status, and stops it whatever happened to it.

    `program` is another `card`, `popen` are subprocess.run's options.
    """
    done = run([*program, "pool", "start", f"--size={size}", *options], **popen)
    assert done.status == 0, done.err
    try:
        yield full()
    finally:
        run(["card", "pool", "stop"])
        until(lambda: not FOLDER.exists())


def taken(*words: str, receipt: Path, program: tuple[str, ...] = ("card-run",), **options: Any) -> Run:
    """Run a card that must be a warm one; `options` are subprocess.run's."""
    full()
    done = asked(*words, receipt=receipt, program=program, **options)
    assert done.receipt["start"] == {"kind": "warm", "reason": None}, (done.receipt["start"], done.err)
    return done


def asked(*words: str, receipt: Path, program: tuple[str, ...] = ("card-run",), **options: Any) -> Run:
    """Run a card with its receipt."""
    options.setdefault("stdin", subprocess.DEVNULL)
    receipt.unlink(missing_ok=True)
    done = run([*program, f"--json={receipt}", *words], **options)
    content: dict[str, Any] = {}
    if receipt.exists() and receipt.stat().st_size:
        content = json.loads(receipt.read_text())
    return Run(status=done.status, out=done.out, err=done.err, receipt=content)


def cold(done: Run) -> str:
    """Return why a run was a cold one; it must have been."""
    assert done.receipt["start"]["kind"] == "cold", done.err
    reason: str = done.receipt["start"]["reason"]
    return reason


def attendants(of: int) -> list[int]:
    """Return the attendants of a pool by the pool's process id."""
    return [pid for pid in children(of) if name_of(pid) == "card-warm"]


def environment(**more: str) -> dict[str, str]:
    """Return our environment with more in it."""
    return {**os.environ, **more}


class Tree:
    """A copy of card-run's own code, to be broken in one place; `card_run` and `card` start it."""

    def __init__(self, folder: Path) -> None:
        """Copy it, without what was compiled."""
        self.path = folder / "lib"
        shutil.copytree(LIBRARY, self.path, ignore=shutil.ignore_patterns("__pycache__"))
        self.card_run, self.card = (self._words(module) for module in ("cli", "card"))

    def _words(self, module: str) -> tuple[str, ...]:
        program = f"import sys; sys.path.insert(0, {str(self.path)!r}); from launcher.{module} import main; main()"
        return (sys.executable, "-I", "-c", program)

    def change(self, file: str, old: str, new: str) -> None:
        """Put something in the one place of something else."""
        path = self.path / file
        text = path.read_text()
        assert text.count(old) == 1, (file, old)
        path.write_text(text.replace(old, new))
