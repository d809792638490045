"""A root that holds a socket which answers is refused, wherever that was bound; it is searched only when it must be."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from launcher.fs import policy
from launcher.fs.paths import Root
from launcher.fs.policy import Asked
from launcher.fs.sockets import judge, listeners
from oci.refusal import Refusal


@contextmanager
def bound(path: Path, *, kind: int = socket.SOCK_STREAM, listens: bool = True) -> Iterator[None]:
    """Have a socket at a path for as long as it takes."""
    with socket.socket(socket.AF_UNIX, kind) as server:
        server.bind(str(path))
        if listens:
            server.listen()
        yield


def refusals(root: Path) -> list[str]:
    """Return the refusals of a root that is to be read, as `reason: text`."""
    _, found = policy.decide(Asked(read=(str(root),)), forbidden=())
    return [f"{refusal.reason}: {refusal.text}" for refusal in found]


def holds(root: Path, path: Path) -> str:
    """Return the refusal of a root for a socket in it."""
    return f"path-has-socket: --read {root} holds the socket {path}, which answers"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a directory to give to a card, beside another."""
    for name in ("root", "beside"):
        (tmp_path / name).mkdir()
    return tmp_path / "root"


@pytest.fixture
def unsearched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the roots that were searched."""
    found: list[str] = []

    def searched(root: Root, *_: object) -> list[Refusal]:
        found.append(root.path)
        return []

    monkeypatch.setattr(judge, "_searched", searched)
    return found


@pytest.fixture(params=["unix_diag", "names only"])
def _told(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Try it with a kernel that tells inodes, and with one that does not."""

    def missing() -> list[listeners.Listener]:
        raise FileNotFoundError("no unix_diag")

    if request.param == "names only":
        monkeypatch.setattr(listeners, "own", missing)


told = pytest.mark.usefixtures("_told")


@told
def test_renamed_into_the_root(root: Path) -> None:
    """A socket that was moved after it was bound is found; the control, one that stays beside the root, is none."""
    with bound(root.parent / "beside/tmp"):
        assert refusals(root) == []
        (root.parent / "beside/tmp").rename(root / "deep.sock")
        assert refusals(root) == [holds(root, root / "deep.sock")]
    assert refusals(root) == []  # the file is still there, and nobody answers


@told
def test_a_second_name_in_the_root(root: Path) -> None:
    """A hard link of a socket leads to the same listener."""
    with bound(root.parent / "beside/one"):
        os.link(root.parent / "beside/one", root / "two")
        assert refusals(root) == [holds(root, root / "two")]


@told
def test_a_datagram_socket_that_was_renamed(root: Path) -> None:
    """A datagram socket is found by the same search, and gets no message from it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(f"{root.parent}/beside/log")
        (root.parent / "beside/log").rename(root / "log")
        assert refusals(root) == [holds(root, root / "log")]
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.recv(1)


def test_a_name_is_not_believed(root: Path) -> None:
    """Where a name leads to another socket than the one that was bound by it, both are looked for."""
    with bound(root.parent / "beside/tmp"):
        (root.parent / "beside/tmp").rename(root / "first")
        with bound(root.parent / "beside/tmp", listens=False):
            assert refusals(root) == [holds(root, root / "first")]


def test_ordinary_listeners_cost_no_search(root: Path, unsearched: list[str]) -> None:
    """Sockets that are where they were bound, and one on another device that is not, leave the root unsearched."""
    other = Path("/dev/shm") / f"card-run-test-{os.getpid()}"
    assert other.parent.stat().st_dev != root.stat().st_dev
    with bound(root.parent / "beside/one"), bound(other):
        other.unlink()
        assert (refusals(root), unsearched) == ([], [])
        (root.parent / "beside/one").unlink()  # the control: gone from where it was bound, it may be anywhere there
        assert (refusals(root), unsearched) == ([], [str(root)])


def test_a_root_that_is_too_large_to_search(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be told in time is refused, by the name that is looked for."""
    monkeypatch.setattr(judge, "SEARCHED", 3)
    for name in "abc":
        (root / name).touch()
    with bound(root.parent / "beside/tmp"):
        (root.parent / "beside/tmp").unlink()
        assert refusals(root) == []
        (root / "d").touch()
        text = f"--read {root} holds more than 3 names, '{root.parent}/beside/tmp' perhaps, which answers"
        assert refusals(root) == [f"path-has-socket: {text}"]


@told
def test_names_that_make_no_sense(root: Path) -> None:
    """A name with a newline in it, or one that is not UTF-8, neither hides its socket nor ends card-run."""
    for name in (b"x\n0: 1 2 zz 0001 01 5 /nowhere", b"\xff"):
        path = root.parent / "beside" / os.fsdecode(name.replace(b"/", b"_"))
        with bound(path):
            assert refusals(root) == []
            path.rename(root / "found")
            assert refusals(root) == [holds(root, root / "found")]
        (root / "found").unlink()


def test_what_no_card_is_shown(root: Path) -> None:
    """A socket in a directory that is hidden from the card is no reason; the control, without the mask, is one."""
    (root / "storage").mkdir()
    with bound(root / "storage/db"):
        for hidden, expected in ((f"{root}/storage",), 0), ((), 1):
            assert len(policy.decide(Asked(read=(str(root),)), forbidden=(), hidden=hidden)[1]) == expected
        (root / "storage/db").rename(root / "storage/moved")
        assert policy.decide(Asked(read=(str(root),)), forbidden=(), hidden=(f"{root}/storage",))[1] == []
