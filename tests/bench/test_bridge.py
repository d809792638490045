"""A card on a bridge has two tables: the second, on the bench's side, holds when the first is gone."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.bench import inside
from tests.bench.cards import Attempt

ATTEMPTS: list[Attempt] = [
    ["tcp", "203.0.113.10", 443],
    ["tcp", "198.51.100.66", 443],
    ["tcp", "203.0.113.10", 8443],
    ["udp", "198.51.100.66", 443, "00"],
]
WAITING = "import sys; print('up', flush=True); sys.stdin.readline()\n" + inside.PROGRAM


@contextmanager
def waiting_card(run: str) -> Iterator["subprocess.Popen[str]"]:
    """Start a card whose worker waits for a line before it tries anything."""
    words = ["card-run", "-q", "-i", "--run", run, "--net", "bridge", "--"]
    with subprocess.Popen(
        [*words, "python3", "-c", WAITING, json.dumps(ATTEMPTS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as card:
        assert card.stdout is not None
        assert card.stdout.readline() == "up\n"
        yield card


def results(card: "subprocess.Popen[str]") -> list[str]:
    """Let the worker go on, and return what its attempts came to."""
    out, _ = card.communicate("go\n", timeout=60)
    assert card.returncode == 0
    return [result for result, _ in json.loads(out)]


def unshare(*words: str) -> None:
    """Run a command in podman's user namespace."""
    subprocess.run(["podman", "unshare", *words], check=True, capture_output=True)


def flush_inner(run: str) -> None:
    """Remove every table of the card's own network namespace."""
    words = ["podman", "inspect", "--format={{.State.Pid}}", f"card-{run}"]
    pid = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    unshare("nsenter", "-t", pid, "-n", "/usr/sbin/nft", "flush", "ruleset")


@pytest.mark.usefixtures("nothing_left")
def test_outer_table_holds_alone() -> None:
    """With the inner table gone only the pin is reached still."""
    with waiting_card("outer") as card:
        flush_inner("outer")
        opened, *closed = results(card)
    assert opened == "ok"
    assert not {"ok", "reply"} & set(closed)


@pytest.mark.usefixtures("nothing_left")
def test_control_without_either() -> None:
    """With both gone everything is reached: it was the outer table that held."""
    with waiting_card("neither") as card:
        flush_inner("neither")
        unshare("--rootless-netns", "/usr/sbin/nft", "delete", "table", "netdev", "nova_egress_neither")
        assert results(card) == ["ok", "ok", "ok", "reply"]
