"""Running a command and accounting for all that comes of it: podman's conmon and clean-up outlive the command itself.

The measuring process adopts what is orphaned (PR_SET_CHILD_SUBREAPER in prctl(2)) and waits for it, so that its
processor time is counted, and the next run does not meet it.
"""

import ctypes
import os
import resource
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

_SUBREAPER = 36
_SECONDS = 10


@contextmanager
def whole_trees() -> Generator[None]:
    """Adopt orphans in here. What was started before, as podman's pause process, is not among them."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_SUBREAPER, 0, 0, 0, 0)


def run(argv: list[str]) -> dict[str, Any]:
    """Return wall and processor milliseconds of a run and all it leaves; a run that fails ends the benchmark."""
    before = _processor()
    began = time.monotonic()
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    ended = time.monotonic()
    if done.returncode:
        raise SystemExit(f"{argv[0]} ended with {done.returncode}: {done.stderr.decode(errors='replace')}")
    _reap()
    clock = (began * 1000, ended * 1000)
    return {"wall": (ended - began) * 1000, "processor": _processor() - before, "clock": clock}


def together(argv: list[str], size: int) -> float:
    """Return the milliseconds from the start of so many runs at once to the end of the last."""
    began = time.monotonic()
    null = subprocess.DEVNULL
    running = [subprocess.Popen(argv, stdin=null, stdout=null, stderr=null) for _ in range(size)]
    failed = [process.args for process in running if process.wait()]
    took = (time.monotonic() - began) * 1000
    if failed:
        raise SystemExit(f"{len(failed)} of {size} runs failed")
    return took


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1000


def _reap() -> None:
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            time.sleep(0.001)
