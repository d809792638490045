"""The image of users' tools, which only a bench entered with `--images tools` has."""

import pytest

from tests.bench.cards import run

TOOLS = "localhost/card-run/tools:latest"
THERE = run(["podman", "image", "exists", TOOLS]).status == 0
needs_tools = pytest.mark.skipif(not THERE, reason="the bench was entered without --images tools")
