"""`--events` and `--lifeline`: what a program that embeds card-run hears, and how the kernel ends card-run with it."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CARD_RUN = [sys.executable, "-c", "from launcher.cli import main; main()"]


def told(*words: str) -> tuple[int, list[dict[str, object]], str]:
    """Return the status of a card-run, what it told, and what it printed."""
    read, write = os.pipe()
    done = subprocess.run(
        [*CARD_RUN, f"--events={write}", *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        pass_fds=[write],
        check=False,
    )
    os.close(write)
    with open(read, encoding="utf-8") as file:
        return done.returncode, [json.loads(line) for line in file], done.stdout + done.stderr


def test_refusals_are_told_and_not_printed() -> None:
    """All at once, with reason, text and hint; nothing is on stderr, which is the worker's."""
    status, events, printed = told("--run=Bad", "--write=relative", "--", "true")
    assert (status, printed) == (125, "")
    assert events[0] == {"event": "listening", "schema": 1}
    assert {event["event"] for event in events[1:]} <= {"note", "refused"}
    reasons = [one["reason"] for one in events[-1]["refusals"]]  # type: ignore[attr-defined]  # its shape is the point
    assert {"bad-run-id", "relative-path"} <= set(reasons)


def test_a_command_line_that_cannot_be_read_is_told_too() -> None:
    """Also what is wrong with the options themselves, and with a card file."""
    assert told("--no-such-option", "--", "true")[1][-1]["event"] == "refused"
    assert told("--card=/nowhere/card.toml")[1][-1]["event"] == "refused"
    assert told("-d", "--", "true")[1][-1]["event"] == "refused"


def test_descriptors_that_are_none_are_refused() -> None:
    """A number that nothing is open at, a word, and a lifeline whose other end is gone already."""
    one, other = socket.socketpair()
    other.close()
    for flag in ("--events=77", "--events=x", "--lifeline=77", f"--lifeline={one.fileno()}"):
        words = [*CARD_RUN, flag, "--", "true"]
        done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, pass_fds=[one.fileno()], check=False)
        assert done.returncode == 125
        assert "reason=bad-descriptor" in done.stderr
    one.close()


def test_the_kernel_ends_a_process_that_is_tied() -> None:
    """Whoever holds the other end lets go of it, and the process is killed without being asked; held, it lives on."""
    program = "import sys\nfrom launcher.run import events\nevents.tie(sys.argv[1])\n"
    program += "print('tied', flush=True)\nsys.stdin.read()"
    ours, theirs = socket.socketpair()
    with subprocess.Popen(
        [sys.executable, "-c", program, str(theirs.fileno())],
        cwd=ROOT,
        pass_fds=[theirs.fileno()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        theirs.close()
        assert process.stdout is not None
        assert process.stdout.readline() == b"tied\n"
        assert process.poll() is None
        ours.close()
        assert process.wait(5) == -9
