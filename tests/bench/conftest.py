"""What every bench test may ask for."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.cards import card, is_old, remains, until_ended
from tests.bench.lives import inventory, settled
from tests.bench.pools import FOLDER


@pytest.fixture(autouse=True, scope="session")
def _defaults() -> None:
    """Say once what a user of Debian 12 does: its podman has no pasta, and cards run with slirp4netns."""
    if is_old():
        config = Path("~/.config/card-run").expanduser()
        config.mkdir(mode=0o755, exist_ok=True)
        (config / "config.toml").write_text('net = "slirp"\n')


@pytest.fixture(autouse=True)
def alone() -> None:
    """Start once the cards of the test before have ended."""
    until_ended()


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


@pytest.fixture
def receipt(tmp_path: Path) -> Path:
    """Return where a receipt may be."""
    return tmp_path / "receipt.json"


@pytest.fixture(scope="session")
def used_bench() -> None:
    """Run a card first: podman's pause process, the runtime, and this boot's first cleaning."""
    assert card("--net=none", "--", "true").status == 0


@pytest.fixture
def nothing_new(used_bench: None) -> Iterator[None]:
    """Compare everything that cards and a pool could leave with what there was."""
    del used_bench
    before = inventory()
    yield
    assert settled(before, seconds=10) == {}
    assert not FOLDER.exists()
