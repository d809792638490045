"""The bench's own fixtures, for the tests of the Python interface."""

from tests.bench.conftest import alone, nothing_left, workspace

__all__ = ["alone", "nothing_left", "workspace"]
