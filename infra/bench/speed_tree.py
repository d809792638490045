"""Running a command and accounting for all that comes of it: podman's conmon and clean-up outlive the command itself.

The clock stops when the command has ended (wait(2)), not when its output has: what it leaves behind holds that open for
some milliseconds, and so nothing here is read through a pipe. The measuring process adopts what is orphaned
(PR_SET_CHILD_SUBREAPER in prctl(2)) and waits for it, so that its processor time is counted, and the next run does not
meet it.
"""

import ctypes
import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

_SUBREAPER = 36
_SECONDS = 60
_NULL = subprocess.DEVNULL


@contextmanager
def whole_trees() -> Generator[None]:
    """Adopt orphans in here. What was started before, as podman's pause process, is not among them."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_SUBREAPER, 0, 0, 0, 0)


def run(argv: list[str], environment: dict[str, str] | None = None) -> dict[str, Any]:
    """Return wall and processor milliseconds of a run and all it leaves, and its start and end on CLOCK_MONOTONIC."""
    before = _processor()
    clock = _clock(argv, environment)
    reap()
    return {"wall": clock[1] - clock[0], "processor": _processor() - before, "clock": clock}


def timed(argv: list[str], environment: dict[str, str] | None = None) -> float:
    """Return the wall time of one run in milliseconds, and leave what it leaves."""
    began, ended = _clock(argv, environment)
    return ended - began


def _clock(argv: list[str], environment: dict[str, str] | None) -> tuple[float, float]:
    """Return the milliseconds at which a run began and ended; a run that fails ends the benchmark."""
    with tempfile.TemporaryFile() as said:
        began = time.monotonic()
        status = subprocess.Popen(argv, stdin=_NULL, stdout=_NULL, stderr=said, env=environment).wait()
        ended = time.monotonic()
        if status:
            said.seek(0)
            raise SystemExit(f"{argv[0]} ended with {status}: {said.read().decode(errors='replace')}")
    return began * 1000, ended * 1000


def together(argv: list[str], size: int) -> float:
    """Return the milliseconds from the start of so many runs at once to the end of the last, and wait for the rest."""
    began = time.monotonic()
    running = [subprocess.Popen(argv, stdin=_NULL, stdout=_NULL, stderr=_NULL) for _ in range(size)]
    failed = [process.args for process in running if process.wait()]
    took = (time.monotonic() - began) * 1000
    if failed:
        raise SystemExit(f"{len(failed)} of {size} runs failed")
    reap()
    return took


def spread(values: list[float]) -> dict[str, float]:
    """Return median, quartiles, least and most."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    told = {"median": middle, "low": low, "high": high, "least": min(values), "most": max(values)}
    return {name: round(value, 3) for name, value in told.items()}


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1000


def reap() -> None:
    """Wait until all that was adopted is gone; what does not go ends the benchmark, which would measure it too."""
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            time.sleep(0.001)
    raise SystemExit(f"what a run left is still there after {_SECONDS} seconds")
