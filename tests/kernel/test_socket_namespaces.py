"""Sockets that were bound in other namespaces: by which name that was says nothing, where they are does."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from launcher.fs import policy
from launcher.fs.policy import Asked
from launcher.fs.sockets import judge

SERVER = """
import os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
if sys.argv[2]:
    os.rename(sys.argv[1], sys.argv[2])
server.listen()
print("up", flush=True)
sys.stdin.read()
"""


# A root directory of its own, as a container has it: the programs, one directory as /srv, and a private /mnt.
SHELL = """
mount -t tmpfs tmpfs /mnt && cd /mnt && mkdir usr srv mnt && ln -s usr/lib usr/lib64 usr/bin . &&
mount --bind /usr usr && mount --bind "$1" srv && exec /usr/sbin/chroot . /usr/bin/python3 -ISc "$2" "$3" "$4"
"""


@contextmanager
def served(root: Path, name: str, moved: str = "", *, net: bool) -> Iterator[None]:
    """Have a process listen where `root` is at /srv and /mnt is private, in our network namespace or its own."""
    words = ["unshare", "--map-root-user", "--mount", *(["--net"] if net else []), "sh", "-c", SHELL, "sh"]
    words += [str(root), SERVER, name, moved]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "up\n"
            yield
        finally:
            process.kill()


def refused(root: Path) -> list[str]:
    """Return the sockets that a root is refused for."""
    _, found = policy.decide(Asked(read=(str(root),)), forbidden=())
    assert all(refusal.reason == "path-has-socket" for refusal in found)
    return [refusal.text.removeprefix(f"--read {root} holds the socket ").split(",")[0] for refusal in found]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a directory to give to a card, with another in it and one beside."""
    (tmp_path / "root/inner").mkdir(parents=True)
    (tmp_path / "beside").mkdir()
    return tmp_path / "root"


both = pytest.mark.parametrize("net", [False, True], ids=["our network", "its own network"])


@both
def test_another_name_in_another_mount_namespace(root: Path, *, net: bool) -> None:
    """The socket is found where it is here; the control, the same name above a directory beside it, is no reason."""
    with served(root, "/srv/sock", net=net):
        assert refused(root) == [f"{root}/sock"]
        assert refused(root / "inner") == []
    with served(root.parent / "beside", "/srv/sock", net=net):
        assert refused(root) == []


@both
def test_a_root_above_and_below_what_is_mounted_there(root: Path, *, net: bool) -> None:
    """Which part of a root another namespace sees makes no difference."""
    with served(root / "inner", "/srv/sock", net=net):
        assert refused(root) == [f"{root}/inner/sock"]
    (root / "inner/sock").unlink()
    with served(root, "/srv/inner/sock", net=net):
        assert refused(root / "inner") == [f"{root}/inner/sock"]


@both
def test_renamed_in_another_mount_namespace(root: Path, *, net: bool) -> None:
    """A socket whose name leads nowhere there either is searched for."""
    with served(root, "/srv/tmp", "/srv/inner/sock", net=net):
        assert refused(root) == [f"{root}/inner/sock"]


def test_what_others_have_for_themselves_costs_no_search(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket that was renamed where nothing of a root is to be seen has no root searched."""
    monkeypatch.setattr(judge, "SEARCHED", -1)  # whoever searches, refuses
    for net in (False, True):
        with served(root.parent / "beside", "/mnt/tmp", "/mnt/sock", net=net):
            assert refused(root) == []
    with served(root.parent / "beside", "/srv/tmp", "/srv/sock", net=True):
        assert refused(root) == []
    with served(root, "/srv/tmp", "/srv/sock", net=True):  # the control
        assert len(refused(root)) > 0
