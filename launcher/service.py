"""podman's API, through podman-py: the only module that imports that library.

Talks to podman's own socket where one answers, else to a `podman system service` of its own (podman-system-service(1)),
started for the call and ended after it. The rule: what podman-py or podman says no with is translated here, into
Refused with a reason of ours. Costs some 200 ms to import and half as much to start: no hot path imports it.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from types import FrameType
from typing import Any, NoReturn, TypeVar, cast

from podman import PodmanClient  # pyright: ignore[reportMissingTypeStubs]
from podman.errors import APIError, PodmanError  # pyright: ignore[reportMissingTypeStubs]

from launcher import launch
from launcher.fs import searched
from launcher.run import directory
from launcher.run.perform import find_podman
from oci.refusal import Refusal, Refused

# The oldest API that podman 4 and 5 both serve; podman-py would ask for its own version, which an older podman lacks.
API = "4.0.0"
_SECONDS = 60
_START_SECONDS = 15
_END_SECONDS = 5
# A service whose client was killed ends by itself after this long.
_IDLE_SECONDS = 10
_STEP = 0.005
# What podman answers for a container that does not run, or that it does not have (podman's API, ContainerKill); podman
# 4.3 says it in words, with a status of 500.
_OVER = (404, 409)
_OVER_WORDS = "container state improper"
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_Answer = TypeVar("_Answer")


class Service:
    """A podman that answers. Containers are named by their ids; every method raises Refused when podman says no."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def version(self) -> str:
        """Return podman's version."""
        return str(_asked(self._client.version)["Version"])

    def states(self) -> dict[str, str]:
        """Return the state of every container by id, in podman's words: created, running, paused, exited, ..."""
        found = _asked(lambda: self._client.containers.list(all=True, sparse=True))
        return {str(one.id): str(one.attrs.get("State", "unknown")).lower() for one in found}

    def kill(self, container: str) -> bool:
        """Kill a container, a paused one too; return False when it has ended already, or is gone."""
        try:
            self._client.containers.get(container).kill("SIGKILL")
        except (APIError, PodmanError) as error:
            if getattr(error, "status_code", None) in _OVER or _OVER_WORDS in str(error):
                return False
            raise _refused(error) from None
        return True


@contextlib.contextmanager
def connected() -> Generator[Service]:
    """Yield a podman that answers; a service that was started for this is ended, and its socket removed, afterwards.

    So it is when SIGTERM or SIGHUP ends this process meanwhile; after SIGKILL the service ends by itself, and its
    directory stays. Raises Refused: `remote-podman`, `no-podman`, `no-podman-service` (it did not start, with its own
    words).
    """
    remote = launch.remote()
    if remote:
        raise Refused(remote)
    program = find_podman()
    found = f"{os.path.dirname(directory.parent())}/podman/podman.sock"
    if _answers(found):
        with _client(found) as client:
            yield Service(client)
        return
    with _unwinding(), _own(program) as path, _client(path) as client:
        yield Service(client)


def _client(path: str) -> Any:
    return PodmanClient(base_url=f"http+unix://{path}", version=API, timeout=_SECONDS)


def _answers(path: str) -> bool:
    """Return whether somebody listens on a socket, which a stale one has nobody do."""
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(path)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _unwinding() -> Generator[None]:
    """Turn what would end this process at once into its exit, with a shell's status for it: what is held is let go."""
    heard = [number for number in _ENDING if signal.getsignal(number) is signal.SIG_DFL]  # nohup(1) ignores one

    def end(number: int, _: FrameType | None) -> NoReturn:
        for one in heard:
            signal.signal(one, signal.SIG_IGN)  # a second one does not interrupt the letting go
        sys.exit(128 + number)

    for one in heard:
        signal.signal(one, end)
    try:
        yield
    finally:
        for one in heard:
            signal.signal(one, signal.SIG_DFL)


@contextlib.contextmanager
def _own(program: str) -> Generator[str]:
    """Run a service of our own and yield its socket."""
    place = tempfile.mkdtemp(prefix="card-run-service-", dir=os.path.dirname(directory.parent()))
    path = f"{place}/podman.sock"
    words = [program, "--remote=false", "system", "service", f"--time={_IDLE_SECONDS}", f"unix://{path}"]
    try:
        with tempfile.TemporaryFile("w+", dir=place) as said:
            child = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said, env=searched.environment()
            )
            try:
                if not _started(child, path):
                    said.seek(0)
                    raise Refused([_not_started(said.read())])
                yield path
            finally:
                _end(child)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _started(child: "subprocess.Popen[bytes]", path: str) -> bool:
    deadline = time.monotonic() + _START_SECONDS
    while not _answers(path):
        if child.poll() is not None or time.monotonic() > deadline:
            return False
        time.sleep(_STEP)
    return True


def _end(child: "subprocess.Popen[bytes]") -> None:
    child.terminate()
    try:
        child.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _not_started(said: str) -> Refusal:
    if "unknown flag: --time" in said:
        from launcher.run import why  # only once it has failed

        return why.remote()
    last = said.strip().splitlines()[-1:] or ["it did not answer in time"]
    text = f"podman's service did not start: {last[0].removeprefix('Error: ')}"
    return Refusal("no-podman-service", text, "podman system service --time=0")


def _asked(call: Callable[[], _Answer]) -> _Answer:
    try:
        return call()
    except (APIError, PodmanError) as error:
        raise _refused(error) from None


def _refused(error: Exception) -> Refused:
    explanation = cast("str | None", getattr(error, "explanation", None)) or str(error)
    return Refused([Refusal("podman-failed", f"podman said: {' '.join(explanation.split())[:300]}")])
