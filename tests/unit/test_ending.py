"""What podman's log of events says of a run's end is held against what its client says, as far as it can be read."""

import json
from pathlib import Path

import pytest

from launcher.run import ending
from launcher.run.directory import RunDirectory

CID = "0123456789abcdef" * 4


def event(**changes: object) -> str:
    """Return one line of the log, as podman writes it."""
    return json.dumps({"ContainerExitCode": 7, "ID": CID, "Status": "died", **changes}, separators=(",", ":"))


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Return the directory of a run beside podman's own."""
    (tmp_path / "card-run/r1").mkdir(parents=True)
    (tmp_path / "libpod/tmp/events").mkdir(parents=True)
    return RunDirectory(str(tmp_path / "card-run/r1"), held=-1)


def log(run: RunDirectory, *lines: str) -> None:
    """Write podman's log."""
    path = Path(run.path).parents[1] / "libpod/tmp/events/events.log"
    path.write_text("".join(f"{line}\n" for line in lines))


def test_a_status_that_was_recorded(run: RunDirectory) -> None:
    """The same is no dispute, another is; what comes after it, and a long log before it, change nothing."""
    log(run, *[event(ID="f" * 64)] * 2000, event(), event(Status="remove"))
    assert not ending.differs(run, CID, 7)
    assert ending.differs(run, CID, 3)
    assert ending.differs(run, CID, 0)


@pytest.mark.parametrize(
    "line",
    [
        event(ID="f" * 64),
        event(Status="remove"),
        event(ContainerExitCode=-1),
        event(ContainerExitCode="7"),
        f'{{"ID":"{CID}","Status":"died"}}',
        event()[:-1],
        "",
    ],
)
def test_what_tells_nothing(run: RunDirectory, line: str) -> None:
    """Another's end, another event, no code, and half a line are no record: podman's client is believed."""
    log(run, line)
    assert not ending.differs(run, CID, 3)


def test_no_log(run: RunDirectory) -> None:
    """A podman that keeps its events elsewhere has no record either."""
    assert not ending.differs(run, CID, 3)
