"""Roots are resolved once and judged by identity; every refusal names its flag, all at once."""

import os
import socket
from pathlib import Path

import pytest

from launcher.fs import policy
from launcher.fs.policy import Filesystem


def decide(
    read: tuple[str, ...] = (),
    noexec: tuple[str, ...] = (),
    write: tuple[str, ...] = (),
    cwd: str | None = None,
    forbidden: tuple[tuple[str, str], ...] = (),
) -> tuple[Filesystem, list[str]]:
    """Return what is decided, and the refusals as `reason: text`."""
    found, refusals = policy.decide(
        read=list(read), noexec=list(noexec), write=list(write), cwd=cwd, forbidden=forbidden
    )
    return found, [f"{refusal.reason}: {refusal.text}" for refusal in refusals]


def test_roots_are_resolved(tmp_path: Path) -> None:
    """A symlink is followed once; what is mounted is where it led, with its identity."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    found, refusals = decide(write=(f"{tmp_path}/link",))
    status = os.stat(tmp_path / "real")
    assert refusals == []
    assert found.roots[0].path == f"{tmp_path}/real"
    assert (found.roots[0].device, found.roots[0].inode) == (status.st_dev, status.st_ino)
    assert found.cwd == f"{tmp_path}/real"


@pytest.mark.parametrize("name", ["a b", 'q"uote', "c:olon", "com,ma", "ünïcode", "-dash", "=eq"])
def test_odd_names_are_fine(tmp_path: Path, name: str) -> None:
    """Spaces, quotes, colons, commas and unicode are ordinary."""
    (tmp_path / name).mkdir()
    found, refusals = decide(write=(f"{tmp_path}/{name}",))
    assert (found.roots[0].path, refusals) == (f"{tmp_path}/{name}", [])


def test_every_refusal_at_once(tmp_path: Path) -> None:
    """Six bad flags are six refusals, each naming its flag."""
    (tmp_path / "file").touch()
    _, refusals = decide(
        read=("relative", f"{tmp_path}/none", "/a\nb"),
        noexec=("/proc/self",),
        write=(f"{tmp_path}/file", "/"),
    )
    assert [refusal.split(":")[0] for refusal in refusals] == [
        "relative-path",
        "path-missing",
        "bad-path",
        "path-reserved",
        "path-kind",
        "path-reserved",
    ]
    assert [refusal.split(": ")[1].split(" ")[0] for refusal in refusals] == [
        "--read",
        "--read",
        "--read",
        "--read-noexec",
        "--write",
        "--write",
    ]


def test_not_utf8(tmp_path: Path) -> None:
    """A path that is not UTF-8 is refused, also when a link leads to one."""
    odd = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(odd)
    os.symlink(odd, tmp_path / "link")
    _, refusals = decide(read=(os.fsdecode(odd), f"{tmp_path}/link"))
    assert [refusal.split(":")[0] for refusal in refusals] == ["bad-path", "bad-path"]


def test_too_wide_is_a_question_of_identity(tmp_path: Path) -> None:
    """HOME, and what holds it, may not be written; a sibling with HOME's name as a prefix may."""
    home = tmp_path / "home"
    (home / "work").mkdir(parents=True)
    (tmp_path / "home2").mkdir()
    forbidden = ((str(home), "your HOME"),)
    assert decide(write=(str(home),), forbidden=forbidden)[1][0].startswith("path-too-wide: --write")
    assert decide(write=(str(tmp_path),), forbidden=forbidden)[1][0].startswith("path-too-wide: --write")
    assert decide(write=(str(home / "work"),), forbidden=forbidden)[1] == []
    assert decide(write=(str(tmp_path / "home2"),), forbidden=forbidden)[1] == []
    assert decide(read=(str(home),), forbidden=forbidden)[1] == []


def test_listening_socket(tmp_path: Path) -> None:
    """A root above a socket that accepts connections is refused; beside it, or with a plain file there, it is not."""
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "c").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{tmp_path}/a/b/agent.sock")
        assert decide(read=(f"{tmp_path}/a",))[1] == []
        server.listen()
        _, refusals = decide(read=(f"{tmp_path}/a",), write=(f"{tmp_path}/c",))
    assert len(refusals) == 1
    assert refusals[0].startswith("path-has-socket: --read")
    assert "agent.sock" in refusals[0]
    assert decide(read=(f"{tmp_path}/a",))[1] == []


def test_contradiction(tmp_path: Path) -> None:
    """One path with two accesses is refused rather than widened; the same access twice is one root."""
    assert decide(read=(str(tmp_path),), write=(str(tmp_path),))[1][0].startswith("path-contradiction")
    found, refusals = decide(read=(str(tmp_path), str(tmp_path)))
    assert (len(found.roots), refusals) == (1, [])


def test_working_directory(tmp_path: Path) -> None:
    """`--cwd` lies inside a root, by identity; without it the first write root, or the card's HOME, is used."""
    (tmp_path / "work/sub").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    work = (f"{tmp_path}/work",)
    assert decide(write=work, cwd=f"{tmp_path}/work/sub")[0].cwd == f"{tmp_path}/work/sub"
    assert decide(write=work, cwd=f"{tmp_path}/other")[1][0].startswith("cwd-outside: --cwd")
    assert decide(write=work, cwd="sub")[1][0].startswith("relative-path: --cwd")
    assert decide()[0].cwd == policy.HOME
