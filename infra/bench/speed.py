"""The cost of a card: `card-run` against plain `podman run` of the same image, command and podman flags.

Everything is a ratio measured side by side, because machines are noisy: pairs that take turns, after a warm-up, and
processor time of the whole tree beside the wall clock, which other work disturbs less (DESIGN "Budgets"). Run inside
the bench; prints what it measured as JSON on standard output and says on standard error what it is doing.
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

from infra.bench import speed_more, speed_tree

CARD = ["card-run", "-q", *os.environ.get("CARD_OPTS", "").split()]
# The bench's one name server is as short of time as everybody when the machine is busy; its time is in the result.
PATIENT = [*CARD, "--resolve-timeout=30"]
WARM_UP = 2
CROWDS = {1: 15, 8: 8, 64: 3}


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


def flatten(receipt: dict[str, Any]) -> dict[str, float]:
    """Return every duration of a receipt by a dotted name, in milliseconds."""
    found = {name: float(value) for name, value in receipt["times_ms"].items()}
    found |= {f"hook.{name}": float(value) for name, value in receipt["hook"]["times_ms"].items()}
    laps = (lap.split(":") for lap in receipt["stage2"]["times_us"].split(","))
    return found | {f"stage2.{name}": int(value) / 1000 for name, value in laps}


def phases(receipt: dict[str, Any], began: float, ended: float) -> dict[str, float]:
    """Return how long each part of a run took, in milliseconds, in order.

    `imports` and `plan` pass while podman starts, from its spawn on, and so does `podman to hook`. `began` and `ended`
    are the run's own, on the clock that the receipt's absolute times are of (CLOCK_MONOTONIC).
    """
    at, zero = receipt["times_ms"], receipt["started_ms"]
    hook = receipt["hook"]["started_ms"]
    hooked = hook + receipt["hook"]["times_ms"]["total"]
    inside = int(receipt["stage2"]["started_us"]) / 1000
    return {
        "start": zero - began,
        "parse": at["judged"],
        "spawn": at["podman_spawned"] - at["judged"],
        "imports": at["ready"] - at["podman_spawned"],
        "plan": at["plan_written"] - at["ready"],
        "podman to hook": hook - zero - at["podman_spawned"],
        "hook": hooked - hook,
        "podman to stage 2": inside - hooked,
        "stage 2": zero + at["released"] - inside,
        "worker and podman's end": at["podman_exited"] - at["released"],
        "clean-up": ended - zero - at["podman_exited"],
    }


class Pairs:
    """Runs of a card and of plain podman that take turns: (wall, processor) milliseconds of each, and the phases."""

    def __init__(self, scratch: str) -> None:
        self.plain = plain_argv(scratch)
        self.receipt = Path(scratch) / "receipt.json"
        self.card = [*PATIENT, f"--json={self.receipt}", "--", "true"]
        self.rows: list[dict[str, Any]] = []

    def measure(self, pairs: int) -> None:
        """Run so many pairs, in turns of alternating order."""
        for _ in range(WARM_UP):
            timed(self.card)
            timed(self.plain)
        with speed_tree.whole_trees():
            for number in range(pairs):
                row: dict[str, Any] = {}
                for name in ("card", "plain") if number % 2 else ("plain", "card"):
                    row[name] = speed_tree.run(self.card if name == "card" else self.plain)
                    if name == "card":
                        receipt = json.loads(self.receipt.read_text(encoding="utf-8"))
                        row["phases"] = phases(receipt, *row[name].pop("clock"))
                        row["flat"] = flatten(receipt)
                    row[name].pop("clock", None)
                self.rows.append(row)

    def summary(self) -> dict[str, Any]:
        """Return medians, quartiles and ratios."""
        found: dict[str, Any] = {"pairs": len(self.rows)}
        for kind in ("wall", "processor"):
            card, plain = ([row[who][kind] for row in self.rows] for who in ("card", "plain"))
            ratios = [one / two for one, two in zip(card, plain, strict=True)]
            found[kind] = {"card": spread(card), "plain": spread(plain), "ratio": spread(ratios)}
        for kind in ("phases", "flat"):
            # What a run did ahead of its hook is no phase of the hook.
            names = [name for name in self.rows[0][kind] if all(name in row[kind] for row in self.rows)]
            found[kind] = {name: spread([row[kind][name] for row in self.rows])["median"] for name in names}
        return found


def spread(values: list[float]) -> dict[str, float]:
    """Return median, quartiles, least and most."""
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    told = {"median": middle, "low": low, "high": high, "least": min(values), "most": max(values)}
    return {name: round(value, 3) for name, value in told.items()}


def crowds(pairs: Pairs, sizes: dict[int, int]) -> dict[str, Any]:
    """Return, for each number of runs started together, the milliseconds per run of either kind, and their ratio."""
    found: dict[str, Any] = {}
    card = [*PATIENT, "--", "true"]
    for size, rounds in sizes.items():
        say(f"{size} at once, {rounds} rounds")
        times: dict[str, list[float]] = {"card": [], "plain": []}
        for number in range(rounds):
            for name in ("card", "plain") if number % 2 else ("plain", "card"):
                times[name].append(speed_tree.together(card if name == "card" else pairs.plain, size) / size)
        ratios = [one / two for one, two in zip(times["card"], times["plain"], strict=True)]
        found[str(size)] = {"card": spread(times["card"]), "plain": spread(times["plain"]), "ratio": spread(ratios)}
    return found


def say(line: str) -> None:
    """Tell what is being measured."""
    sys.stderr.write(f"bench: {line} ...\n")
    sys.stderr.flush()


def main() -> int:
    """Measure, and print it all as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=25, help="interleaved pairs (25)")
    parser.add_argument("--only-pairs", action="store_true", help="the whole-run ratio and nothing else")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        os.mkdir(f"{scratch}/card")
        for name in ("hosts", "resolv.conf"):
            Path(f"{scratch}/{name}").write_text("127.0.0.1 localhost\n", encoding="ascii")
        say(f"{asked.pairs} pairs of a card and plain podman")
        pairs = Pairs(scratch)
        pairs.measure(asked.pairs)
        result: dict[str, Any] = {"schema": 1, "machine": speed_more.machine(), "run": pairs.summary()}
        if not asked.only_pairs:
            from infra.bench import speed_pool  # which imports this module

            say(f"{asked.pairs} pairs of a warm card and plain podman")
            result["pool"] = speed_pool.measure(asked.pairs)
            result["crowds"] = crowds(pairs, CROWDS)
            say("the hook alone, and stage 2")
            result["alone"] = speed_more.alone(PATIENT, scratch)
            say("memory")
            result["memory"] = speed_more.memory(PATIENT)
            say("1 to 1,000 names")
            result["names"] = speed_more.names(PATIENT, scratch)
    sys.stdout.write(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
