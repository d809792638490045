"""A card with a terminal, driven through one: keys, job control and the window's size reach the worker, and no more.

Nothing is waited for by time: what is typed next is typed when the answer to the last is there.
"""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from tests.bench.cards import run

PATIENCE_SECONDS = 20
PROMPT = "ready> "
SHELL = ["--env", f"PS1={PROMPT}", "--", "bash", "--norc", "--noprofile", "-i"]
JOB = "sh -c 'echo started; exec sed -u s/^/heard:/'"  # says when it is in the foreground, and what it reads
CTRL_C, CTRL_D, CTRL_Z, CTRL_BACKSLASH = "\x03", "\x04", "\x1a", "\x1c"


class Terminal:
    """A terminal that a program runs in, as the person before it has it."""

    def __init__(self, master: int, program: subprocess.Popen[bytes]) -> None:
        self._master = master
        self._program = program
        self._unread = ""
        self.shown = ""

    def until(self, text: str) -> str:
        """Return what is shown up to and with the text, from where the last call ended."""
        end = time.monotonic() + PATIENCE_SECONDS
        while text not in self._unread:
            assert self._more(end), f"no {text!r} in {self.shown!r}"
            self._read()
        before, _, self._unread = self._unread.partition(text)
        return before + text

    def _more(self, end: float) -> bool:
        """Return whether there is something to read, or its end, before that moment (time.monotonic)."""
        return bool(select.select([self._master], [], [], max(0, end - time.monotonic()))[0])

    def _read(self) -> None:
        try:
            data = os.read(self._master, 65536).decode(errors="replace")
        except OSError:  # EIO: nobody holds the other end any more
            data = ""
        assert data, f"ended after {self.shown!r}"
        self._unread += data
        self.shown += data

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def ask(self, line: str) -> str:
        """Type a line at a prompt and return what is shown until the next one, without the line itself."""
        self.type(line + "\r")
        return self.until(PROMPT).removesuffix(PROMPT).partition("\n")[2].replace("\r", "")

    def resize(self, rows: int, columns: int) -> None:
        """Change the window's size, which the kernel tells the programs in it."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def modes(self) -> list[object]:
        """Return how the terminal is set (termios(3))."""
        return termios.tcgetattr(self._master)

    def send(self, number: signal.Signals) -> None:
        """Send the program itself a signal, past the terminal."""
        children = run(["pgrep", "--parent", str(self._program.pid)]).out.split()
        os.kill(int(children[0]) if children else self._program.pid, number)

    def close(self) -> None:
        """Close the window."""
        if self._master >= 0:
            os.close(self._master)
        self._master = -1

    def ended(self) -> int:
        """Return the program's exit status, having read all it still says."""
        end = time.monotonic() + PATIENCE_SECONDS
        while self._master >= 0 and self._more(end):
            try:
                self._read()
            except AssertionError:
                break
        return self._program.wait(timeout=max(1, end - time.monotonic()))


def terminal(*words: str) -> AbstractContextManager[Terminal]:
    """Start card-run with a terminal of its own."""
    return program("card-run", "-it", *words)


@contextmanager
def jobs() -> Generator[Terminal]:
    """Start an interactive shell of the bench's own, at its first prompt, in which cards are jobs."""
    with program("env", f"PS1={PROMPT}", "bash", "--norc", "--noprofile", "-i") as opened:
        opened.until(PROMPT)
        yield opened


@contextmanager
def program(*words: str) -> Generator[Terminal]:
    """Start a program with a terminal of 40 rows and 100 columns as its own controlling one."""
    master, slave = pty.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    argv = ["setsid", "--ctty", "--wait", *words]
    environment = {**os.environ, "TERM": "dumb"}  # without the escapes that readline writes for others
    with subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave, env=environment) as started:
        os.close(slave)
        opened = Terminal(master, started)
        try:
            yield opened
        finally:
            opened.close()
            if started.poll() is None:
                run(["podman", "kill", "--all"])


@pytest.fixture
def shell() -> Iterator[Terminal]:
    """Return a terminal with an interactive shell in a card, at its first prompt."""
    with terminal(*SHELL) as opened:
        opened.until(PROMPT)
        yield opened


@pytest.mark.usefixtures("nothing_left")
def test_a_shell(shell: Terminal) -> None:
    """The worker's standard descriptors are its own terminal, of the caller's size and kind; its status is ours."""
    assert shell.ask("tty; stty size; echo $TERM; test -t 0 -a -t 1 -a -t 2 && echo all") == (
        "/dev/pts/0\n40 100\ndumb\nall\n"
    )
    assert "isig icanon" in shell.ask("stty -a | grep isig")
    shell.type("exit 7\r")
    assert shell.ended() == 7


def test_what_card_run_says_comes_first_and_in_lines(shell: Terminal) -> None:
    """The one line about the walls stands above the first prompt, from the left edge."""
    lines = shell.shown.split("\r\n")
    assert any(line.startswith("SANDBOX OK run=") and line.endswith("level=full") for line in lines[:-1]), lines
    assert lines[-1] == PROMPT


