"""The cost of a warm card: `card-run -- true` from a pool against plain `podman run`, in interleaved pairs.

As `speed.py` measures a cold one. The pool is given time to make the next card before the next pair: what is measured
is a run that finds a card ready, on a machine that is not just making another. Run inside the bench. Prints the ratio,
the median and spread of both, and the median of each phase; judges nothing.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from infra.bench.speed import CARD, flatten, plain_argv, timed

_READY_SECONDS = 30


def settle() -> None:
    """Wait until a card is ready and none is being made, and a moment longer for what ended to be gone."""
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        done = subprocess.run(["card", "pool", "status", "--json"], check=True, capture_output=True)
        found = json.loads(done.stdout)
        if len(found["ready"]) == found["size"]:
            time.sleep(0.2)
            return
    raise SystemExit(f"the pool has no card: {found['refusals']}")


def measure(pairs: int) -> tuple[list[tuple[float, float]], list[dict[str, float]]]:
    """Return (warm card, plain) wall times of each pair, and each card's own phases."""
    times: list[tuple[float, float]] = []
    phases: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as scratch:
        os.mkdir(f"{scratch}/card")
        for name in ("hosts", "resolv.conf"):
            Path(f"{scratch}/{name}").write_text("127.0.0.1 localhost\n", encoding="ascii")
        plain = plain_argv(scratch)
        card = [*CARD, f"--json={scratch}/receipt.json", "--", "true"]
        timed(plain)
        for number in range(pairs):
            settle()
            first, second = (card, plain) if number % 2 else (plain, card)
            one, two = timed(first), timed(second)
            times.append((one, two) if number % 2 else (two, one))
            receipt = json.loads(Path(f"{scratch}/receipt.json").read_text(encoding="utf-8"))
            if receipt["start"]["kind"] != "warm":
                raise SystemExit(f"not a warm card: {receipt['start']['reason']}")
            phases.append(flatten(receipt))
    return times, phases


def main() -> int:
    """Measure with a pool of our own and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=15, help="interleaved pairs (15)")
    pairs = parser.parse_args().pairs
    subprocess.run(["card", "pool", "start", "--size", "1", *CARD[2:]], check=True, capture_output=True)
    try:
        times, phases = measure(pairs)
    finally:
        subprocess.run(["card", "pool", "stop"], check=False)
    warm, plain = zip(*times, strict=True)
    ratio = statistics.median(one / two for one, two in times)
    sys.stdout.write(f"warm card {_told(warm)}, podman run {_told(plain)}, ratio {ratio:.2f} ({len(times)} pairs)\n")
    for name in phases[0]:
        sys.stdout.write(f"  {name:28} {statistics.median(phase[name] for phase in phases):8.1f} ms\n")
    return 0


def _told(times: tuple[float, ...]) -> str:
    return f"{statistics.median(times):.0f} ms ({min(times):.0f} to {max(times):.0f})"


if __name__ == "__main__":
    sys.exit(main())
