"""The bench's own settings are read strictly: an unknown key is refused, a missing file means the defaults."""

import os
from pathlib import Path

import pytest

from launcher import bench
from launcher.bench import Bench


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the bench's settings be this test's own file, and its user the administrator."""
    path = tmp_path / "config.toml"
    monkeypatch.setattr(bench, "CONFIG", str(path))
    monkeypatch.setattr(bench, "OWNERS", (0, os.getuid()))
    return path


def read(tmp_path: Path, text: str) -> tuple[Bench, list[str]]:
    """Return the settings of a file with this text, and what is wrong with it."""
    (tmp_path / "config.toml").write_text(text)
    settings, refusals = bench.read()
    assert all(refusal.reason == "bench-config" for refusal in refusals)
    return settings, [refusal.text for refusal in refusals]


def test_missing_file() -> None:
    """Without a file nothing is admitted."""
    assert bench.read() == (Bench(), [])
    assert bench.ceiling() == (None, [])


def test_good(tmp_path: Path) -> None:
    """Ranges are kept in canonical text."""
    settings, wrong = read(tmp_path, 'documentation_ranges = true\nbenches = ["10.1.0.0/16", "2001:DB8::/64"]\n')
    assert wrong == []
    assert settings == Bench(documentation_ranges=True, benches=("10.1.0.0/16", "2001:db8::/64"))


@pytest.mark.parametrize(
    "text",
    ["documentation_ranges = 1", 'benches = "10.0.0.0/8"', 'benches = ["10.0.0.1/8"]', "nonsense = 1", "a = [", "\x00"],
)
def test_bad(tmp_path: Path, text: str) -> None:
    """Each mistake is one refusal that names the file."""
    _, wrong = read(tmp_path, text)
    assert len(wrong) == 1
    assert str(tmp_path) in wrong[0]
