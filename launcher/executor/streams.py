"""A running command's streams, in steps: read and written without waiting, so that both kinds of caller can."""

import os

from launcher.executor.child import Child
from launcher.executor.steps import Steps, Wait

_CHUNK = 65536
EOT = b"\x04"  # VEOF, see termios(3)


def end_of_input(data: bytes) -> bytes:
    """Return what ends the input at a terminal after such data: its key for that, which first ends a line begun."""
    return EOT if not data or data.endswith((b"\n", EOT)) else EOT * 2


class Source:
    """stdout or stderr of a command, or the terminal it is at. Read in order; b"" is its end."""

    def __init__(self, child: Child, fd: int, *, limit: int) -> None:
        self._child = child
        self._fd = fd
        self._limit = limit
        self._rest = bytearray()

    def more(self, most: int) -> Steps[bytes]:
        """Return what has come, at most so many bytes, waiting for the first; b"" at the end."""
        if not self._rest:
            self._rest += yield from self._chunk()
        return self._taken(most)

    def all(self) -> Steps[bytes]:
        """Return everything up to the end."""
        parts = [self._taken(len(self._rest))]
        while data := (yield from self._chunk()):
            parts.append(data)
        return b"".join(parts)

    def line(self) -> Steps[bytes]:
        """Return the next line with its newline, or what stands before the end.

        Raises ValueError when it is longer than the limit; what has come of it is still there to be read.
        """
        searched = 0
        while (end := self._rest.find(b"\n", searched)) < 0 and len(self._rest) <= self._limit:
            searched = len(self._rest)
            data = yield from self._chunk()
            if not data:
                return self._taken(searched)
            self._rest += data
        if not 0 <= end <= self._limit:
            raise ValueError(f"the line is longer than output_limit, {self._limit} bytes: read() it in pieces")
        return self._taken(end + 1)

    def _taken(self, most: int) -> bytes:
        data = bytes(self._rest[:most])
        del self._rest[:most]
        return data

    def _chunk(self) -> Steps[bytes]:
        while self._fd in self._child.streams:
            try:
                data = os.read(self._fd, _CHUNK)
            except BlockingIOError:
                yield Wait(reads=(self._fd,))
                continue
            except OSError:  # EIO: a terminal that nobody has open any more
                return b""
            return data
        return b""


class Sink:
    """stdin of a command, or the terminal it is at."""

    def __init__(self, child: Child, fd: int) -> None:
        self._child = child
        self._fd = fd

    def put(self, data: bytes) -> Steps[None]:
        """Hand over all of it, waiting for the command to take it; raises BrokenPipeError when it takes no more."""
        view = memoryview(data)
        while view:
            if self._fd not in self._child.streams:
                raise BrokenPipeError("the command's standard input is closed")
            try:
                view = view[os.write(self._fd, view[:_CHUNK]) :]
                self._child.last = data[: len(data) - len(view)][-1:]
            except BlockingIOError:
                yield Wait(writes=(self._fd,))

    def close(self) -> None:
        """Let the command read the end of its input; at a terminal that is its key, and the terminal stays."""
        if self._fd == self._child.streams.stdout:
            os.write(self._fd, end_of_input(self._child.last))
            self._child.last = EOT
        else:
            self._child.close_stream(self._fd)
