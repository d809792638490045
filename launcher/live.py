"""A running card's ledger, read from its pinned network namespace while it runs.

The pin lives in podman's own mount namespace, so `podman unshare` is the way in (podman-unshare(1)); nothing of the
card takes part. Names come from the run's own plan and from nowhere else.
"""

import json
import os
import subprocess

from hooks import ledger, nft, rundir
from hooks.egress import Egress
from hooks.ledger import Ledger
from hooks.plan import egress_of
from launcher import live_inside, runtime
from launcher.fs import searched
from launcher.life.runs import Run
from launcher.run import directory
from launcher.run.perform import find_podman
from oci.refusal import Refusal, Refused

_SECONDS = 20


def plan_of(run: str) -> Egress:
    """Return what a living run may reach; raises Refused (`run-ended`) when it is gone by now."""
    path = f"{directory.parent()}/{run}"
    try:
        with open(f"{path}/{rundir.PLAN}", "rb") as file:
            return egress_of(file.read())
    except OSError:
        raise _ended(run) from None


def alive(run: str) -> bool:
    """Return whether the run's directory is still there."""
    return os.path.isdir(f"{directory.parent()}/{run}")


def read_all(runs: list[Run]) -> dict[str, Ledger]:
    """Return the ledger of each run as the kernel has it now, all by one process; a run that just ended has none."""
    if not runs:
        return {}
    words = [find_podman(), "--remote=false", "unshare", runtime.base_python(), "-I", "-S", "-B", live_inside.__file__]
    words += [runtime.package_root(), *(f"{run.run}={run.path}/{rundir.NETNS}" for run in runs)]
    listings: dict[str, str] = json.loads(_told(words, whose="the ledgers"))
    tests = {run.run: _self_tests(run.path) for run in runs}
    counted = ((run, text, tests[run]) for run, text in listings.items())
    return {run: ledger.parse(text, self_tests=count) for run, text, count in counted if count is not None}


def _told(words: list[str], *, whose: str) -> str:
    """Return what a command printed; raises Refused (`ledger-unreadable`) when it failed, or took too long."""
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=_SECONDS, check=False, env=searched.environment()
        )
    except subprocess.TimeoutExpired:
        text = f"{whose}: podman did not answer within {_SECONDS} seconds"
        raise Refused([Refusal("ledger-unreadable", text, "try again when the bench is less busy")]) from None
    if done.returncode:
        raise Refused([Refusal("ledger-unreadable", f"{whose}: {done.stderr.strip()[:200]}")])
    return done.stdout


def _self_tests(path: str) -> int | None:
    """Return how many self-tests a ledger counts, or None when the run has ended and its directory is gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return rundir.self_tests(fd)
    finally:
        os.close(fd)


def read(egress: Egress) -> Ledger:
    """Return the ledger as the kernel has it now; raises Refused (`run-ended`, `ledger-unreadable`)."""
    pin = f"{directory.parent()}/{egress.run}/{rundir.NETNS}"
    words = [find_podman(), "--remote=false", "unshare", searched.program("nsenter"), f"--net={pin}"]
    words += [nft.program(), "list", "table", "inet", egress.table]
    listing = _told(words, whose=f"the ledger of {egress.run}")
    count = _self_tests(os.path.dirname(pin))
    if count is None:
        raise _ended(egress.run)
    return ledger.parse(listing, self_tests=count)


def _ended(run: str) -> Refused:
    return Refused([Refusal("run-ended", f"{run} has ended", f"card show {run}")])
