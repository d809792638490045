"""The cost of a warm card: `card-run -- true` from a pool against plain `podman run`, in interleaved pairs.

As `speed.py` measures a cold one. The pool is given time to make the next card before the next pair: what is measured
is a run that finds a card ready, on a machine that is not just making another. Run inside the bench, by `speed.py` or
by itself. A warm card's processor time is not compared: most of it was spent before, by the pool.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from infra.bench.speed import CARD, PATIENT, flatten, plain_argv, spread, timed

_READY_SECONDS = 120
POOL = ["/usr/bin/env", "card", "pool"]


def settle() -> None:
    """Wait until a card is ready and none is being made, and a moment longer for what ended to be gone."""
    found: dict[str, Any] = {}
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        done = subprocess.run([*POOL, "status", "--json"], check=True, capture_output=True)
        found = json.loads(done.stdout)
        if len(found["ready"]) == found["size"]:
            time.sleep(0.2)
            return
    raise SystemExit(f"the pool has no card: {found.get('refusals')}")


def measure(pairs: int) -> dict[str, Any]:
    """Return the milliseconds of runs from a pool of our own and of plain podman, in turns, and the card's phases."""
    with tempfile.TemporaryDirectory() as scratch:
        os.mkdir(f"{scratch}/card")
        for name in ("hosts", "resolv.conf"):
            Path(f"{scratch}/{name}").write_text("127.0.0.1 localhost\n", encoding="ascii")
        plain = plain_argv(scratch)
        subprocess.run([*POOL, "start", "--size", "1", *CARD[2:]], check=True, capture_output=True)
        try:
            return _measure(plain, Path(scratch) / "receipt.json", pairs)
        finally:
            subprocess.run([*POOL, "stop"], check=False)


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
    sys.stdout.write(json.dumps(measure(parser.parse_args().pairs), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
