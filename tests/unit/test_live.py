"""Reading the ledgers of living runs: one that ends meanwhile is left out, and a podman that hangs is a refusal."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from hooks import ruleset
from launcher import live
from launcher.life.runs import RUNNING, Run
from launcher.run import directory
from oci.refusal import Refused
from tests.unit.walls import wall

LISTING = ruleset.render(wall("netns"))


@pytest.fixture
def podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return what makes the podman that is named one of these shell lines; run directories are below `runtime`."""
    monkeypatch.setenv("CARD_RUN_PODMAN", f"{tmp_path}/podman")
    monkeypatch.setattr(directory, "parents", lambda: [f"{tmp_path}/runtime"])

    def put(script: str) -> None:
        (tmp_path / "podman").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "podman").chmod(0o755)

    return put


def made(tmp_path: Path, run: str) -> Run:
    """Return a run that has a directory."""
    path = tmp_path / "runtime" / run
    path.mkdir(parents=True)
    return Run(run=run, path=str(path), state=RUNNING, record=None)


def test_a_run_that_ended_meanwhile_is_left_out(tmp_path: Path, podman: Callable[[str], None]) -> None:
    """Its table was read, and then its directory went: the others' ledgers are told all the same."""
    found = [made(tmp_path, name) for name in ("r1", "r2", "r3")]
    listings = json.dumps({one.run: LISTING for one in found})
    podman(f"rmdir {found[1].path}; printf %s {shlex.quote(listings)}")
    assert sorted(live.read_all(found)) == ["r1", "r3"]


def test_one_run_that_ended_meanwhile(tmp_path: Path, podman: Callable[[str], None]) -> None:
    """Asked for by itself, it is said to have ended; the control is the same run while it is there."""
    egress = wall("netns")
    one = made(tmp_path, egress.run)
    podman(f"printf %s {shlex.quote(LISTING)}")
    assert live.read(egress).denied == []
    podman(f"rmdir {one.path}; printf %s {shlex.quote(LISTING)}")
    with pytest.raises(Refused) as refused:
        live.read(egress)
    assert [refusal.reason for refusal in refused.value.refusals] == ["run-ended"]


def test_a_podman_that_hangs(tmp_path: Path, podman: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for so long, and then it is a refusal, of one ledger and of all."""
    one = made(tmp_path, wall("netns").run)
    podman("exec sleep 60")
    monkeypatch.setattr(live, "_SECONDS", 0.1)
    for read in (lambda: live.read_all([one]), lambda: live.read(wall("netns"))):
        with pytest.raises(Refused) as refused:
            read()
        assert [refusal.reason for refusal in refused.value.refusals] == ["ledger-unreadable"]
