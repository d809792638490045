"""What every bench test may ask for."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.cards import is_old, remains


@pytest.fixture(autouse=True, scope="session")
def _defaults() -> None:
    """Say once what a user of Debian 12 does: its podman has no pasta, and cards run with slirp4netns."""
    if is_old():
        config = Path("~/.config/card-run").expanduser()
        config.mkdir(mode=0o755, exist_ok=True)
        (config / "config.toml").write_text('net = "slirp"\n')


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
