"""A running card's ledger, read from its pinned network namespace while it runs.

The pin lives in podman's own mount namespace, so `podman unshare` is the way in (podman-unshare(1)); nothing of the
card takes part. Names come from the run's own plan and from nowhere else.
"""

import os
import subprocess

from hooks import ledger, nft, rundir
from hooks.egress import Egress
from hooks.ledger import Ledger
from hooks.plan import egress_of
from launcher.run import directory
from launcher.run.perform import find_podman
from oci.refusal import Refusal, Refused

_SECONDS = 20


def plan_of(run: str) -> Egress:
    """Return what a running card may reach; raises Refused when no run of that name lives."""
    path = f"{directory.parent()}/{run}"
    try:
        with open(f"{path}/{rundir.PLAN}", "rb") as file:
            return egress_of(file.read())
    except OSError:
        text = f"no run called {run} is running"
        raise Refused(
            [Refusal("unknown-run", text, "a receipt (card-run --json) tells of one that has ended")]
        ) from None


def alive(run: str) -> bool:
    """Return whether the run's directory is still there."""
    return os.path.isdir(f"{directory.parent()}/{run}")


def read(egress: Egress) -> Ledger:
    """Return the ledger as the kernel has it now; raises Refused when the namespace cannot be entered any more."""
    pin = f"{directory.parent()}/{egress.run}/{rundir.NETNS}"
    words = [find_podman(), "--remote=false", "unshare", "nsenter", f"--net={pin}"]
    words += [nft.program(), "list", "table", "inet", egress.table]
    done = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode:
        raise Refused([Refusal("ledger-unreadable", f"the ledger of {egress.run}: {done.stderr.strip()[:200]}")])
    return ledger.parse(done.stdout)
