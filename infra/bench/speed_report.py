"""What `speed.py` measured, for people: a table, a plot, and a judgement against the result that is in git.

`python -m infra.bench.speed_report RESULT.json [--throughput FILE] [--keep] [--check]`. The ratio of a machine to
itself moves less than its milliseconds, so that is what is compared, with a stated tolerance. Pure but for its files.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple, cast

from infra.bench import speed_plot
from infra.bench.speed_tree import spread

KEPT = Path(__file__).parent / "results/speed.json"
PLOT = KEPT.with_suffix(".svg")
README = Path(__file__).parents[2] / "README.md"
# A card may cost so much more than in the committed result, as a part of it, until `--check` says no: the spread of the
# median of 15 pairs between quiet runs is about a third of this.
TOLERANCE = 0.10
_BLOCK = re.compile(r"```\nmeasure .*?```\n", re.DOTALL)


class Measure(NamedTuple):
    """A row of the table: where its number or spread is in a result, its bar, its aim, and how a number is told."""

    name: str
    path: tuple[str, ...]
    bar: float | None
    aim: float | None
    told: str


RATIO, MILLISECONDS, MIB, SHARE = "{:.2f}", "{:.1f} ms", "{:.1f} MiB", "{:.3f}"
JUDGED = (
    Measure("whole run, cold, against podman run", ("run", "wall", "ratio"), 1.5, 1.15, RATIO),
    Measure("the same, in processor time", ("run", "processor", "ratio"), None, None, RATIO),
)
MEASURES = (
    *JUDGED,
    Measure("whole run, podman's environment alike", ("run", "wall", "ratio_alike"), None, None, RATIO),
    Measure("from a ready pool, against podman run", ("pool", "wall", "ratio"), 1.0, 0.6, RATIO),
    Measure("hook as the runtime sees it", ("alone", "hook_ms"), 25, 15, MILLISECONDS),
    Measure("stage 2 up to exec", ("alone", "stage2_ms"), 15, 10, MILLISECONDS),
    Measure("1 at once, per card", ("crowds", "1", "ratio"), None, None, RATIO),
    Measure("8 at once, per card", ("crowds", "8", "ratio"), None, None, RATIO),
    Measure("64 at once, per card", ("crowds", "64", "ratio"), 1.5, 1.2, RATIO),
    Measure("memory of a running card beyond podman's", ("memory", "mib_per_card"), 25, 15, MIB),
    Measure("memory of a card that waits in a pool", ("memory", "warm_mib_per_card"), None, None, MIB),
    Measure("throughput of an allowed stream", ("throughput", "ratio"), 0.97, 0.99, SHARE),
)


def find(result: dict[str, Any], path: tuple[str, ...]) -> Any:
    """Return what a result has there; None where that part was not measured."""
    found: Any = result
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
    return found  # pyright: ignore[reportUnknownVariableType]


def pick(result: dict[str, Any], path: tuple[str, ...]) -> float | None:
    """Return one number of a result, a median where there is more than one; None where that was not measured."""
    found = find(result, path)
    found = found.get("median") if isinstance(found, dict) else found  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
    return float(found) if isinstance(found, int | float) else None


def measures(result: dict[str, Any]) -> str:
    """Return each measure beside its bar and its aim, with the half of its values that is in the middle."""
    lines = [f"{'measure':40} {'median':>9} {'half of them':>18} {'bar':>5} {'aim':>5}  meets"]
    for name, path, bar, aim, told in MEASURES:
        value = pick(result, path)
        if value is not None:
            half = _half(find(result, path), told)
            row = f"{name:40} {told.format(value):>9} {half:>18} {_bound(bar):>5} {_bound(aim):>5}"
            lines.append(f"{row}  {meets(value, bar, aim)}".rstrip())
    machine: dict[str, Any] = result.get("machine", {})
    if machine:
        where = "{processors} processors ({processor}), {memory_gib} GiB, Linux {kernel}, podman {podman}"
        lines.append(where.format(**machine))
    return "\n".join(lines) + "\n"


def table(result: dict[str, Any]) -> str:
    """Return the result as text: the measures, then the milliseconds of a run and its phases."""
    lines: list[str] = []
    run = result["run"]
    for kind in ("wall", "processor"):
        card, plain = (f"{run[kind][who]['median']:.0f}" for who in ("card", "plain"))
        lines.append(f"{kind}: card {card} ms, podman run {plain} ms, {run['pairs']} pairs")
    lines += [f"  {name:26} {value:7.1f} ms" for name, value in run["phases"].items()]
    for count, row in result.get("names", {}).items():
        lines.append(f"{count:>5} names: {row['run_ms']:.0f} ms, hook {row['hook_ms']:.1f} ms")
    return measures(result) + "\n".join(lines) + "\n"


def _half(found: Any, told: str) -> str:
    if not isinstance(found, dict):
        return ""
    values, number = cast("dict[str, float]", found), told.partition(" ")[0]
    return f"{number.format(values['low'])} to {number.format(values['high'])}"


def meets(value: float, bar: float | None, aim: float | None) -> str:
    """Return what a number meets: its aim, only its bar, or neither; more is better where the aim is above the bar."""
    if bar is None or aim is None:
        return ""
    sign = -1 if aim > bar else 1
    return "aim" if sign * value <= sign * aim else "bar" if sign * value <= sign * bar else "neither"


def _bound(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def documented(text: str, result: dict[str, Any]) -> str:
    """Return the README with these measures in the place of those that it shows."""
    return _BLOCK.sub(lambda _: f"```\n{measures(result)}```\n", text)


def worse(result: dict[str, Any], kept: dict[str, Any]) -> list[str]:
    """Return in what the result is worse than the one that is kept, by more than the tolerance."""
    found: list[str] = []
    for name, path, *_ in JUDGED:
        now, then = pick(result, path), pick(kept, path)
        if now is not None and then is not None and now > then * (1 + TOLERANCE):
            found.append(f"{name}: {now:.2f}, and {then:.2f} was committed (tolerance {TOLERANCE:.0%})")
    return found


def throughput(text: str) -> dict[str, Any]:
    """Return the spread of what tests/kernel/throughput.py printed of its pairs; raises SystemExit when it has none."""
    pairs = [float(ratio) for ratio in re.findall(r"^pair .*: ([0-9.]+)$", text, re.MULTILINE)]
    if not pairs or "median of" not in text:
        raise SystemExit("the throughput was not measured to the end")
    return {"pairs": len(pairs), "ratio": spread(pairs)}


def main() -> int:
    """Print the table; keep the result and its plot, or judge it; return 1 when it is worse."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("result", help="what speed.py printed")
    parser.add_argument("--throughput", help="what tests/kernel/throughput.py printed")
    parser.add_argument(
        "--keep",
        action="store_true",
        help=f"make it the committed result ({KEPT.name}), with its plot and in the README",
    )
    parser.add_argument("--check", action="store_true", help="compare it with the committed result")
    asked = parser.parse_args()
    result: dict[str, Any] = json.loads(Path(asked.result).read_text(encoding="utf-8"))
    if asked.throughput:
        result["throughput"] = throughput(Path(asked.throughput).read_text(encoding="utf-8"))
    sys.stdout.write(table(result))
    if asked.keep:
        KEPT.parent.mkdir(exist_ok=True)
        KEPT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        PLOT.write_text(speed_plot.svg(result), encoding="utf-8")
        README.write_text(documented(README.read_text(encoding="utf-8"), result), encoding="utf-8")
    problems = worse(result, json.loads(KEPT.read_text(encoding="utf-8"))) if asked.check else []
    for problem in problems:
        sys.stderr.write(f"bench: worse than what is committed: {problem}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
