"""The memory that a card takes on the bench: all its processes' against all of a plain `podman run`'s.

Everything that is there besides what was there before counts, what is inside the containers included, on both sides:
podman's client, conmon and pasta, and what card-run has beside them. Shared pages count by their share (Pss in
proc_pid_smaps(5)), with as many side by side as RUNNING says. Run inside the bench, by `speed.py`.
"""

import os
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from infra.bench import speed_pool
from infra.bench.speed_sides import PATIENT, plain_argv

RUNNING = 8
_COMMAND = ("sh", "-c", "echo up; read line")
_SETTLE_SECONDS = 1.0
_GONE_SECONDS = 60


def measure(folder: str) -> dict[str, Any]:
    """Return the MiB that each running card, and each that waits in a pool, takes beyond a plain `podman run`."""
    found = {
        "card": _each(lambda: _standing([*PATIENT, "-i", "--", *_COMMAND])),
        "plain": _each(lambda: _standing(plain_argv(folder, "-i", command=_COMMAND))),
        "warm": _each(lambda: speed_pool.pool(RUNNING)),
    }
    total = {side: sum(sizes.values()) for side, sizes in found.items()}
    told: dict[str, Any] = {"cards": RUNNING, "mib_per_card": round(total["card"] - total["plain"], 2)}
    return {**told, "warm_mib_per_card": round(total["warm"] - total["plain"], 2), "mib": found}


def _each(standing: Callable[[], Any]) -> dict[str, float]:
    """Return the MiB for each card, by the names of processes, of what stands while the context does."""
    before = set(_processes())
    with standing():
        time.sleep(_SETTLE_SECONDS)
        found = sizes(before)
    deadline = time.monotonic() + _GONE_SECONDS
    while set(_processes()) - before:
        if time.monotonic() > deadline:
            raise SystemExit("what was measured does not go")
        time.sleep(0.05)
    return {name: round(size / RUNNING, 2) for name, size in sorted(found.items())}


@contextmanager
def _standing(words: list[str]) -> Generator[None]:
    """Have so many runs stand, each of which says when its worker is up, and ends when it is told to."""
    running = [subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(RUNNING)]
    try:
        for process in running:
            if process.stdout is None or process.stdout.readline() != b"up\n":
                raise SystemExit(f"{words[0]} did not start")
        yield
    finally:
        for process in running:
            process.communicate(b"\n")


def sizes(before: set[int]) -> dict[str, float]:
    """Return the MiB of the processes that are there and were not before, added up by name."""
    found: dict[str, float] = {}
    for pid in set(_processes()) - before:
        try:
            name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
            size = _size(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        found[name] = found.get(name, 0) + size
    return found


def _size(pid: int) -> float:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    return int(next(line.split()[1] for line in rollup.splitlines() if line.startswith("Pss:"))) / 1024


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]
