"""Signals, without a terminal of the card's own and with one: each is heard once, and a card that must end does.

Nothing is waited for by time but what the promise itself is about.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.bench.cards import run
from tests.bench.test_terminal import CTRL_C, CTRL_D, CTRL_Z, Terminal, jobs, terminal

# Tells each signal as it comes; ends with 7 on TERM.
TELL = """
import signal, sys
names = ["INT", "HUP", "QUIT", "USR1", "USR2", "TERM"]
numbers = {getattr(signal, "SIG" + name): name for name in names}
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
print("up", flush=True)
while True:
    name = numbers[signal.sigwait(numbers)]
    print(name, flush=True)
    if name == "TERM":
        sys.exit(7)
"""
DEAF = "trap '' TERM; echo up; while :; do sleep 0.1; done"


@contextmanager
def card(*words: str, prefix: tuple[str, ...] = (), **options: object) -> Generator[subprocess.Popen[str]]:
    """Start a card in the background that says `up` when its worker runs."""
    argv = [*prefix, "card-run", "-q", *words]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, **options) as running:  # type: ignore[call-overload]
        try:
            assert line(running) == "up"
            yield running
        finally:
            running.kill()


def line(running: "subprocess.Popen[str]") -> str:
    """Return the next line that the worker prints."""
    assert running.stdout is not None
    return running.stdout.readline().removesuffix("\n")


def took(call: "subprocess.Popen[str]", seconds: int) -> tuple[int, float]:
    """Return the exit status, and how long it took from now."""
    start = time.monotonic()
    return call.wait(timeout=seconds), time.monotonic() - start


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("group", [False, True])
def test_each_signal_reaches_the_worker_once(group: bool) -> None:  # noqa: FBT001
    """Sent to card-run or to its whole process group, as timeout(1) and shells do; TERM ends it with its own status."""
    with card("--", "python3", "-c", TELL, start_new_session=True) as running:
        send = os.killpg if group else os.kill
        for name in ("INT", "HUP", "QUIT", "USR1", "USR2", "INT"):
            send(running.pid, signal.Signals[f"SIG{name}"])
            assert line(running) == name
        send(running.pid, signal.SIGTERM)
        assert running.stdout is not None
        assert running.stdout.read() == "TERM\n"
        assert running.wait(timeout=20) == 7


@pytest.mark.usefixtures("nothing_left")
def test_what_ignores_term_is_killed_after_the_stop_timeout() -> None:
    """TERM is asked first, and KILL comes when the time is over and not before."""
    with card("--stop-timeout", "2", "--", "sh", "-c", DEAF) as running:
        running.send_signal(signal.SIGTERM)
        status, seconds = took(running, 20)
    assert status == 137
    assert 2 <= seconds < 6


@pytest.mark.usefixtures("nothing_left")
def test_what_ends_in_time_is_not_killed() -> None:
    """A worker that takes a second to tidy up ends with its own status."""
    tidy = "trap 'sleep 1; echo tidy; exit 3' TERM; echo up; while :; do sleep 0.1; done"
    with card("--stop-timeout", "30", "--", "sh", "-c", tidy) as running:
        running.send_signal(signal.SIGTERM)
        assert line(running) == "tidy"
        assert running.wait(timeout=20) == 3


@pytest.mark.parametrize("text", ["-1", "soon", "1e3"])
def test_a_stop_timeout_that_is_none_is_refused(text: str) -> None:
    """Seconds, from zero."""
    done = run(["card-run", "--stop-timeout", text, "--", "true"])
    assert (done.status, done.reasons) == (125, ["bad-limit"])


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(("worker", "status"), [("trap 'exit 7' TERM; echo up; sleep 60 & wait", 7), (DEAF, 137)])
def test_a_paused_card_can_be_ended(worker: str, status: int) -> None:
    """TERM reaches a worker that is frozen, and KILL one that does not listen."""
    with card("--run", "frozen", "--stop-timeout", "2", "--", "sh", "-c", worker) as running:
        assert run(["podman", "pause", "card-frozen"]).status == 0
        running.send_signal(signal.SIGTERM)
        assert took(running, 20)[0] == status


@pytest.mark.usefixtures("nothing_left")
def test_a_paused_card_ends_with_its_timeout() -> None:
    """`--timeout` is not outlived by pausing."""
    with card("--run", "frozen", "--timeout", "3", "--stop-timeout", "1", "--", "sh", "-c", DEAF) as running:
        assert run(["podman", "pause", "card-frozen"]).status == 0
        assert took(running, 20)[0] == 124


@pytest.mark.usefixtures("nothing_left")
def test_nohup_holds() -> None:
    """A hang-up that the caller ignores does not reach the worker; control: the first test of this file."""
    with card("--", "python3", "-c", TELL, prefix=("nohup",), stdin=subprocess.DEVNULL) as running:
        running.send_signal(signal.SIGHUP)
        running.send_signal(signal.SIGUSR1)
        assert line(running) == "USR1"
        running.send_signal(signal.SIGTERM)
        assert line(running) == "TERM"


# Starts a program that ignores the end of its children.
CHILDLESS = ("env", "--ignore-signal=CHLD")


@pytest.mark.usefixtures("nothing_left")
def test_a_caller_that_ignores_the_end_of_its_children(receipt: Path) -> None:
    """The status is the worker's or the command's own, and neither ignores the signal itself."""
    program = "grep SigIgn: /proc/self/status; echo up; read line; exit 5"

    def ignored(shown: str) -> bool:
        return bool(int(shown.removeprefix("SigIgn:"), 16) >> (signal.SIGCHLD - 1) & 1)

    words = ["card-run", "-q", "-i", "--run=heir", f"--json={receipt}", "--", "sh", "-c", program]
    pipe = subprocess.PIPE
    with subprocess.Popen([*CHILDLESS, *words], stdin=pipe, stdout=pipe, text=True) as running:
        assert not ignored(line(running))
        assert line(running) == "up"
        done = run([*CHILDLESS, "card", "exec", "heir", "--", "sh", "-c", "grep SigIgn: /proc/self/status; exit 6"])
        assert (done.status, ignored(done.out)) == (6, False)
        running.communicate("\n")
    assert (running.returncode, json.loads(receipt.read_text())["exit_status"]) == (5, 5)


@pytest.mark.usefixtures("nothing_left")
def test_a_detached_card_whose_caller_ignores_the_end_of_its_children() -> None:
    """It has a receipt, and what attaches to it the worker's status."""
    words = ["card-run", "-q", "-d", "-i", "--run=heir", "--", "sh", "-c", "read line; exit 5"]
    assert run([*CHILDLESS, *words], stdin=subprocess.DEVNULL).status == 0
    assert run([*CHILDLESS, "card", "attach", "heir"], input="\n").status == 5
    assert run(["card", "wait", "heir"]).out == "5\n"