def test_ctrl_c_ends_the_foreground_job_alone(shell: Terminal) -> None:
    """Ctrl-C is the worker's: the job in the foreground is interrupted, its shell and the card live on."""
    shell.type(f"{JOB}\r")
    shell.until("\nstarted\r\n")
    shell.type(CTRL_C)
    shell.until(PROMPT)
    assert shell.ask("echo $?") == "130\n"


def test_job_control(shell: Terminal) -> None:
    """Ctrl-Z stops a job; bg and fg move it, and Ctrl-Backslash quits it."""
    shell.type(f"{JOB}\r")
    shell.until("\nstarted\r\n")
    shell.type("echoed\r")
    shell.until("echoed\r\nheard:echoed\r\n")
    shell.type(CTRL_Z)
    assert "Stopped" in shell.until(PROMPT)
    assert re.search(r"\[1\]\+ +Stopped +sh", shell.ask("jobs"))
    assert f"{JOB} &" in shell.ask("bg")
    # In the background it may not read the terminal: the kernel stops it, and `wait` tells.
    assert "Stopped (tty input)" in shell.ask("wait; jobs -l")
    shell.type("fg\r")
    shell.until(f"fg\r\n{JOB}\r\n")
    shell.type("again\n")  # not a return: bash may not have given the terminal its modes back yet
    shell.until("heard:again\r\n")
    shell.type(CTRL_BACKSLASH)
    shell.until(PROMPT)
    assert shell.ask("echo $?") == "131\n"


# podman gives the terminal its size while the worker starts: a signal for that may be pending.
WAIT_FOR_SIZE = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH])
before = os.get_terminal_size()
print("waiting", *before, flush=True)
signal.sigwait([signal.SIGWINCH])
while os.get_terminal_size() == before:
    signal.sigwait([signal.SIGWINCH])
print("changed", *os.get_terminal_size(), flush=True)
"""


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(("options", "end"), [("-it", "\r\n"), ("-t", "\r")])
def test_the_windows_size_is_followed(options: str, end: str) -> None:
    """The worker starts with the window's size, and is told when that changes, with input and without."""
    with program("card-run", options, "--", "python3", "-c", WAIT_FOR_SIZE) as opened:
        opened.until(f"waiting 100 40{end}")
        opened.resize(50, 120)
        opened.until(f"changed 120 50{end}")
        assert opened.ended() == 0


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("key", [CTRL_C, CTRL_BACKSLASH])
def test_the_keys_of_a_terminal_without_input(key: str) -> None:
    """With -t alone the worker has a terminal and no input of ours, and the keys that interrupt reach it as signals."""
    with program("card-run", "-t", "--", "sh", "-c", "test -t 0 -a -t 1 -a -t 2 && echo all; exec sleep 60") as opened:
        before = opened.modes()
        opened.until("\nall\r")
        assert opened.modes() == before
        opened.type(key)
        assert opened.ended() == 128 + (signal.SIGINT if key == CTRL_C else signal.SIGQUIT)


@pytest.mark.usefixtures("nothing_left")
def test_a_terminal_without_input_that_goes_away() -> None:
    """With -t alone too the worker gets SIGHUP when the window is closed."""
    with program("card-run", "-t", "--", "sh", "-c", "echo started; exec sleep 60") as opened:
        opened.until("started")
        opened.close()
        assert opened.ended() == 128 + signal.SIGHUP


def test_the_terminal_is_left_as_it_was() -> None:
    """Raw while the card runs, and afterwards set as before."""
    with terminal(*SHELL) as opened:
        before = opened.modes()
        opened.until(PROMPT)
        assert opened.modes() != before
        opened.type(CTRL_D)
        assert opened.ended() == 0
        assert opened.modes() == before


def test_a_new_terminal_in_the_card() -> None:
    """Programs that make terminals of their own (script, tmux, expect) can, and `stty` works in those."""
    with terminal(*SHELL) as opened:
        opened.until(PROMPT)
        assert opened.ask("script -qec 'tty; stty rows 10 cols 20; stty size' /dev/null") == "/dev/pts/1\n10 20\n"


def test_keys_cannot_be_pushed_into_the_terminal(shell: Terminal) -> None:
    """TIOCSTI is denied: what the worker leaves cannot be typed for the person at the terminal."""
    push = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSTI, b'x')"
    assert "[Errno 1] Operation not permitted" in shell.ask(f'python3 -c "{push}"')


def test_a_terminal_that_goes_away_takes_the_card_with_it() -> None:
    """When the window is closed the worker gets SIGHUP, as from any terminal, and the card ends."""
    with terminal("--", "sh", "-c", "echo started; exec cat") as opened:
        opened.until("started")
        opened.close()
        assert opened.ended() == 128 + signal.SIGHUP
