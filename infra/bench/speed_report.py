"""What `speed.py` measured, for people: a table, a plot, and a judgement against the result that is in git.

`python -m infra.bench.speed_report RESULT.json [--throughput FILE] [--keep] [--check]`. The ratio of a machine to
itself moves less than its milliseconds, so that is what is compared, with a stated tolerance. Pure but for its files.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from infra.bench import speed_plot

KEPT = Path(__file__).parent / "results/speed.json"
PLOT = KEPT.with_suffix(".svg")
# A card may cost so much more than in the committed result, as a part of it, until `--check` says no: the spread of the
# median of 15 pairs between quiet runs is about a third of this.
TOLERANCE = 0.10
BARS = (
    ("whole run, cold, against podman run", ("run", "wall", "ratio", "median"), 1.5, 1.15, "x"),
    ("the same, in processor time", ("run", "processor", "ratio", "median"), None, None, "x"),
    ("from the pool, against podman run", ("pool", "wall", "ratio", "median"), 1.0, 0.6, "x"),
    ("hook as the runtime sees it", ("alone", "hook_ms"), 25, 15, "ms"),
    ("stage 2 up to exec", ("alone", "stage2_ms"), 15, 10, "ms"),
    ("8 at once, per card", ("crowds", "8", "ratio", "median"), None, None, "x"),
    ("64 at once, per card", ("crowds", "64", "ratio", "median"), 1.5, 1.2, "x"),
    ("memory of a running card beyond podman's", ("memory", "mib_per_card"), 25, 15, "MiB"),
    ("throughput of an allowed stream", ("throughput", "ratio"), 0.97, 0.99, "x"),
)


def pick(result: dict[str, Any], path: tuple[str, ...]) -> float | None:
    """Return one number of a result; None where that part was not measured."""
    found: Any = result
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
    return float(found) if isinstance(found, int | float) else None


def table(result: dict[str, Any]) -> str:
    """Return the result as text: each measure beside its bar and its aim, then the phases of a run."""
    lines = [f"{'measure':42} {'result':>9}  {'bar':>7} {'aim':>7}"]
    for name, path, bar, aim, unit in BARS:
        value = pick(result, path)
        if value is not None:
            lines.append(f"{name:42} {_told(value, unit):>9}  {_bound(bar):>7} {_bound(aim):>7}")
    run = result["run"]
    for kind in ("wall", "processor"):
        card, plain = (f"{run[kind][who]['median']:.0f}" for who in ("card", "plain"))
        ratio = run[kind]["ratio"]
        quartiles = f"{ratio['low']:.2f} to {ratio['high']:.2f}"
        lines.append(f"{kind}: card {card} ms, podman run {plain} ms, half of {run['pairs']} pairs at {quartiles}")
    lines += [f"  {name:26} {value:7.1f} ms" for name, value in run["phases"].items()]
    for count, row in result.get("names", {}).items():
        lines.append(f"{count:>5} names: {row['run_ms']:.0f} ms, hook {row['hook_ms']:.1f} ms")
    return "\n".join(lines) + "\n"


def _told(value: float, unit: str) -> str:
    return f"{value:.2f}" if unit == "x" else f"{value:.1f} {unit}"


def _bound(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def worse(result: dict[str, Any], kept: dict[str, Any]) -> list[str]:
    """Return in what the result is worse than the one that is kept, by more than the tolerance."""
    found: list[str] = []
    for name, path, *_ in BARS[:2]:
        now, then = pick(result, path), pick(kept, path)
        if now is not None and then is not None and now > then * (1 + TOLERANCE):
            found.append(f"{name}: {now:.2f}, and {then:.2f} was committed (tolerance {TOLERANCE:.0%})")
    return found


def _throughput(path: str) -> dict[str, float]:
    text = Path(path).read_text(encoding="utf-8")
    found = re.search(r"median of \d+ pairs: ([0-9.]+)", text)
    return {"ratio": float(found.group(1))} if found else {}


def main() -> int:
    """Print the table; keep the result and its plot, or judge it; return 1 when it is worse."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("result", help="what speed.py printed")
    parser.add_argument("--throughput", help="what tests/kernel/throughput.py printed")
    parser.add_argument(
        "--keep", action="store_true", help=f"make it the committed result, with its plot ({KEPT.name})"
    )
    parser.add_argument("--check", action="store_true", help="compare it with the committed result")
    asked = parser.parse_args()
    result: dict[str, Any] = json.loads(Path(asked.result).read_text(encoding="utf-8"))
    if asked.throughput:
        result["throughput"] = _throughput(asked.throughput)
    sys.stdout.write(table(result))
    if asked.keep:
        KEPT.parent.mkdir(exist_ok=True)
        KEPT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        PLOT.write_text(speed_plot.svg(result), encoding="utf-8")
    problems = worse(result, json.loads(KEPT.read_text(encoding="utf-8"))) if asked.check else []
    for problem in problems:
        sys.stderr.write(f"bench: worse than what is committed: {problem}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
