"""The image of users' tools, which only a bench entered with `--images tools` has."""

import os

import pytest

from tests.bench.cards import run

TOOLS = "localhost/card-run/tools:latest"
THERE = run(["podman", "image", "exists", TOOLS]).status == 0
# In CI what is missing must fail, so nothing is skipped there.
needs_tools = pytest.mark.skipif(
    not THERE and "CI" not in os.environ, reason="the bench was entered without --images tools"
)
