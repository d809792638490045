"""What a warm card has of the run that takes it."""

from pathlib import Path
from typing import Any

import pytest

from launcher import launch
from launcher.egress import own
from launcher.pool.slot import Slot
from launcher.request import Request
from launcher.run import perform
from launcher.run.directory import WARM_CARD, RunDirectory


class Podman:
    """A podman that was built with the pool's own time to stop."""

    def __init__(self) -> None:
        """Wait, with ten seconds."""
        self.stop_timeout = 10.0
        self.patient = True

    def be_patient(self, *, patient: bool) -> None:
        """Note it."""
        self.patient = patient


def unheard(**_: object) -> None:
    """Tell nobody."""


def test_the_time_to_stop_is_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Down to its fraction, which podman's own option has not."""
    podman: Any = Podman()
    unused: Any = None
    asked = launch.judge(Request(command=("true",), resolver="192.0.2.1", stop_timeout="9.5"))[0]
    slot = Slot(
        launch=asked, runtime=unused, bundle={}, run=RunDirectory(str(tmp_path), held=-1), keeper=unused,
        record=perform.record_of(asked), podman=podman, channel=unused, times=(0, 0, 0),
    )  # fmt: skip
    monkeypatch.setattr(slot, "_own", own.addresses(), raising=False)
    (tmp_path / WARM_CARD).touch()
    slot.take(asked, perform.record_of(asked), started=0, tell=unheard)
    assert (podman.stop_timeout, podman.patient) == (9.5, False)
