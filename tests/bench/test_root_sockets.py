"""A socket that answers in a root refuses the card, whoever bound it; what others keep to themselves does not."""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.bench.cards import IMAGE, card, run

pytestmark = pytest.mark.usefixtures("nothing_left")

SERVER = """
import os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
if sys.argv[2:]:
    os.rename(*sys.argv[1:])
server.listen()
print("up", flush=True)
while True:
    client, _ = server.accept()
    client.sendall(b"answered")
    client.close()
"""
CLIENT = """
import socket, sys
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1])
print(client.recv(100).decode())
"""


@contextmanager
def serving(*words: str) -> Iterator[None]:
    """Have a server up for as long as it takes."""
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "up\n"
            yield
        finally:
            process.terminate()
            process.wait(60)


@contextmanager
def container(network: str, root: Path, *words: str) -> Iterator[None]:
    """Have a container serve where `root` is at /s, and be gone afterwards."""
    name = f"socket-{os.getpid()}"
    options = [
        "--rm",
        "--init",
        "--pull=never",
        "--userns=keep-id",
        f"--network={network}",
        f"--name={name}",
        f"-v={root}:/s",
    ]
    try:
        with serving("podman", "run", *options, IMAGE, "python3", "-c", SERVER, *words):
            yield
    finally:
        run(["podman", "rm", "--force", "--time=0", name])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a directory to give to a card, beside another."""
    (tmp_path / "root").mkdir()
    (tmp_path / "beside").mkdir()
    return tmp_path / "root"


def refused_for(root: Path, path: Path) -> None:
    """Check that the socket answers on the bench, and that a card is refused for it, and another root is not."""
    assert run(["python3", "-c", CLIENT, str(path)]).out == "answered\n"  # the control: it answers whoever asks
    done = card("--net=none", f"--read={root}", "--", "python3", "-c", CLIENT, str(path))
    assert (done.status, done.out, done.reasons) == (125, "", ["path-has-socket"])
    assert f"holds the socket {path}, which answers" in done.err
    beside = card("-q", "--net=none", f"--read={root.parent}/beside", "--", "echo", "started")
    assert (beside.status, beside.out) == (0, "started\n"), beside.err


@pytest.mark.parametrize("network", ["none", "host"])
@pytest.mark.parametrize("words", [["/s/sock"], ["/s/tmp", "/s/sock"]], ids=["as bound", "renamed"])
def test_bound_in_a_container(network: str, words: list[str], root: Path) -> None:
    """A container's own name for it, or its own network, hides no socket."""
    with container(network, root, *words):
        refused_for(root, root / "sock")


def test_renamed_into_the_root(root: Path) -> None:
    """A socket that was moved into the root after it was bound is found."""
    with serving("python3", "-c", SERVER, f"{root.parent}/beside/tmp", f"{root}/sock"):
        refused_for(root, root / "sock")


def test_another_card_that_listens_in_the_same_root(root: Path) -> None:
    """A card that shares a root with one that listens there is refused; what that has in its own /tmp is its own."""
    listen = ["card-run", "-q", "--net=none", f"--write={root}", "--", "python3", "-c", SERVER]
    with serving(*listen, f"{root}/sock"):
        refused_for(root, root / "sock")
    (root / "sock").unlink()
    for words in (["/tmp/sock"], ["/tmp/one", "/tmp/two"]):
        with serving(*listen, *words):
            done = card("-q", "--net=none", f"--read={root}", "--", "echo", "started")
            assert (done.status, done.out) == (0, "started\n"), done.err


def test_a_socket_that_nobody_has_any_more(root: Path) -> None:
    """What a server left behind when it ended keeps no card from starting."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{root}/sock")
        server.listen()
        assert card("--net=none", f"--read={root}", "--", "true").reasons == ["path-has-socket"]
    assert card("-q", "--net=none", f"--read={root}", "--", "true").status == 0
