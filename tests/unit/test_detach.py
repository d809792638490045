"""A detached card's two processes: whose log there is, and what becomes of a card whose id nobody learns."""

import os
import signal
from pathlib import Path

import pytest

from launcher.life import kept
from launcher.run import detach, directory
from launcher.run.detach import Parted
from oci.refusal import Refused


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where the log of a run is kept, with what an earlier run left there."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = Path(kept.prepare()) / "nightly.log"
    path.write_text("earlier")
    return path


@pytest.fixture
def parted() -> Parted:
    """Return the end that answers for the card; the starter's is closed."""
    read, write = os.pipe()
    os.close(read)
    return Parted(write, "nightly")


def test_a_refused_start_leaves_the_earlier_log(log: Path, parted: Parted) -> None:
    """Its own goes, and what the last run of that id said is there again."""
    parted.fresh_log()
    assert not log.exists()
    log.write_text("ours")
    parted.put_back()
    assert (log.read_text(), os.listdir(log.parent)) == ("earlier", [log.name])


def test_a_start_without_an_earlier_log_leaves_none(log: Path, parted: Parted) -> None:
    """There is nothing to put back."""
    log.unlink()
    parted.fresh_log()
    log.write_text("ours")
    parted.put_back()
    assert os.listdir(log.parent) == []


def test_a_start_that_was_killed_loses_nothing_either(log: Path, parted: Parted) -> None:
    """What it had set aside is what the next start sets aside."""
    parted.fresh_log()
    log.write_text("of the killed one")
    parted.fresh_log()
    parted.put_back()
    assert (log.read_text(), os.listdir(log.parent)) == ("earlier", [log.name])


def test_a_refusal_before_the_id_was_ours_touches_nothing(log: Path, parted: Parted) -> None:
    """Another run of that id may be writing there."""
    parted.put_back()
    assert log.read_text() == "earlier"


def test_once_released_the_log_is_this_runs(log: Path, parted: Parted, monkeypatch: pytest.MonkeyPatch) -> None:
    """The earlier one is gone then, and nothing puts it back."""
    monkeypatch.setattr(detach, "_nothing", lambda _: None)
    parted.fresh_log()
    log.write_text("ours")
    assert not parted.released()
    parted.put_back()
    assert (log.read_text(), os.listdir(log.parent)) == ("ours", [log.name])


def test_an_earlier_log_is_kept_as_long_as_its_run(log: Path, parted: Parted, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clearing of old receipts, which any run may begin meanwhile, passes over what is set aside."""
    monkeypatch.setattr(kept, "LIMIT", 1)
    monkeypatch.setattr(kept, "SLACK", 0)
    monkeypatch.setattr(directory, "parent", lambda: str(log.parent / "none"))
    kept.keep("older", {"run": "older", "detached": True})
    kept.keep("nightly", {"run": "nightly", "detached": True})
    os.utime(log, (1, 1))
    parted.fresh_log()
    kept._prune(str(log.parent))
    assert not Path(kept.path("older")).exists()
    parted.put_back()
    assert log.read_text() == "earlier"


def test_a_card_whose_id_cannot_be_written_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked to end and waited for, and its start is a refusal."""
    child = os.fork()
    if child == 0:
        signal.pause()
    read, write = os.pipe()
    os.write(write, b".")
    os.close(write)

    def full(fd: int, _data: bytes) -> int:
        assert fd == 1
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        patched.setattr(detach, "FORWARDED", ())
        with pytest.raises(Refused) as caught:
            detach._wait(child, read, "nightly")
    os.close(read)
    assert [refusal.reason for refusal in caught.value.refusals] == ["id-unwritable"]
    assert "No space left on device" in caught.value.refusals[0].text
    with pytest.raises(ChildProcessError):
        os.waitpid(child, 0)
