"""The keeper: what a hook asks is done for it in its namespaces, and whatever becomes of the keeper the hook holds.

The container is in a user namespace of its own, as podman's are. The hooks run as podman starts them: `/bin/sh` with
the client, in that user namespace and a mount namespace of their own. card-run's part is a program that holds the
keeper and says what card-run would.
"""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hooks import audit
from tests.kernel.created import HOOKS, ROOT, Container, created

CLIENT = str(ROOT / "hooks/client.sh")
SPACES = ("--user", "--map-root-user", "--net", "--mount")
LAUNCHER = """
import os, subprocess, sys
sys.path.insert(0, sys.argv[1])
from hooks import libnft
from launcher.run import directory, keeper
from launcher.run.exchange import Exchange
from launcher.run.spawn import Child
path, client, *hook = sys.argv[2:]
libnft.NAME = os.environ.get("NFT_LIBRARY", libnft.NAME)
run = directory.take(path, wait=True)
podman = subprocess.Popen(["sleep", "100"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
exchange = Exchange(run, client=client, hook=tuple(hook))
held = keeper.hold(Child("/bin/true", podman.pid, -1, apart=False), run, {}, exchange)
print(open(f"/proc/self/task/{os.getpid()}/children").read(), flush=True)
for line in sys.stdin:
    if line == "written\\n":
        held.plan_is_written()
podman.kill()
held.let_go()
"""


class Launcher:
    """A process that holds a keeper, as card-run does; `hook` is the ordinary hook that the client falls back to."""

    def __init__(self, container: Container, hook: tuple[str, ...] = HOOKS) -> None:
        words = [sys.executable, "-c", LAUNCHER, str(ROOT), str(container.run), CLIENT, *hook]
        self.hook = hook
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        podman, self.keeper = map(int, self.process.stdout.readline().split())
        self.podman = podman
        _wait_until(lambda: Path(f"/proc/{self.keeper}/comm").read_text() == "card-keeper\n")

    def written(self) -> None:
        """Say that the plan is written."""
        assert self.process.stdin
        self.process.stdin.write("written\n")
        self.process.stdin.flush()

    def hands(self) -> list[int]:
        """Return the processes that the keeper forked."""
        text = Path(f"/proc/{self.keeper}/task/{self.keeper}/children").read_text()
        return [int(word) for word in text.split()]

    def end(self) -> None:
        """End it and what it started."""
        self.process.kill()
        self.process.communicate()
        for pid in (self.podman, self.keeper):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    """Yield a created container in a user namespace of its own."""
    with created(tmp_path, spaces=SPACES) as made:
        yield made


@pytest.fixture
def launcher(container: Container) -> Iterator[Launcher]:
    """Yield a launcher whose keeper is told that the plan is written."""
    made = Launcher(container)
    made.written()
    yield made
    made.end()


def ask(container: Container, launcher: Launcher, verb: str = "prestart") -> "subprocess.Popen[str]":
    """Start a hook as podman would, with its state on standard input."""
    enter = (
        "nsenter",
        f"--user=/proc/{container.process.pid}/ns/user",
        f"--mount=/proc/{container.process.pid}/ns/mnt",
    )
    words = ("sh", CLIENT, str(container.run), *launcher.hook, verb)
    with (container.base / "errors").open("w") as errors:
        process = subprocess.Popen(
            (*enter, "--preserve-credentials", *words), stdin=subprocess.PIPE, stderr=errors, text=True, env={}
        )
    assert process.stdin
    state = container.state() if verb == "prestart" else container.stopped()
    with contextlib.suppress(BrokenPipeError), process.stdin:  # a hook that does not read it may be over
        process.stdin.write(json.dumps(state))
    return process


def stands(container: Container) -> None:
    """Assert that the wall is in the container's namespace, and vouched for."""
    listing = container.nft("list", "ruleset")
    assert container.hook["facts"].items() >= audit.audit(listing, container.wall).to_json().items()
    assert container.records["netns"] == [str(container.inode)]


def pinned(container: Container) -> bool:
    """Return whether the pin is mounted where the hook was: in the client's mount namespace and no other."""
    assert not container.pinned
    return str(container.pin) in Path(f"/proc/{container.process.pid}/mountinfo").read_text()


