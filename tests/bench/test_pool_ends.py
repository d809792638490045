"""Whoever dies, whenever: a warm card ends with the card-run that took it, or with its pool, and nothing is left."""

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.bench import inside
from tests.bench.cards import run
from tests.bench.lives import RUNS, STORAGE, until
from tests.bench.pools import FOLDER, Tree, asked, attendants, cold, full, pool, status, taken
from tests.bench.test_walls import DENIED, PINS

DEAD_RESOLVER = "192.0.2.254"


# Starts a program that ignores what nohup(1) and a shell's `&` have it ignore, and SIGTSTP.
IGNORING = ("sh", "-c", 'trap "" INT QUIT HUP TSTP; exec "$@"', "ignoring")


def running(*options: str, receipt: Path, program: tuple[str, ...] = ("card-run",)) -> "subprocess.Popen[str]":
    """Start a warm card whose worker says that it runs, and then waits."""
    full()
    words = [*program, "-q", f"--json={receipt}", *options, "--", "sh", "-c", "echo up; exec sleep 60"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


@pytest.mark.usefixtures("nothing_new")
def test_card_run_killed(receipt: Path) -> None:
    """The kernel ends the worker with the card-run that took its card, and the attendant clears away."""
    with pool():
        process = running(receipt=receipt)
        process.kill()
        process.communicate()
        until(lambda: not run(["pgrep", "-x", "sleep"]).out, seconds=3)
        full()


@pytest.mark.usefixtures("nothing_new")
def test_card_run_killed_with_everybody_else_stopped(receipt: Path) -> None:
    """The worker ends though the pool and every attendant cannot act: the kernel acts."""
    with pool() as found:
        process = running(receipt=receipt)
        full()
        others = [found["pid"], *attendants(found["pid"])]
        for pid in others:
            os.kill(pid, signal.SIGSTOP)
        process.kill()
        process.wait()
        try:
            until(lambda: not run(["pgrep", "-x", "sleep"]).out, seconds=3)
        finally:
            for pid in others:
                os.kill(pid, signal.SIGCONT)
        process.communicate()


@pytest.mark.usefixtures("nothing_new")
def test_card_run_killed_between_take_and_release() -> None:
    """A card that was taken and not released is ended, and never given to anybody else."""
    dead = ["--resolver", DEAD_RESOLVER]
    with pool(*dead) as found:
        words = ["card-run", *dead, "--resolve-timeout", "5", "--", "echo", "ran"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        until(lambda: not (RUNS / found["ready"][0] / "warm").exists())
        process.kill()
        assert process.communicate()[0] == ""
        assert full()["ready"] != found["ready"]
        until(lambda: not (RUNS / found["ready"][0]).exists(), seconds=20)


@pytest.mark.usefixtures("nothing_new")
def test_the_pool_killed(receipt: Path) -> None:
    """Its cards end by themselves, runs start cold, a run that goes on is not touched, a new pool can be started."""
    with pool(size=2) as found:
        process = running(receipt=receipt)
        full()
        os.kill(found["pid"], signal.SIGKILL)
        until(lambda: len(list(RUNS.iterdir())) == 1, seconds=10)
        assert cold(asked("--", "true", receipt=receipt.with_name("other"))).startswith("the pool does not answer")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 143
        process.communicate()
        assert json.loads(receipt.read_text())["start"]["kind"] == "warm"
        with pool():
            assert taken("--", "true", receipt=receipt).status == 0


@pytest.mark.usefixtures("nothing_new")
@pytest.mark.parametrize("words", [("gc",), ("pool", "stop")])
def test_what_a_killed_pool_leaves(words: tuple[str, ...]) -> None:
    """Its socket is nobody's: `card gc` and the next stop take it away, and neither that of a pool that lives."""
    with pool() as found:
        if words == ("gc",):
            assert run(["card", *words]).status == 0
            assert status()["pid"] == found["pid"]
        os.kill(found["pid"], signal.SIGKILL)
        until(lambda: not list(RUNS.iterdir()), seconds=20)
        assert (FOLDER / "socket").exists()
        done = run(["card", *words])
        assert (done.status, FOLDER.exists()) == (0 if words == ("gc",) else 1, False)


@pytest.mark.usefixtures("nothing_new")
def test_an_attendant_killed(receipt: Path) -> None:
    """Before its card is taken: the pool makes another. While the worker runs: the card is ended, and that is told."""
    with pool() as found:
        os.kill(attendants(found["pid"])[0], signal.SIGKILL)
        until(lambda: status()["ready"] not in ([], found["ready"]))
        process = running(receipt=receipt)
        record = json.loads(
            next(one for one in RUNS.iterdir() if (one / "released").exists()).joinpath("record.json").read_text()
        )
        os.kill(record["launcher"]["pid"], signal.SIGKILL)
        _, err = process.communicate(timeout=20)
        assert process.returncode == 125
        assert "is gone: the card was ended" in err
        until(lambda: not run(["pgrep", "-x", "sleep"]).out, seconds=5)


@pytest.mark.usefixtures("nothing_new")
def test_a_warm_container_killed() -> None:
    """A card whose container somebody removes is replaced; it is not handed out."""
    with pool() as found:
        run(["podman", "rm", "--force", "--time=0", f"card-{found['ready'][0]}"])
        until(lambda: status()["ready"] not in ([], found["ready"]))


@pytest.mark.usefixtures("nothing_new")
def test_a_taken_card_outlives_its_pool(receipt: Path) -> None:
    """`card pool stop` ends what nobody took; the run that took a card goes on to its own end."""
    with pool():
        process = running(receipt=receipt)
        assert run(["card", "pool", "stop"]).status == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 143
        process.communicate()


def test_signals_and_time(receipt: Path) -> None:
    """A worker that traps TERM has its own status; --timeout is 124; a signal that ends the worker says which."""
    trap = "trap 'exit 7' TERM; echo up; while :; do sleep 0.1; done"
    with pool():
        full()
        words = ["card-run", "-q", "--", "sh", "-c", trap]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 7
        process.communicate()
        assert taken("--timeout", "0.5", "--", "sleep", "60", receipt=receipt).status == 124
        process = running(receipt=receipt)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 130
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT, signal.SIGHUP])
def test_a_pool_that_ignores_signals(number: signal.Signals, receipt: Path) -> None:
    """What the pool was started to ignore is heard for whoever takes a card, as without a pool."""
    with pool(program=(*IGNORING, "card")):
        process = running(receipt=receipt)
        process.send_signal(number)
        assert process.wait(timeout=20) == 128 + number
        process.communicate()
    assert json.loads(receipt.read_text())["start"]["kind"] == "warm"