@pytest.mark.usefixtures("nothing_left")
def test_term_reaches_a_worker_with_a_terminal() -> None:
    """The worker's own status comes back through its terminal."""
    with terminal("--", "python3", "-c", TELL) as opened:
        opened.until("up\r\n")
        opened.send(signal.SIGTERM)
        opened.until("TERM\r\n")
        assert opened.ended() == 7


@pytest.mark.usefixtures("nothing_left")
def test_a_lost_terminal_ends_a_worker_that_ignores_it() -> None:
    """SIGHUP is asked first; then the card is killed, for nobody could see it any more."""
    with terminal(
        "--stop-timeout", "1", "--", "sh", "-c", "trap '' HUP; echo up; while :; do sleep 0.1; done"
    ) as opened:
        opened.until("up\r\n")
        opened.close()
        assert opened.ended() == 137


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("options", ["", "-t", "-i"])
def test_ctrl_c_and_ctrl_z_in_a_shell_of_the_bench(options: str) -> None:
    """A card as a job, the keys not its own: Ctrl-Z freezes it, fg lets it go on, Ctrl-C reaches its worker once."""
    with jobs() as shell:
        shell.type(f"card-run -q {options} --run job -- python3 -u -c '{TICK}'\r")
        shell.until("tick\r")
        shell.type(CTRL_Z)
        assert "Stopped" in shell.until("ready> ")
        assert run(["podman", "ps", "--all", "--format", "{{.State}}"]).out.lower() == "paused\n"
        assert "Stopped" in shell.ask("jobs")
        shell.type("fg\r")
        shell.until("tick\r")
        shell.type(CTRL_C)
        shell.until("caught\r")
        shell.until("ready> ")
        assert shell.ask("echo $?") == "5\n"


TICK = """
import sys, time
try:
    while True:
        print("tick")
        time.sleep(0.1)
except KeyboardInterrupt:
    print("caught")
    sys.exit(5)
"""


ECHO = (
    'import signal, sys; signal.signal(2, lambda *_: print("heard")); print("up"); '
    '[print("got", line, end="") for line in sys.stdin]'
)


@pytest.mark.usefixtures("nothing_left")
def test_input_from_a_terminal_that_is_not_the_cards(shell: Terminal) -> None:
    """With -i and without -t, lines are the worker's, Ctrl-C reaches it once, and Ctrl-D ends its input."""
    shell.type(f"card-run -q -i -- python3 -uc '{ECHO}'\r")
    shell.until("up\r\n")
    shell.type(CTRL_C)
    shell.until("heard\r\n")
    shell.type("a line\r")
    assert "heard" not in shell.until("got a line\r\n")
    shell.type(CTRL_D)
    assert "heard" not in shell.until("ready> ")
    assert shell.ask("echo $?") == "0\n"


@pytest.mark.usefixtures("nothing_left")
def test_input_goes_on_after_ctrl_z(shell: Terminal) -> None:
    """With -i at a terminal Ctrl-Z freezes the card, and after fg what is typed is the worker's again."""
    shell.type(f"card-run -q -i --run job -- python3 -uc '{ECHO}'\r")
    shell.until("up\r\n")
    shell.type("one\r")
    shell.until("got one\r\n")
    shell.type(CTRL_Z)
    assert "Stopped" in shell.until("ready> ")
    assert run(["podman", "ps", "--all", "--format", "{{.State}}"]).out.lower() == "paused\n"
    assert shell.ask("echo $((6 * 7))") == "42\n"  # what is typed now is the shell's
    shell.type("fg\r")
    shell.until("card-run")
    shell.type("two\r")
    shell.until("got two\r\n")
    shell.type(CTRL_D)
    shell.until("ready> ")
    assert shell.ask("echo $?") == "0\n"


def test_no_carriage_return_in_what_is_piped(shell: Terminal) -> None:
    """Without -t, not one is added, whatever the terminal that card-run is started from."""
    assert shell.ask("card-run -q -- printf 'a\\nb\\n' | od -c | head -1") == "0000000   a  \\n   b  \\n\n"


@pytest.fixture
def shell() -> Generator[Terminal]:
    """Return a terminal with an interactive shell of the bench's own."""
    with jobs() as opened:
        yield opened
