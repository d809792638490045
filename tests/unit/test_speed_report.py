"""The benchmark's own arithmetic: what is told, what is drawn, and what counts as worse."""

import json
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from infra.bench import speed_plot, speed_report
from infra.bench.speed import compared, phases
from infra.bench.speed_tree import spread

RECEIPT: dict[str, Any] = {
    "started_ms": 1010.0,
    "times_ms": {"judged": 2.0, "podman_spawned": 4.0, "ready": 14.0, "plan_written": 24.0}
    | {"released": 90.0, "podman_exited": 130.0},
    "hook": {"started_ms": 1064.0, "times_ms": {"total": 5.0}},
    "stage2": {"started_us": "1089000"},
}


def result(wall: float = 1.3, processor: float = 1.4) -> dict[str, Any]:
    """Return a result with these ratios."""
    each = {"card": spread([130.0, 140.0]), "plain": spread([100.0, 100.0])}
    return {
        "run": {
            "pairs": 2,
            "wall": {**each, "ratio": spread([wall, wall])},
            "processor": {**each, "ratio": spread([processor, processor])},
            "phases": phases(RECEIPT, 1000.0, 1145.0),
        }
    }


def test_phases_fill_the_run() -> None:
    """Those that follow each other add up to the whole wall time; the two beside podman's start are within it."""
    found = phases(RECEIPT, 1000.0, 1145.0)
    row = {name: value for name, value in found.items() if name not in speed_plot.BESIDE}
    assert sum(row.values()) == pytest.approx(145.0)
    assert row == {
        "start": 10.0,
        "parse": 2.0,
        "spawn": 2.0,
        "podman to hook": 50.0,
        "hook": 5.0,
        "podman to stage 2": 20.0,
        "stage 2": 11.0,
        "worker and podman's end": 40.0,
        "clean-up": 5.0,
    }
    assert set(row) == set(speed_plot.COLOURS)


def test_the_table_tells_what_was_measured() -> None:
    """A measure that was not made has no row; its bar and aim stand beside one that was, and which of them it meets."""
    text = speed_report.table(result())
    assert "whole run, cold, against podman run           1.30       1.30 to 1.30   1.5  1.15  bar" in text
    assert "memory" not in text


@pytest.mark.parametrize(
    ("value", "bar", "aim", "met"),
    [
        *[(1.15, 1.5, 1.15, "aim"), (1.151, 1.5, 1.15, "bar"), (1.6, 1.5, 1.15, "neither"), (9, None, None, "")],
        *[(0.99, 0.97, 0.99, "aim"), (0.988, 0.97, 0.99, "bar"), (0.96, 0.97, 0.99, "neither")],
    ],
)
def test_what_a_number_meets(value: float, bar: float | None, aim: float | None, met: str) -> None:
    """Less is better, but where the aim is above the bar: a throughput of 0.988 is not one of 0.99."""
    assert speed_report.meets(value, bar, aim) == met


def test_a_throughput_is_told_with_its_spread() -> None:
    """By the ratio of each pair; what was not measured to its end is no result."""
    lines = [f"pair {number:2}: 1000 MB/s without,   990 MB/s with: 0.{ratio}" for number, ratio in ((1, 98), (2, 99))]
    found = speed_report.throughput("\n".join([*lines, "median of 2 pairs: 0.985 of the throughput"]))
    assert (found["pairs"], found["ratio"]["median"], found["ratio"]["least"]) == (2, 0.985, 0.98)
    with pytest.raises(SystemExit, match="not measured to the end"):
        speed_report.throughput("\n".join(lines))
    text = speed_report.measures({"throughput": {"ratio": 0.988}})
    assert "throughput of an allowed stream              0.988" in text


def test_ratios_are_of_pairs() -> None:
    """Not of the medians: a machine that was slow for one pair was slow for both its runs."""
    found = compared([100.0, 400.0, 130.0], [100.0, 200.0, 100.0])
    assert found["ratio"]["median"] == 1.3
    assert (found["card"]["median"], found["plain"]["most"]) == (130.0, 200.0)


def test_a_spread_lies_within_its_values() -> None:
    """However few they are."""
    assert spread([1.0, 3.0]) == {"median": 2.0, "low": 1.5, "high": 2.5, "least": 1.0, "most": 3.0}
    assert set(spread([7.0]).values()) == {7.0}


def test_the_plot_is_an_image() -> None:
    """Well-formed SVG with a bar for plain podman, one part for each phase, and each phase named."""
    root = ET.fromstring(speed_plot.svg(result()))  # noqa: S314 - our own text
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    titles = [element.text for element in root.iter("{http://www.w3.org/2000/svg}title")]
    assert "hook: 5.0 ms" in titles
    assert "podman run" in titles


@pytest.mark.parametrize(("wall", "bad"), [(1.3, False), (1.42, False), (1.44, True), (1.0, False)])
def test_worse_is_beyond_the_tolerance(wall: float, bad: bool) -> None:  # noqa: FBT001 - what is expected
    """Better is never worse, and noise within the tolerance is not either."""
    assert bool(speed_report.worse(result(wall), result(1.3))) is bad


def test_processor_time_is_judged_too() -> None:
    """A card that only takes more of the processor is worse, and says so."""
    assert speed_report.worse(result(processor=1.6), result(processor=1.4))[0].startswith("the same, in processor time")


def test_the_committed_result_is_within_its_own_bars() -> None:
    """What the README shows meets what was promised, and is what the plot was drawn from."""
    kept = json.loads(speed_report.KEPT.read_text(encoding="utf-8"))
    assert speed_report.PLOT.read_text(encoding="utf-8") == speed_plot.svg(kept)
    for name, path, bar, aim, _ in speed_report.MEASURES:
        value = speed_report.pick(kept, path)
        if bar is not None:
            assert value is not None, name
            assert speed_report.meets(value, bar, aim) in {"aim", "bar"}, name


def test_the_readme_shows_the_committed_result() -> None:
    """Its table is the kept one's, word for word, and another result would take its place."""
    kept = json.loads(speed_report.KEPT.read_text(encoding="utf-8"))
    text = speed_report.README.read_text(encoding="utf-8")
    assert speed_report.measures(kept) in text
    assert speed_report.documented(text, kept) == text
    assert speed_report.measures(result()) in speed_report.documented(text, result())
