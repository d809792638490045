"""A set's scratch directory: removed whatever a worker made of it, by whoever owns it, and nothing beside it."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from launcher.executor import scratch, tree


def test_a_tree_goes_however_it_was_made(tmp_path: Path) -> None:
    """Deeper than a path can be, without modes, with links out of it: all of it goes, and what links lead to stays."""
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (outside / "file").write_text("mine")
    top = tmp_path / "top"
    top.mkdir()
    (top / "link").symlink_to(outside)
    (top / "dangling").symlink_to("nowhere")
    (top / "odd\nname").mkdir()
    os.mkfifo(top / "pipe")
    fd = os.open(top, os.O_RDONLY)
    for _ in range(3000):  # a path of 30,000 bytes, and more than the stack or the descriptors would bear
        os.mkdir("directory", 0o700, dir_fd=fd)
        deeper = os.open("directory", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = deeper
    os.symlink(outside, "link", dir_fd=fd)
    os.close(fd)
    (top / "closed" / "below").mkdir(parents=True)
    (top / "closed" / "below").chmod(0)
    (top / "closed").chmod(0)
    tree.remove(str(top))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside"]
    assert (outside / "file").read_text() == "mine"
    assert outside.stat().st_mode & 0o777 == 0o755


def test_a_link_in_place_of_a_tree_is_not_followed(tmp_path: Path) -> None:
    """What the name led to is left alone."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").touch()
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(OSError, match="link"):
        tree.remove(str(tmp_path / "link"))
    assert (tmp_path / "real" / "file").exists()


def test_what_a_living_set_has_is_left_alone(tmp_path: Path) -> None:
    """A second set in the same root takes nothing of the first; closing removes only one's own."""
    first = scratch.take(str(tmp_path))
    room = Path(first.room("0001"))
    (room / "file").touch()
    second = scratch.take(str(tmp_path))
    second.remove()
    second.remove()
    assert (room / "file").exists()
    first.remove()
    assert list(tmp_path.iterdir()) == []


def test_what_a_crashed_set_left_is_swept(tmp_path: Path) -> None:
    """The lock of a process that was killed is nobody's, so the next set removes its directory."""
    program = "import os, signal, sys\nfrom launcher.executor import scratch\n"
    program += (
        "one = scratch.take(sys.argv[1])\nopen(one.room('0001') + '/file', 'x')\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert len(list(tmp_path.glob("set-*/0001/file"))) == 1
    scratch.take(str(tmp_path)).remove()
    assert list(tmp_path.iterdir()) == []


def test_what_a_set_that_crashed_in_its_making_left_is_swept(tmp_path: Path) -> None:
    """Without a record yet; what holds anything else, or has another name, is nobody's to remove."""
    for name in (".new-0123456789ab", ".new-0123456789ac", ".new-0123456789ad", ".new-work"):
        (tmp_path / name).mkdir()
    (tmp_path / ".new-0123456789ac" / "owner").touch()
    (tmp_path / ".new-0123456789ad" / "file").touch()
    scratch.take(str(tmp_path)).remove()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".new-0123456789ad", ".new-work"]


def test_sets_that_are_made_at_once_do_not_sweep_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One waits until the other has its record."""
    waiting = threading.Thread(target=lambda: scratch.take(str(tmp_path)).remove())
    mkdir = os.mkdir

    def interrupted(path: str, mode: int = 0o777) -> None:
        mkdir(path, mode)
        monkeypatch.undo()
        waiting.start()
        waiting.join(0.2)

    monkeypatch.setattr(os, "mkdir", interrupted)
    one = scratch.take(str(tmp_path))
    waiting.join(20)
    one.remove()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"schema": 1, "what": "another program"}'])
def test_what_has_no_record_of_ours_is_nobodys_to_remove(content: str, tmp_path: Path) -> None:
    """Not by its name, not by a file of that name with something else in it, not without one."""
    (tmp_path / "set-abc").mkdir()
    (tmp_path / "set-abc" / "owner").write_text(content)
    (tmp_path / "set-bare").mkdir()
    (tmp_path / "work").mkdir()
    scratch.take(str(tmp_path)).remove()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["set-abc", "set-bare", "work"]


def test_a_sets_directory_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    """A record of ours behind a link does not make what the link leads to ours."""
    elsewhere = scratch.take(str(tmp_path / "elsewhere"))
    target = Path(elsewhere.path)
    elsewhere._lock.close()
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    (root / "set-link").symlink_to(target)
    scratch.take(str(root)).remove()
    assert target.exists()


def test_a_root_that_others_can_change_is_not_taken(tmp_path: Path) -> None:
    """Whoever could rename a directory in it would choose what is removed."""
    tmp_path.chmod(0o777)
    with pytest.raises(PermissionError):
        scratch.take(str(tmp_path))
