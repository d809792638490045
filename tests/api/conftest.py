"""The bench's own fixtures, for the tests of the Python interface."""

from tests.bench.conftest import nothing_left, workspace

__all__ = ["nothing_left", "workspace"]