def test_a_hook_is_served(container: Container, launcher: Launcher) -> None:
    """The same wall, proof and pin as the ordinary hook's, made by the keeper, in the client's namespaces."""
    assert ask(container, launcher).wait(timeout=20) == 0
    assert (container.hook["by"], container.hook["status"]) == ("keeper", "ok")
    stands(container)
    assert pinned(container)
    assert ask(container, launcher, "poststop").wait(timeout=20) == 0
    assert json.loads((container.run / "ledger.json").read_text())["denied"] == []
    assert not pinned(container)
    _wait_until(lambda: launcher.hands() == [])


def test_it_starts_no_interpreter(container: Container) -> None:
    """What a served hook costs is a shell: the ordinary hook, which says so here, is not started."""
    launcher = Launcher(container, ("/bin/sh", "-c", "exit 3", "sh"))
    try:
        assert ask(container, launcher).wait(timeout=20) == 0
        assert ask(container, launcher).wait(timeout=20) == 3  # the control: a second one is an ordinary hook
    finally:
        launcher.end()


@pytest.mark.parametrize("missing", [False, True])
def test_with_and_without_nfts_library(container: Container, missing: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001
    """The library does what the program does; a bench that has the program alone is served by that."""
    if missing:
        monkeypatch.setenv("NFT_LIBRARY", "libnftables.so.none")
    launcher = Launcher(container)
    try:
        launcher.written()
        _wait_until(lambda: any("libnftables" in line for line in _mapped(launcher.keeper)) is not missing)
        assert ask(container, launcher).wait(timeout=20) == 0
        assert container.hook["by"] == "keeper"
        stands(container)
        assert ask(container, launcher, "poststop").wait(timeout=20) == 0
        assert json.loads((container.run / "ledger.json").read_text())["denied"] == []
    finally:
        launcher.end()


def test_a_plan_that_is_not_this_starts(container: Container, launcher: Launcher) -> None:
    """A refusal of the keeper's is the hook's: its status, its reason, no proof, no pin."""
    container.write_plan({"launch": "00" * 32})
    launcher.written()
    assert ask(container, launcher).wait(timeout=20) == 1
    assert (container.hook["by"], container.reasons) == ("keeper", ["plan-mismatch"])
    assert not container.proof.exists()
    assert not container.pin.exists()


def test_a_text_that_breaks_a_promise_is_not_loaded(container: Container, launcher: Launcher) -> None:
    """What was read ahead was audited; what could not be is judged, and refused, by the hook."""
    (container.run / "table.nft").write_text("table inet nova_egress_t1 {\n}\n")
    launcher.written()
    launcher.written()
    assert ask(container, launcher).wait(timeout=20) == 1
    assert "no-chain" in container.reasons
    assert container.nft("list", "tables") == ""


def test_a_second_start(container: Container, launcher: Launcher) -> None:
    """Only the first of a verb is answered; the next is an ordinary hook, which sees that the run is consumed."""
    assert ask(container, launcher).wait(timeout=20) == 0
    assert ask(container, launcher).wait(timeout=20) == 1
    assert "reason=run-consumed" in (container.base / "errors").read_text()
    assert container.hook["by"] == "keeper"


def test_a_keeper_that_is_gone(container: Container, launcher: Launcher) -> None:
    """Killed before it is asked: both hooks do their own work, and nobody waits."""
    os.kill(launcher.keeper, signal.SIGKILL)
    assert ask(container, launcher).wait(timeout=20) == 0
    assert container.hook["by"] == "hook"
    stands(container)
    assert ask(container, launcher, "poststop").wait(timeout=20) == 0
    assert (container.run / "ledger.json").exists()
    assert not pinned(container)


def test_a_keeper_that_is_killed_while_a_hook_waits(container: Container, launcher: Launcher) -> None:
    """Stopped, it is waited for; killed, the hook does its own work."""
    os.kill(launcher.keeper, signal.SIGSTOP)
    process = ask(container, launcher)
    _wait_until((container.run / "prestart.asked").exists)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.2)
    os.kill(launcher.keeper, signal.SIGKILL)
    assert process.wait(timeout=20) == 0
    assert container.hook["by"] == "hook"
    stands(container)


