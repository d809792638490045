"""The conformance suite against real cards: card-run's own executor passes, and one broken in one claim fails in it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.conformance import MEANING
from tests.api import suites

BROKEN = {
    "write_boundary": "TestWrites",
    "read_boundary": "TestReads",
    "env_scrub": "TestLeaks",
    "resource_limits": "TestUnlimited",
    "network_boundary": "TestOpenNetwork",
    "address_network": "TestOpenAddresses",
    "process_boundary": "TestOpenProcesses",
    "lifetime_containment": "TestLeaves",
    "target_network": "TestNames",
}


def matrix(suite: str, *words: str) -> tuple[int, str]:
    """Run one suite in a pytest of its own; return its status and what it printed."""
    root = Path(suites.__file__).parents[2]
    # By its module alone: an installed card-run also offers it by name, and pytest takes no plugin twice.
    plugins = ["-p", "no:card_conformance", "-p", "launcher.conformance.plugin", "-p", "no:cacheprovider"]
    argv = [sys.executable, "-m", "pytest", *plugins]
    argv += ["-o", "testpaths=", "-o", f"pythonpath={root}", f"--rootdir={root}", "-q", "-rf"]
    argv += [f"{suites.__file__}::{suite}", f"--card-conformance-live={suite}", *words]
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, timeout=300, env={**os.environ, "COLUMNS": "300"}
    )
    return done.returncode, done.stdout + done.stderr


def test_our_own_executor_passes() -> None:
    """The whole matrix, for every bit that a run measures."""
    status, said = matrix("TestCard")
    assert status == 0, said
    claimed = (
        "address_network, claims, consistency, env_scrub, lifetime_containment, network_boundary, process_boundary"
    )
    assert f"TestCard: tried {claimed}, read_boundary, resource_limits, write_boundary" in said


@pytest.mark.parametrize("claim", MEANING)
def test_an_executor_that_is_broken_in_one_claim_fails_in_it(claim: str) -> None:
    """Each of these holds or does not claim everything else, so that nothing else fails."""
    status, said = matrix(BROKEN[claim], "-k", "not consistency", "--card-conformance-partial")
    assert status == 1, said
    failed = {line.partition("[")[2].partition(":")[0] for line in said.splitlines() if line.startswith("FAILED")}
    # Who may write a file may read it: a mount has no writing without.
    allowed = {claim, "read_boundary"} if claim == "write_boundary" else {claim}
    assert failed - {"claims"} <= allowed, said
    assert claim in failed or (claim == "target_network" and failed == {"claims"}), said
