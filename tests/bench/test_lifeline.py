"""card-run killed, and with it the process that would end its card: the kernel ends the worker, whatever it did.

Each worker is one that has read this code. The control of them all is the first test's: without the kill it runs on.
"""

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.bench.cards import remains, run

SECONDS = 2.0
# Prints the errno that each attempt to reach init's descriptors or to signal it met.
REACH = """
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
def met(call):
    try:
        call()
    except OSError as error:
        return error.errno
    return 0
def getfd():
    pid = libc.syscall(434, 1, 0)
    if pid < 0 or libc.syscall(438, pid, 4, 0) < 0:
        raise OSError(ctypes.get_errno(), "")
print(met(lambda: os.readlink("/proc/1/fd/0")), met(lambda: os.open("/proc/1/fd/1", 1)), met(getfd), flush=True)
print(met(lambda: os.kill(1, 9)), flush=True)
"""
OWN = """
import fcntl, os
# Whatever descriptors there are, none is the lifeline's: nothing to give another owner or another signal.
for fd in range(1024):
    try:
        fcntl.fcntl(fd, fcntl.F_SETOWN, 0); fcntl.fcntl(fd, 10, 0)
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_ASYNC)
    except OSError:
        pass
"""
FORKS = """
import os, signal, time
for number in set(signal.Signals) - {9, 19}:
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
"""
THREAD = """
import os, threading
threading.Thread(target=lambda: os.execv("/bin/sh", ["sh", "-c", "touch running; sleep 60; sleep 60"])).start()
threading.Event().wait()
"""
MARK = "open('running', 'w').close()\nimport time; time.sleep(60)"
WORKERS = {
    "sleeps": ["sh", "-c", "touch running; sleep 60"],
    "traps": ["sh", "-c", "trap '' TERM HUP INT QUIT IO URG USR1; touch running; while :; do sleep 60; done"],
    "forks": ["python3", "-c", FORKS + MARK],
    "takes owners away": ["python3", "-c", OWN + MARK],
    "execs from a thread": ["python3", "-c", THREAD],
    "stops itself": ["sh", "-c", "touch running; kill -STOP $$; sleep 60"],
    "execs again": ["sh", "-c", "exec sh -c 'exec sh -c \"touch running; exec sleep 60\"'"],
}


def until(holds: Callable[[], object], *, seconds: float = 30) -> float:
    """Wait until something of another process holds, which gives no sign; return the seconds it took."""
    start = time.monotonic()
    while not holds():
        assert time.monotonic() < start + seconds
        time.sleep(0.01)
    return time.monotonic() - start


def keeper_of(pid: int) -> int:
    """Return the process that card-run forked to clean up should it be killed."""
    done = run(["ps", "-o", "pid=,comm=", "--ppid", str(pid)])
    return next(int(line.split()[0]) for line in done.out.splitlines() if "card-keeper" in line)