def test_a_keeper_that_wakes_after_its_client_was_given_up(container: Container, launcher: Launcher) -> None:
    """A runtime kills a hook past its deadline: who wakes later makes no wall and no proof for it."""
    os.kill(launcher.keeper, signal.SIGSTOP)
    process = ask(container, launcher)
    _wait_until(lambda: (container.run / "prestart.asked").exists() and _asked(container))
    process.kill()
    process.wait()
    os.kill(launcher.keeper, signal.SIGCONT)
    launcher.written()
    _wait_until(lambda: not _asked(container) and launcher.hands() == [])
    assert not container.proof.exists()
    assert not (container.run / "hook.json").exists()
    assert container.nft("list", "tables") == ""


def test_a_client_that_is_given_up_while_it_is_served(container: Container, launcher: Launcher) -> None:
    """The container's pid may be another process's by then: nothing is entered, loaded, pinned or proved."""
    with (container.run / "plan.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = ask(container, launcher)
        _wait_until(lambda: any(str(container.run / "plan.lock") in _files(hand) for hand in launcher.hands()))
        process.kill()
        process.wait()
    _wait_until(lambda: launcher.hands() == [])
    assert container.reasons == ["hook-abandoned"]
    assert container.nft("list", "tables") == ""
    assert not container.proof.exists()
    assert not container.pin.exists()


def test_a_hand_that_is_killed(container: Container, launcher: Launcher) -> None:
    """Whoever does the work dies with the state already read: the hook has none, and says so; nothing starts."""
    with (container.run / "plan.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = ask(container, launcher)
        _wait_until(lambda: launcher.hands() != [])
        hand = launcher.hands()[0]
        _wait_until(lambda: str(container.run / "plan.lock") in _files(hand))
        os.kill(hand, signal.SIGKILL)
        assert process.wait(timeout=20) == 1
    assert "SANDBOX REFUSED reason=hook-lost " in (container.base / "errors").read_text()
    assert not container.proof.exists()


def test_card_run_that_is_killed(container: Container, launcher: Launcher) -> None:
    """Its keeper ends the card, and answers no hook any more: those of what it does are ordinary ones."""
    launcher.process.kill()
    launcher.process.wait()
    _wait_until(lambda: str(container.run / "ask") not in _files(launcher.keeper))
    process = ask(container, launcher)
    assert process.wait(timeout=20) == 0
    assert container.hook["by"] == "hook"


@pytest.mark.parametrize(
    "text",
    ["", "\n\n", "prestart\n", "prestart x\n", "prestart -1\n", "poststop\n", "other 1\n", "\0" * 4096, "9" * 4096],
    ids=repr,
)
def test_a_message_that_is_none(container: Container, launcher: Launcher, text: str) -> None:
    """It is passed over, and the hook is served."""
    with (container.run / "ask").open("w") as fifo:
        fifo.write(f"{text}\n")
    assert ask(container, launcher).wait(timeout=20) == 0
    assert container.hook["by"] == "keeper"


@pytest.mark.parametrize("who", ["nobody", "a process of ours", "another's process"])
def test_a_message_that_names_another_process(container: Container, launcher: Launcher, who: str) -> None:
    """Nothing is done for a process that is not this run's hook, and the hook, unanswered, does its own work."""
    command = ["sleep", "100"] if who != "another's process" else ["setpriv", "--reuid=65534", "sleep", "100"]
    with subprocess.Popen(command) as other:
        pid = 4_194_304_000 if who == "nobody" else other.pid
        with (container.run / "ask").open("w") as fifo:
            fifo.write(f"prestart {pid}\n")
        _wait_until(lambda: not any("prestart.answer" in name for name in _files(launcher.keeper)))
        other.kill()
    assert not container.proof.exists()
    assert ask(container, launcher).wait(timeout=20) == 0
    assert container.hook["by"] == "hook"
    stands(container)


def _asked(container: Container) -> bool:
    """Return whether a message lies in the FIFO that the keeper reads."""
    fd = os.open(container.run / "ask", os.O_RDONLY | os.O_NONBLOCK)
    try:
        waiting = bytearray(4)
        fcntl.ioctl(fd, 0x541B, waiting)  # FIONREAD
        return any(waiting)
    finally:
        os.close(fd)


def _mapped(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/maps").read_text().splitlines()


def _files(pid: int) -> list[str]:
    try:
        return [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
    except FileNotFoundError:
        return []


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        os.sched_yield()
