"""`card denials` tells what a card is denied while it runs, from the kernel's record and the plan's own names."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.bench.cards import run

WORKER = """
import socket, sys
def attempt(address, port):
    try:
        socket.create_connection((address, port), 1)
    except OSError:
        pass
attempt("203.0.113.10", 22)
print("tried", flush=True)
sys.stdin.readline()
attempt("198.51.100.66", 443)
"""


@contextmanager
def waiting(name: str) -> Iterator["subprocess.Popen[str]"]:
    """Start a card that was denied one thing and waits before it tries another."""
    words = ["card-run", "-q", "-i", "--run", name, "--", "python3", "-c", WORKER]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as card:
        assert card.stdout is not None
        assert card.stdout.readline() == "tried\n"
        yield card
        if card.poll() is None:
            card.communicate("go\n", timeout=30)


@pytest.mark.usefixtures("nothing_left")
def test_while_it_runs() -> None:
    """What was denied so far, with the name that the plan knows."""
    with waiting("live"):
        shown = run(["card", "denials", "live"])
        told = run(["card", "denials", "live", "--json"])
    assert shown.status == 0
    assert shown.out.split() == ["203.0.113.10", "tcp", "22", "1", "github.com"]
    assert {key: json.loads(told.out)[key] for key in ("address", "port", "name")} == {
        "address": "203.0.113.10",
        "port": 22,
        "name": "github.com",
    }


def test_follow_ends_with_the_run() -> None:
    """With --follow it goes on telling, and ends when the run does."""
    with waiting("followed") as card:
        words = ["card", "denials", "followed", "--follow"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as following:
            assert following.stdout is not None
            assert following.stdout.readline().startswith("203.0.113.10")
            card.communicate("go\n", timeout=30)
            assert following.wait(timeout=30) == 0


def test_no_such_run() -> None:
    """A run that does not live is refused as every verb does."""
    done = run(["card", "denials", "nobody"])
    assert (done.status, done.out, done.reasons) == (2, "", ["no-such-run"])