def test_a_pool_whose_starter_ignores_the_end_of_its_children(receipt: Path) -> None:
    """It outlives its first card that is taken, and makes another."""
    with pool(program=("env", "--ignore-signal=CHLD", "card")):
        for _ in range(2):
            assert taken("--", "sh", "-c", "exit 5", receipt=receipt).status == 5


@pytest.mark.usefixtures("nothing_new")
def test_a_taker_that_ignores_signals(receipt: Path) -> None:
    """It goes on ignoring them, as nohup(1) has it, and hears the others."""
    with pool():
        process = running(receipt=receipt, program=(*IGNORING, "card-run"))
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            process.send_signal(number)
        assert process.wait(timeout=20) == 143
        process.communicate()
    assert json.loads(receipt.read_text())["start"]["kind"] == "warm"


STREAM_GIVEN_AWAY = """
import os, socket, sys
place = socket.socket(socket.AF_UNIX)
place.bind("given")
place.listen()
print("up", flush=True)
other = place.accept()[0]
print("last" * 1000, flush=True)
socket.send_fds(other, [b"x"], [1])
other.recv(1)
os.unlink("given")
"""


def test_a_stream_that_another_process_keeps(tmp_path: Path, receipt: Path) -> None:
    """The run is over with its worker, with every byte of it, whoever else has the worker's stream and goes on."""
    write = ("--write", str(tmp_path))
    with pool(*write):
        full()
        words = ["card-run", "-q", f"--json={receipt}", *write, "--", "python3", "-c", STREAM_GIVEN_AWAY]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        with socket.socket(socket.AF_UNIX) as other:
            other.connect(str(tmp_path / "given"))
            kept = socket.recv_fds(other, 1, 1)[1]
            other.send(b"x")
            assert process.communicate(timeout=20)[0] == "last" * 1000 + "\n"
        assert process.returncode == 0
        for fd in kept:
            os.close(fd)
    assert json.loads(receipt.read_text())["start"]["kind"] == "warm"


