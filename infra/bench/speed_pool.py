"""The cost of a warm card: `card-run -- true` from a pool against plain `podman run`, in interleaved pairs.

As `speed.py` measures a cold one, with a difference that it takes a pool to have: each run waits until a card is ready
and none is being made. Making the card before and taking it down after are outside the time that is taken, and so is
its processor time, which the pool spends. Run inside the bench, by `speed.py` or by itself.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from infra.bench.speed import flatten
from infra.bench.speed_sides import CARD, PATIENT, plain_argv, scratch
from infra.bench.speed_tree import spread, timed

_READY_SECONDS = 120
_POOL = ["/usr/bin/env", "card", "pool"]


@contextmanager
def pool(size: int) -> Generator[None]:
    """Have a pool of so many cards, all of them ready."""
    subprocess.run([*_POOL, "start", "--size", str(size), *CARD[2:]], check=True, capture_output=True)
    try:
        settle()
        yield
    finally:
        subprocess.run([*_POOL, "stop"], check=False)


def settle() -> None:
    """Wait until every card is ready and none is being made, and a moment longer for what ended to be gone."""
    found: dict[str, Any] = {}
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        done = subprocess.run([*_POOL, "status", "--json"], check=True, capture_output=True)
        found = json.loads(done.stdout)
        if len(found["ready"]) == found["size"]:
            time.sleep(0.2)
            return
    raise SystemExit(f"the pool has no card: {found.get('refusals')}")


def measure(folder: str, pairs: int) -> dict[str, Any]:
    """Return the milliseconds of runs from a pool of our own and of plain podman, in turns, and the card's phases."""
    plain = plain_argv(folder)
    with pool(1):
        return _measure(plain, Path(folder) / "receipt.json", pairs)


def _measure(plain: list[str], receipt: Path, pairs: int) -> dict[str, Any]:
    card = [*PATIENT, f"--json={receipt}", "--", "true"]
    times: dict[str, list[float]] = {"card": [], "plain": []}
    phases: list[dict[str, float]] = []
    timed(plain)
    for number in range(pairs):
        for name in ("card", "plain") if number % 2 else ("plain", "card"):
            settle()
            times[name].append(timed(card if name == "card" else plain))
        told = json.loads(receipt.read_text(encoding="utf-8"))
        if told["start"]["kind"] != "warm":
            raise SystemExit(f"not a warm card: {told['start']['reason']}")
        phases.append(flatten(told))
    ratios = [one / two for one, two in zip(times["card"], times["plain"], strict=True)]
    wall = {name: spread(values) for name, values in (*times.items(), ("ratio", ratios))}
    middle = {name: statistics.median(phase[name] for phase in phases) for name in phases[0]}
    return {"pairs": pairs, "wall": wall, "flat": middle}


def main() -> int:
    """Measure, and print it as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=15, help="interleaved pairs (15)")
    pairs = parser.parse_args().pairs
    with scratch() as folder:
        sys.stdout.write(json.dumps(measure(folder, pairs), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
