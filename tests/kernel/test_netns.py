"""Entering, pinning and unpinning a network namespace, each in the order that leaves nothing behind."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hooks import netns
from tests.kernel.wire import Namespace


@pytest.fixture
def space() -> Iterator[Namespace]:
    """Yield a namespace."""
    made = Namespace()
    yield made
    made.close()


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    """Yield a descriptor of an empty directory."""
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def test_setns_moves_only_the_caller(space: Namespace) -> None:
    """After setns the calling thread sees the other namespace; the process's own stays."""
    own = os.stat("/proc/self/ns/net").st_ino
    inside = space.call(lambda: os.stat("/proc/thread-self/ns/net").st_ino)
    assert inside == netns.inode(space.fd) != own
    assert os.stat("/proc/self/ns/net").st_ino == own


def test_setns_into_what_is_no_namespace_fails(directory: int) -> None:
    """A descriptor of anything else is refused by the kernel, and the error names the call."""
    with pytest.raises(OSError, match="setns") as failure:
        netns.setns(directory)
    assert failure.value.errno == errno.EINVAL


def test_own_and_other(space: Namespace) -> None:
    """The process's own namespace is told from another."""
    own = netns.open_of(os.getpid())
    assert netns.is_own(own)
    assert not netns.is_own(space.fd)
    os.close(own)


def test_the_namespace_of_a_process_that_is_gone() -> None:
    """A pid that no process has is FileNotFoundError."""
    with pytest.raises(FileNotFoundError):
        netns.open_of(4194304 - 1)


def test_a_pin_holds_the_namespace(tmp_path: Path, directory: int) -> None:
    """A pinned namespace can be opened under its name after every other reference is gone, and unpinned once."""
    space = Namespace()
    inode = netns.inode(space.fd)
    netns.pin(space.fd, directory=directory, name="netns")
    space.close()
    found = netns.open_pin(directory=directory, name="netns")
    assert found is not None
    assert netns.inode(found) == inode
    os.close(found)
    netns.unpin(directory=directory, name="netns")
    assert list(tmp_path.iterdir()) == []
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
    netns.unpin(directory=directory, name="netns")


def test_a_name_that_is_taken_is_not_pinned(tmp_path: Path, directory: int, space: Namespace) -> None:
    """Pinning over an existing name fails and leaves it."""
    (tmp_path / "netns").write_text("mine")
    with pytest.raises(FileExistsError):
        netns.pin(space.fd, directory=directory, name="netns")
    assert (tmp_path / "netns").read_text() == "mine"


def test_a_pin_that_fails_leaves_no_name(tmp_path: Path, directory: int) -> None:
    """When the mount fails the name is taken away again."""
    with pytest.raises(OSError, match="mount"):
        netns.pin(999, directory=directory, name="netns")
    assert list(tmp_path.iterdir()) == []


def test_a_pin_made_twice_is_undone_whole(tmp_path: Path, directory: int, space: Namespace) -> None:
    """However many mounts are stacked on the name, unpin takes them all."""
    netns.pin(space.fd, directory=directory, name="netns")
    netns.bind(f"/proc/self/fd/{space.fd}", str(tmp_path / "netns"))
    netns.unpin(directory=directory, name="netns")
    assert list(tmp_path.iterdir()) == []
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


def test_what_is_not_a_pin_is_none(tmp_path: Path, directory: int) -> None:
    """A missing name, a plain file, a link and a folder are not pins."""
    assert netns.open_pin(directory=directory, name="netns") is None
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("/proc/self/ns/net")
    (tmp_path / "folder").mkdir()
    for name in ("file", "link", "folder"):
        assert netns.open_pin(directory=directory, name=name) is None


def test_unmounting_what_is_not_mounted(tmp_path: Path) -> None:
    """Unmount says whether anything was mounted, and follows no link."""
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("/proc")
    assert not netns.unmount(str(tmp_path / "file"))
    assert not netns.unmount(str(tmp_path / "missing"))
    assert not netns.unmount(str(tmp_path / "link"))
    assert Path("/proc/self").exists()
