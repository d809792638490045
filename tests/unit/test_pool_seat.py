"""The place of a user's pool: what nobody holds any more is taken away, what anybody holds is not."""

import fcntl
import os
import socket
from pathlib import Path

import pytest

from launcher.life import gc, runs, services
from launcher.life.containers import Containers
from launcher.pool import place, seat


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of a socket in a pool's directory, on which nobody listens."""
    folder = tmp_path / place.NAME
    folder.mkdir()
    monkeypatch.setattr(place, "folder", lambda: str(folder))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
        one.bind(place.socket())
    return folder / "socket"


def test_a_dead_pools_socket_is_taken_away(there: Path) -> None:
    """It is told, and with its directory gone; a second time there is nothing."""
    assert seat.clear(dry=True) == str(there)
    assert there.exists()
    assert seat.clear() == str(there)
    assert not there.parent.exists()
    assert seat.clear() == ""


def test_what_somebody_holds_stays(there: Path) -> None:
    """Neither the socket of who listens nor one whose directory is locked, as by a pool that starts, is touched."""
    held = os.open(there.parent, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    assert seat.clear() == ""
    os.close(held)
    there.unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
        one.bind(str(there))
        one.listen()
        assert seat.clear() == ""
        assert there.exists()


def test_what_is_not_ours_stays(there: Path) -> None:
    """Another file in the directory keeps it."""
    (there.parent / "other").touch()
    assert seat.clear() == str(there)
    assert os.listdir(there.parent) == ["other"]


def test_gc_takes_it_away(there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`card gc` tells of it beside runs and services, and only looks when it is to."""
    monkeypatch.setattr(gc, "find_podman", lambda: "/bin/false")
    monkeypatch.setattr(Containers, "strays", lambda _: ([], []))
    monkeypatch.setattr(runs, "directories", lambda: ())
    monkeypatch.setattr(services, "left", lambda: ())
    for dry in (True, False):
        (found,) = gc.collect(dry=dry)
        assert (found.why, found.undone) == (f"{there} was left by a pool that was killed", not dry)
    assert gc.collect() == []