def test_a_signal_before_a_card_turns_out_stale(tmp_path: Path) -> None:
    """It ends card-run, as it ends one that has not started podman: no cold worker runs after it."""
    tree, here = Tree(tmp_path), tmp_path / "here"
    tree.change(
        "launcher/pool/slot.py",
        "            self._at.swap()\n",
        f"            import time; open({str(here)!r}, 'w'); time.sleep(3); raise Stale('slow')\n",
    )
    with pool(program=tree.card):
        words = [*tree.card_run, "-q", "--", "echo", "ran"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        until(here.exists)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (-signal.SIGTERM, "")


def test_memory_that_ran_out(receipt: Path) -> None:
    """What conmon says of it is heard before the hook copies it, and the worker's own status stands."""
    with pool():
        full()
        words = ["card-run", "-qi", f"--json={receipt}", "--", "sh", "-c", "echo up; read line"]
        pipe = subprocess.PIPE
        process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        name = next(one for one in RUNS.iterdir() if (one / "released").exists()).name
        container = run(["podman", "inspect", "--format={{.Id}}", f"card-{name}"]).out.strip()
        word = STORAGE / "overlay-containers" / container / "userdata/oom"
        assert run(["podman", "unshare", "touch", str(word)]).status == 0
        process.communicate("go\n", timeout=20)
        told = json.loads(receipt.read_text())
        assert (process.returncode, told["oom"], told["start"]["kind"]) == (0, True, "warm")


def test_output_that_nobody_reads(receipt: Path) -> None:
    """A reader that goes away ends the worker by SIGPIPE, as in any pipe."""
    with pool():
        full()
        words = f"card-run -q --json={receipt} -- sh -c 'yes; echo $? >&2' | head -1"
        done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, timeout=30, check=True)
    assert (done.stdout, done.stderr) == ("y\n", "141\n")
    assert json.loads(receipt.read_text())["start"]["kind"] == "warm"


def test_card_exec_enters_a_warm_card(receipt: Path) -> None:
    """What comes into a taken card later comes behind the same walls, by the run's own plan."""
    with pool():
        process = running(receipt=receipt)
        name = next(one for one in RUNS.iterdir() if (one / "released").exists()).name
        done = run(
            [
                "card",
                "exec",
                name,
                "--",
                "python3",
                "-c",
                inside.PROGRAM,
                json.dumps([["tcp", PINS[0], 443], DENIED["metadata"]]),
            ]
        )
        assert [result for result, _ in json.loads(done.out)] == ["ok", "ECONNREFUSED"], done.err
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)


@pytest.mark.usefixtures("nothing_new")
def test_a_card_that_answers_too_late(tmp_path: Path, receipt: Path) -> None:
    """The run starts cold, and the card that would have been its own, when it can act again, starts nothing."""
    work = tmp_path / "work"
    work.mkdir()
    with pool("--write", str(work)) as found:
        for pid in attendants(found["pid"]):
            os.kill(pid, signal.SIGSTOP)
        late = attendants(found["pid"])
        done = asked("--write", str(work), "--", "sh", "-c", "echo ran >> file", receipt=receipt)
        assert (done.status, cold(done)) == (0, "the pool did not answer")
        for pid in late:
            os.kill(pid, signal.SIGCONT)
        until(lambda: not (RUNS / found["ready"][0]).exists())
    assert (work / "file").read_text() == "ran\n"
