"""What every bench test may ask for."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.cards import remains


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Compare what exists after the test with what existed before it."""
    before = remains()
    yield
    # podman returns a moment before conmon, which it detached, has ended.
    deadline = time.monotonic() + 3
    while (after := remains()) != before and time.monotonic() < deadline:
        pass
    assert after == before


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Return an empty directory that a card may be given."""
    path = tmp_path / "work"
    path.mkdir()
    return path
