"""The cost of a card: `card-run -- true` against plain `podman run` of the same image, command and podman flags.

Interleaved pairs, because machines are noisy; the median of the pairs' ratios is the result (DESIGN "Budgets"). Run
inside the bench: `make bench`. Prints the ratio and the median of each phase; judges nothing.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

CARD = ["card-run", "-q", *os.environ.get("CARD_OPTS", "").split()]


def plain_argv(scratch: str) -> list[str]:
    """Return the podman command of the same card with the hooks and stage 2 left out, its run directory a stand-in."""
    plan = json.loads(
        subprocess.run([*CARD, "--plan", "--json=-", "--", "true"], check=True, capture_output=True).stdout
    )
    directory = f"{os.environ.get('XDG_RUNTIME_DIR', '/run')}/card-run/{plan['plan']['run']}"
    words: list[str] = []
    for word in plan["podman"]:
        if word.startswith(("--hooks-dir=", "--preserve-fds=", "--name=", "--annotation=", "--cidfile=")):
            continue
        words.append('--entrypoint=["true"]' if word.startswith("--entrypoint=") else word.replace(directory, scratch))
    return words[:-1]


def timed(argv: list[str]) -> float:
    """Return the wall time of one run in milliseconds; a run that fails ends the benchmark."""
    start = time.perf_counter()
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return (time.perf_counter() - start) * 1000


def measure(pairs: int) -> tuple[list[tuple[float, float]], list[dict[str, float]]]:
    """Return (card, plain) wall times of each pair, and each card's own phases."""
    times: list[tuple[float, float]] = []
    phases: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as scratch:
        os.mkdir(f"{scratch}/card")
        for name in ("hosts", "resolv.conf"):
            with open(f"{scratch}/{name}", "w", encoding="ascii") as file:
                file.write("127.0.0.1 localhost\n")
        plain = plain_argv(scratch)
        card = [*CARD, f"--json={scratch}/receipt.json", "--", "true"]
        timed(card)
        timed(plain)
        for number in range(pairs):
            first, second = (card, plain) if number % 2 else (plain, card)
            one, two = timed(first), timed(second)
            times.append((one, two) if number % 2 else (two, one))
            with open(f"{scratch}/receipt.json", encoding="utf-8") as file:
                phases.append(flatten(json.load(file)))
    return times, phases


def flatten(receipt: dict[str, Any]) -> dict[str, float]:
    """Return every duration of a receipt by a dotted name, in milliseconds."""
    found = {name: float(value) for name, value in receipt["times_ms"].items()}
    found |= {f"hook.{name}": float(value) for name, value in receipt["hook"]["times_ms"].items()}
    laps = (lap.split(":") for lap in receipt["stage2"]["times_us"].split(","))
    return found | {f"stage2.{name}": int(value) / 1000 for name, value in laps}


def main() -> int:
    """Print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=15, help="interleaved pairs (15)")
    times, phases = measure(parser.parse_args().pairs)
    card, plain = (statistics.median(column) for column in zip(*times, strict=True))
    ratio = statistics.median(one / two for one, two in times)
    sys.stdout.write(f"card-run {card:.0f} ms, podman run {plain:.0f} ms, ratio {ratio:.2f} ({len(times)} pairs)\n")
    for name in phases[0]:
        sys.stdout.write(f"  {name:28} {statistics.median(phase[name] for phase in phases):8.1f} ms\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
