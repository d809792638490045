"""The cost of a card: `card-run` against plain `podman run` of the same image, command and podman flags.

Everything is a ratio measured side by side, because machines are noisy: pairs that take turns, after a warm-up, and
processor time of the whole tree beside the wall clock, which other work disturbs less (DESIGN "Budgets"). Run inside
the bench; prints what it measured as JSON on standard output and says on standard error what it is doing.
"""

import argparse
import json
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from infra.bench import speed_more, speed_tree
from infra.bench.speed_sides import PATIENT, environment, plain_argv, scratch
from infra.bench.speed_tree import spread

SCHEMA = 2
WARM_UP = 2
CROWDS = (1, 8, 64)
# One turn, and the next one backwards: the card is as often the first as the last, and next to plain podman always.
_TURN = ("alike", "plain", "card")


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
    """Runs of a card and of plain podman that take turns: (wall, processor) milliseconds of each, and the phases.

    A third of each turn is plain podman in the environment that card-run gives to its own ("alike").
    """

    def __init__(self, folder: str) -> None:
        self.plain = plain_argv(folder)
        self.receipt = Path(folder) / "receipt.json"
        self.card = [*PATIENT, f"--json={self.receipt}", "--", "true"]
        self.rows: list[dict[str, Any]] = []
        self._sides = {
            "card": (self.card, None),
            "plain": (self.plain, None),
            "alike": (self.plain, environment(self.plain)),
        }

    def measure(self, pairs: int) -> None:
        """Run so many pairs, in turns of alternating order."""
        for _ in range(WARM_UP):
            speed_tree.timed(self.card)
            speed_tree.timed(self.plain)
        with speed_tree.whole_trees():
            for number in range(pairs):
                row: dict[str, Any] = {}
                for name in _TURN if number % 2 else reversed(_TURN):
                    row[name] = speed_tree.run(*self._sides[name])
                    if name == "card":
                        receipt = json.loads(self.receipt.read_text(encoding="utf-8"))
                        row["phases"] = phases(receipt, *row[name]["clock"])
                        row["flat"] = flatten(receipt)
                self.rows.append(row)

    def summary(self) -> dict[str, Any]:
        """Return medians, quartiles and ratios."""
        found: dict[str, Any] = {"pairs": len(self.rows)}
        for kind in ("wall", "processor"):
            found[kind] = compared(*([row[who][kind] for row in self.rows] for who in ("card", "plain")))
            beside = compared(*([row[who][kind] for row in self.rows] for who in ("card", "alike")))
            found[kind] |= {"alike": beside["plain"], "ratio_alike": beside["ratio"]}
        for kind in ("phases", "flat"):
            # What a run did ahead of its hook is no phase of the hook.
            names = [name for name in self.rows[0][kind] if all(name in row[kind] for row in self.rows)]
            found[kind] = {name: spread([row[kind][name] for row in self.rows])["median"] for name in names}
        return found


def compared(card: list[float], plain: list[float]) -> dict[str, Any]:
    """Return the spread of either side, and of the ratios of the pairs."""
    ratios = [one / two for one, two in zip(card, plain, strict=True)]
    return {"card": spread(card), "plain": spread(plain), "ratio": spread(ratios)}


def crowd(plain: list[str], size: int, rounds: int) -> dict[str, Any]:
    """Return the milliseconds per run of so many started together, of either kind in turns, and their ratio.

    The next crowd starts when the last one is gone, with all that it left.
    """
    sides = {"card": [*PATIENT, "--", "true"], "plain": plain}
    times: dict[str, list[float]] = {"card": [], "plain": []}
    with speed_tree.whole_trees():
        for number in range(rounds):
            for name in ("card", "plain") if number % 2 else ("plain", "card"):
                times[name].append(speed_tree.together(sides[name], size) / size)
    return {"rounds": rounds, **compared(times["card"], times["plain"])}


@contextmanager
def part(result: dict[str, Any], name: str) -> Generator[None]:
    """Tell what is being measured, and keep in the result how many seconds that took."""
    sys.stderr.write(f"bench: {name} ... ")
    sys.stderr.flush()
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    sys.stderr.write(f"{took:.0f} s\n")
    result.setdefault("took_seconds", {})[name] = round(took, 1)


def more(result: dict[str, Any], pairs: Pairs, folder: str, asked: argparse.Namespace) -> None:
    """Measure everything but the pairs into the result."""
    from infra.bench import speed_memory, speed_pool  # which import this module

    with part(result, f"{asked.pairs} pairs of a warm card and plain podman"):
        result["pool"] = speed_pool.measure(folder, asked.pairs)
    with part(result, f"the hook alone, and stage 2, {asked.rounds} times"):
        result["alone"] = speed_more.alone(folder, asked.rounds)
    with part(result, "memory"):
        result["memory"] = speed_memory.measure(folder)
    with part(result, "1 to 1,000 names"):
        result["names"] = speed_more.names(folder, asked.rounds)
    result["crowds"] = {}
    for size in asked.crowds:
        with part(result, f"{size} at once, {asked.rounds} rounds"):
            result["crowds"][str(size)] = crowd(pairs.plain, size, asked.rounds)


def main() -> int:
    """Measure, and print it all as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=25, help="interleaved pairs (25)")
    parser.add_argument("--rounds", type=int, default=15, help="rounds of each other measure (15)")
    parser.add_argument("--crowds", type=int, nargs="*", default=CROWDS, help="how many at once (1 8 64)")
    parser.add_argument("--only-pairs", action="store_true", help="the whole-run ratio and nothing else")
    asked = parser.parse_args()
    result: dict[str, Any] = {"schema": SCHEMA, "machine": speed_more.machine()}
    with scratch() as folder:
        pairs = Pairs(folder)
        with part(result, f"{asked.pairs} pairs of a card and plain podman"):
            pairs.measure(asked.pairs)
        result["run"] = pairs.summary()
        if not asked.only_pairs:
            more(result, pairs, folder, asked)
    sys.stdout.write(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