def workers(folder: Path) -> list[int]:
    """Return the processes whose working directory is the card's, by their number on the bench."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                inside = os.stat(entry / "ns/pid").st_ino != os.stat("/proc/self/ns/pid").st_ino
                found += [int(entry.name)] if inside and os.readlink(entry / "cwd") == str(folder) else []
            except OSError:
                continue
    return found


@pytest.fixture
def start(workspace: Path) -> "Iterator[Callable[..., subprocess.Popen[bytes]]]":
    """Return how to start a card, once its worker runs; everything is cleaned up afterwards, by `card gc`."""
    started: "list[subprocess.Popen[bytes]]" = []
    before = remains()

    def begin(worker: list[str], *options: str) -> "subprocess.Popen[bytes]":
        words = ["card-run", "-q", f"--write={workspace}", *options, "--", *worker]
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        started.append(process)
        until((workspace / "running").exists)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()
    run(["card", "gc"])
    until(lambda: remains() == before)


def kill_both(process: "subprocess.Popen[bytes]") -> None:
    """Kill card-run and its keeper: stopped first, so that neither sees the other end."""
    keeper = keeper_of(process.pid)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        os.kill(keeper, number)
        os.kill(process.pid, number)


@pytest.mark.parametrize("name", WORKERS)
def test_the_kernel_ends_the_worker(
    workspace: Path, start: "Callable[..., subprocess.Popen[bytes]]", name: str
) -> None:
    """SIGKILL of card-run and of its keeper: every process of the card is gone within two seconds."""
    process = start(WORKERS[name])
    assert workers(workspace)
    kill_both(process)
    assert until(lambda: not workers(workspace)) < SECONDS


@pytest.mark.parametrize(
    "options", [("--user=root",), ("--net=none",), ("--net=slirp",), ("--net=bridge",), ("-i",)], ids=" ".join
)
def test_whoever_it_is_and_whatever_its_network(
    workspace: Path, start: "Callable[..., subprocess.Popen[bytes]]", options: tuple[str, ...]
) -> None:
    """The same for every user and network."""
    process = start(WORKERS["traps"], *options)
    kill_both(process)
    assert until(lambda: not workers(workspace)) < SECONDS


def test_a_terminal_changes_nothing(workspace: Path) -> None:
    """With a terminal of its own the worker ends as well."""
    before = remains()
    words = ["card-run", "-q", "-it", f"--write={workspace}", "--", *WORKERS["traps"]]
    child, terminal = os.forkpty()
    if child == 0:
        os.execvp(words[0], words)  # noqa: S606 - never a shell
    until((workspace / "running").exists)
    keeper = keeper_of(child)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        os.kill(keeper, number)
        os.kill(child, number)
    assert until(lambda: not workers(workspace)) < SECONDS
    os.waitpid(child, 0)
    os.close(terminal)
    run(["card", "gc"])
    until(lambda: remains() == before)


def test_without_conmon_too(workspace: Path, start: "Callable[..., subprocess.Popen[bytes]]") -> None:
    """Podman's monitor, which has the descriptor as well, is not what keeps it: it may go before."""
    process = start(WORKERS["traps"])
    conmon = [int(pid) for pid in run(["pgrep", "-x", "conmon"]).out.split()]
    assert conmon
    keeper = keeper_of(process.pid)
    for pid in (keeper, process.pid):
        os.kill(pid, signal.SIGSTOP)
    for pid in conmon:
        os.kill(pid, signal.SIGKILL)
    assert workers(workspace)
    for pid in (keeper, process.pid):
        os.kill(pid, signal.SIGKILL)
    assert until(lambda: not workers(workspace)) < SECONDS


def test_only_card_run_holds_the_other_end(workspace: Path, start: "Callable[..., subprocess.Popen[bytes]]") -> None:
    """With its keeper stopped, which then can do nothing, the death of card-run alone is enough."""
    process = start(WORKERS["traps"])
    keeper = keeper_of(process.pid)
    os.kill(keeper, signal.SIGSTOP)
    process.kill()
    try:
        assert until(lambda: not workers(workspace)) < SECONDS
    finally:
        os.kill(keeper, signal.SIGKILL)


def test_a_worker_reaches_nothing_of_it(start: "Callable[..., subprocess.Popen[bytes]]") -> None:
    """Init's descriptors cannot be looked at, opened or copied, nor init be signalled; the worker runs on meanwhile."""
    process = start(["python3", "-c", REACH + MARK])
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], 30)[0]
    assert (process.stdout.readline(), process.stdout.readline()) == (b"13 13 1\n", b"1\n")
    assert process.poll() is None


def test_without_the_lifeline_a_worker_lives_on(workspace: Path) -> None:
    """The control: a plain container outlives its podman client, killed in the same way."""
    marker = workspace / "running"
    words = ["podman", "run", "--rm", "--pull=never", "--name=control", "--userns=keep-id", f"--volume={workspace}:/w"]
    words += ["--workdir=/w", "localhost/card-run/card:latest", "sh", "-c", "touch running; sleep 60"]
    state = ["podman", "container", "inspect", "--format={{.State.Running}}", "control"]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL) as process:
        try:
            until(marker.exists)
            until(lambda: run(state).out == "true\n")  # podman records it after the worker has begun
        finally:
            process.kill()
    try:
        assert run(["podman", "exec", "control", "echo", "alive"]).out == "alive\n"
    finally:
        run(["podman", "rm", "--force", "--time=0", "control"])
