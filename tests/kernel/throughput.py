"""Throughput of one allowed TCP stream through a table of 5,000 addresses and 1,000 names, against no table at all.

Run as `python -m tests.kernel.throughput`: pairs over two veths, the median of the ratios, and the numbers of
each pair. Exit status 1 when the table costs more than it may. Not a test: it measures the machine as well.
"""

import os
import signal
import socket
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from hooks import ruleset
from hooks.egress import Egress, Selector
from tests.kernel.wire import GITHUB4, NAMES, Wire, wire

PAIRS = 15
BURSTS = 30
SECONDS = 0.05
MAY_COST = 0.03
CHUNK = bytes(1 << 20)


def big() -> Egress:
    """Return the largest wall that is promised: 1,000 names, 5,000 addresses, DNS by question."""
    pins = {f"n{i}.example": tuple(f"198.{i >> 8}.{i & 255}.{j}" for j in range(5)) for i in range(998)}
    return Egress(run="big", selector=Selector("netns"), pins={**pins, **NAMES}, dns="10.88.0.53")


@contextmanager
def _sink(made: Wire) -> Iterator[None]:
    """Swallow every stream in a process of its own, so that both ends do not share one interpreter."""
    with made.world.call(lambda: socket.create_server(("", 443))) as server:
        child = os.fork()
        if child == 0:
            _swallow(server)
        try:
            yield
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _swallow(server: socket.socket) -> NoReturn:
    buffer = bytearray(len(CHUNK))
    while True:
        client, _ = server.accept()
        with client:
            while client.recv_into(buffer):
                pass


def stream(made: Wire) -> float:
    """Return the MB/s of one stream from the card to a pin."""

    def send() -> float:
        with socket.create_connection((GITHUB4, 443)) as sock:
            sent, started = 0, time.perf_counter()
            while (spent := time.perf_counter() - started) < SECONDS:
                sent += sock.send(CHUNK)
            return sent / spent / 1e6

    return made.card.call(send)


def pair(plain: Wire, walled: Wire) -> "tuple[float, float]":
    """Return the median MB/s of both, in bursts that take turns: what else the machine does meets both alike."""
    speeds: "tuple[list[float], list[float]]" = ([], [])
    for turn in range(BURSTS):
        for which in (0, 1) if turn % 2 else (1, 0):
            speeds[which].append(stream((plain, walled)[which]))
    return statistics.median(speeds[0]), statistics.median(speeds[1])


def out(line: str) -> None:
    """Print a line of the result at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Measure, print, and judge."""
    ratios = []
    with wire(serving=False) as plain, _sink(plain), wire(serving=False) as walled, _sink(walled):
        walled.card.load(ruleset.render(big()))
        pair(plain, walled)
        for number in range(PAIRS):
            without, with_table = pair(plain, walled)
            ratios.append(with_table / without)
            out(f"pair {number + 1:2}: {without:5.0f} MB/s without, {with_table:5.0f} MB/s with: {ratios[-1]:.3f}")
    median = statistics.median(ratios)
    out(f"median of {PAIRS} pairs: {median:.3f} of the throughput without a table (at least {1 - MAY_COST:.2f} wanted)")
    return 0 if median >= 1 - MAY_COST else 1


if __name__ == "__main__":
    sys.exit(main())
