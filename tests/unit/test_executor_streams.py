"""A command's output, read by lines: none is longer than the limit, and a long one costs what it is long."""

import asyncio
import fcntl
import os
import sys
import termios
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.executor import asynchronous, blocking
from launcher.executor.streams import Source

LIMIT, CHUNK = 100_000, 65536


class Output:
    """What a command writes: a pipe, and a reader of it that either kind of caller would have."""

    def __init__(self, *, waited: bool) -> None:
        out, self._into = os.pipe()
        fcntl.fcntl(out, fcntl.F_SETPIPE_SZ, 1 << 20)
        os.set_blocking(out, False)
        child: Any = SimpleNamespace(streams=(out,))
        self.source = Source(child, out, limit=LIMIT)
        self._out = out
        self._reader = asynchronous.Reader(self.source) if waited else blocking.Reader(self.source)

    def write(self, data: bytes) -> None:
        """Write what the pipe takes at once."""
        assert os.write(self._into, data) == len(data)

    def end(self) -> None:
        """Write no more."""
        os.close(self._into)

    def read(self, how: str, *words: int) -> bytes:
        """Call one of the reader's functions, in an event loop of its own where it has to be awaited."""
        found = getattr(self._reader, how)(*words)
        data: bytes = found if isinstance(self._reader, blocking.Reader) else asyncio.run(found)
        return data

    def waiting(self) -> int:
        """Return how many bytes nobody has read yet."""
        return int.from_bytes(fcntl.ioctl(self._out, termios.FIONREAD, bytes(4)), sys.byteorder)

    def close(self) -> None:
        """Give the pipe up."""
        os.close(self._out)


@pytest.fixture(params=[False, True], ids=["blocking", "asyncio"])
def output(request: pytest.FixtureRequest) -> Iterator[Output]:
    """Yield an output."""
    made = Output(waited=request.param)
    yield made
    made.close()


def test_lines_as_they_come(output: Output) -> None:
    """Lines come one by one, an empty one too, and what stands before the end without a newline."""
    output.write(b"one\n\ntwo\nthr")
    assert [output.read("readline") for _ in range(3)] == [b"one\n", b"\n", b"two\n"]
    output.write(b"ee")
    output.end()
    assert [output.read("readline") for _ in range(2)] == [b"three", b""]


def test_the_longest_line(output: Output) -> None:
    """A line may be as long as the limit, wherever its pieces end."""
    output.write(b"x" * LIMIT + b"\n" + b"y" * LIMIT)
    output.end()
    assert output.read("readline") == b"x" * LIMIT + b"\n"
    assert output.read("readline") == b"y" * LIMIT


@pytest.mark.parametrize("ending", [b"", b"\n", b"x" * LIMIT], ids=["still open", "ended", "much too long"])
def test_a_line_that_is_too_long(output: Output, ending: bytes) -> None:
    """A byte more than the limit is an error, as often as it is asked for; nothing is lost, or taken in besides."""
    line = b"x" * (LIMIT + 1) + ending
    output.write(line)
    for _ in range(2):
        with pytest.raises(ValueError, match=f"longer than output_limit, {LIMIT} bytes"):
            output.read("readline")
    output.end()
    assert output.waiting() >= len(line) - LIMIT - CHUNK
    assert output.read("read") == line


def test_a_long_line_is_searched_once(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has come of a line is not looked through again with each piece that comes."""
    searched: list[int] = []

    class Counted(bytearray):
        def find(self, sought: Any, start: Any = 0, end: Any = None) -> int:
            searched.append(len(self) - start)
            return super().find(sought, start, end)

    monkeypatch.setattr(output.source, "_rest", Counted())
    output.write(b"x" * LIMIT + b"\n")
    assert len(output.read("readline")) == LIMIT + 1
    assert sum(searched) == LIMIT + 1
