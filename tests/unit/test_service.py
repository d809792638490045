"""podman's API: what its answers come to, and that a service of our own is gone whatever ends us."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any, cast

import pytest

from launcher import service
from launcher.run import directory
from oci.refusal import Refused

ROOT = Path(__file__).parents[2]
# A podman that serves nobody's requests, but whose socket answers; it tells its process id.
SERVER = """
import os, signal, socket, sys
path = sys.argv[-1].removeprefix("unix://")
open(os.environ["TOLD"], "w").write(str(os.getpid()))
server = socket.socket(socket.AF_UNIX)
server.bind(path)
server.listen()
signal.pause()
"""
HOLD = """
import sys
from launcher import service
from launcher.run import directory
directory.parents = lambda: [sys.argv[1] + "/card-run"]
with service.connected():
    print("held", flush=True)
    sys.stdin.read()
"""


class Podman(ThreadingMixIn, UnixStreamServer):
    """Podman's socket, with one answer to a kill."""

    daemon_threads = True
    status = 204


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Answer for a container that there is."""
        self._answer(200, {"Id": "c" * 64, "State": {"Status": "running"}})

    def do_POST(self) -> None:
        """Answer a kill."""
        status = cast("Podman", self.server).status
        self._answer(status, {"cause": "why", "message": f"said {status}", "response": status})

    def _answer(self, status: int, content: object) -> None:
        body = b"" if status == 204 else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name for it
        """Say nothing."""

    def address_string(self) -> str:
        """Return no address: the socket has none."""
        return ""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a runtime directory of our own; podman is what a test puts there."""
    for name in ("CONTAINER_HOST", "CONTAINER_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CARD_RUN_PODMAN", f"{tmp_path}/bin/podman")
    monkeypatch.setenv("TOLD", f"{tmp_path}/told")
    monkeypatch.setattr(directory, "parents", lambda: [f"{tmp_path}/card-run"])
    (tmp_path / "bin").mkdir()
    put(tmp_path, f"exec {sys.executable} -c '{SERVER}' \"$@\"")
    return tmp_path


def put(place: Path, script: str) -> None:
    """Have the podman that is named be one of these shell lines."""
    (place / "bin/podman").write_text(f"#!/bin/sh\n{script}\n")
    (place / "bin/podman").chmod(0o755)


@pytest.fixture
def answering(place: Path) -> Iterator[Callable[[int], None]]:
    """Return what sets podman's answer to a kill."""
    (place / "podman").mkdir()
    server = Podman(str(place / "podman/podman.sock"), _Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def answer(status: int) -> None:
        server.status = status

    yield answer
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(("status", "killed"), [(204, True), (404, False), (409, False)])
def test_a_container_that_has_ended_is_no_failure(
    answering: Callable[[int], None],
    status: int,
    killed: bool,  # noqa: FBT001
) -> None:
    """Podman answers 409 for one that does not run any more and 404 for one that is gone: both are what was wanted."""
    answering(status)
    with service.connected() as podman:
        assert podman.kill("c" * 64) is killed


def test_what_podman_says_no_with(answering: Callable[[int], None]) -> None:
    """Any other answer is refused, with podman's words."""
    answering(500)
    with service.connected() as podman, pytest.raises(Refused) as refused:
        podman.kill("c" * 64)
    (refusal,) = refused.value.refusals
    assert (refusal.reason, refusal.text) == ("podman-failed", "podman said: said 500")


def test_a_service_that_does_not_start(place: Path) -> None:
    """It is refused with podman's last words, and nothing is left of it."""
    put(place, "echo first >&2; echo 'Error: no storage' >&2; exit 125")
    with pytest.raises(Refused) as refused, service.connected():
        pass
    (refusal,) = refused.value.refusals
    assert (refusal.reason, refusal.text) == ("no-podman-service", "podman's service did not start: no storage")
    assert [path.name for path in place.iterdir()] == ["bin"]


def holding(place: Path, *, ignored: tuple[signal.Signals, ...] = ()) -> "subprocess.Popen[str]":
    """Start a process that holds a service."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def ignore() -> None:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)

    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(place)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=ignore,  # noqa: PLW1509 - as nohup(1) does
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def gone(place: Path) -> bool:
    """Return whether the service's process and its directory are gone."""
    with suppress(ProcessLookupError):
        os.kill(int((place / "told").read_text()), 0)
        return False
    return not list(place.glob("card-run-service-*"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_no_service(place: Path, number: signal.Signals) -> None:
    """What ends a verb that holds a service ends the service too, with a shell's status for that signal."""
    with holding(place) as holder:
        assert not gone(place)
        holder.send_signal(number)
        assert holder.wait(timeout=20) == 128 + number
        assert gone(place)


def test_a_signal_that_is_ignored(place: Path) -> None:
    """Under nohup(1) a hang-up ends nothing."""
    with holding(place, ignored=(signal.SIGHUP,)) as holder:
        holder.send_signal(signal.SIGHUP)
        holder.communicate(timeout=20)
        assert holder.returncode == 0
        assert gone(place)


def test_signals_are_as_before() -> None:
    """Afterwards both end a process at once again."""
    heard = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in heard]
    with service.connected():
        assert signal.getsignal(signal.SIGTERM) is not before[0]
    assert [signal.getsignal(number) for number in heard] == before
