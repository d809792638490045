"""The benchmark's own arithmetic: what is told, what is drawn, and what counts as worse."""

import json
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from infra.bench import speed_plot, speed_report
from infra.bench.speed import phases, spread

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
    """A measure that was not made has no row; its bar and aim stand beside one that was."""
    text = speed_report.table(result())
    assert "whole run, cold, against podman run" in text
    assert "memory" not in text
    assert "1.30      1.5    1.15" in text


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
    for name, path, bar, _, _ in speed_report.BARS:
        value = speed_report.pick(kept, path)
        assert value is not None, name
        if bar is not None:
            assert value >= bar if "throughput" in path else value <= bar, name
