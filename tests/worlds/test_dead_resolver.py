"""A bench whose resolver never answers (world dead-resolver): the run is refused within the one deadline."""

import time

from launcher.egress.policy import BASE_NAMES
from tests.bench.cards import card


def test_refused_in_time() -> None:
    """Every name is told, the worker never runs, and it costs the deadline, not seconds for each name."""
    start = time.monotonic()
    done = card("--", "echo", "ran")
    assert (done.status, done.out) == (125, "")
    assert done.reasons == ["name-unresolved"] * len(BASE_NAMES)
    assert time.monotonic() - start < 3.0 + 3.0
