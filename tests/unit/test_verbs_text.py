"""What the verbs of running cards make of words and times: pure, without a card."""

import time

import pytest

from launcher.verbs import exec as enter
from launcher.verbs import human, logs, ps


@pytest.mark.parametrize(
    ("words", "read"),
    [
        ("r -- ls -l", "r -- ls -l"),
        ("r -it -- bash", "r -it -- bash"),
        ("-it r bash -c x", "-it r -- bash -c x"),
        ("r -it bash -i", "r -it -- bash -i"),
        ("--env A=1 r env -i", "--env A=1 r -- env -i"),
        ("-w /tmp r pwd", "-w /tmp r -- pwd"),
        ("--cwd=/tmp r pwd", "--cwd=/tmp r -- pwd"),
        ("r ls -- -l", "r -- ls -- -l"),
        ("-- r ls", "-- r ls"),
        ("r", "r"),
        ("", ""),
        ("--env", "--env"),
    ],
)
def test_where_the_command_begins(words: str, read: str) -> None:
    """After `--`, else with the first word behind the run that is no option; its own words are left as they are."""
    assert enter.separated(words.split()) == read.split()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0s"), (0, "0s"), (59.9, "59s"), (60, "1m"), (3599, "59m"), (7200, "2h"), (86400 * 3, "3d")],
)
def test_spans(seconds: float, text: str) -> None:
    """The largest whole unit."""
    assert human.span(seconds) == text


def test_a_table_stands_in_columns() -> None:
    """Each cell under its head, nothing behind the last."""
    assert human.table([("A", "LONG", "C"), ("longer", "x", "")]) == "A       LONG  C\nlonger  x\n"
    assert human.table([]) == ""


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"state": "running"}, "running"),
        ({"state": "ended", "exit_status": 7, "how": "exited"}, "ended 7, 0s ago"),
        ({"state": "ended", "exit_status": 137, "how": "exited", "oom": True}, "ended 137 out of memory, 0s ago"),
        ({"state": "ended", "exit_status": None, "how": "abandoned"}, "abandoned, 0s ago"),
    ],
)
def test_states(row: dict[str, object], text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ended run's state has its status, and why where that is not the worker's doing."""
    monkeypatch.setattr(time, "time", lambda: 100.0)
    assert ps.state({"ended": 100.0, **row}) == text


LOG = [b"T stdout F one", b"T stdout P tw", b"T stderr F err", b"T stdout F o", b"T stderr P un"]


@pytest.mark.parametrize(
    ("last", "kept"),
    [(0, []), (1, [4]), (2, [1, 3, 4]), (3, [2, 1, 3, 4]), (4, [0, 1, 2, 3, 4]), (9, [0, 1, 2, 3, 4])],
)
def test_the_last_lines_of_a_log(last: int, kept: list[int]) -> None:
    """A line is all its parts, wherever the other stream came between; one that has not ended counts."""
    assert logs.tail_of(LOG, last) == [LOG[index] for index in kept]
