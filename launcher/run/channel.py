"""The socket between card-run and stage 2: frames of records, each behind a 4-byte little-endian length.

The container's end is descriptor 3 (podman-run(1) `--preserve-fds`). `_socket` is what `socket` is made of, without
the 7 ms of its enums. Environment values and the nonce cross here, so neither is in an argv, a file, or podman's state.
"""

import _socket
import fcntl
import os

from oci import records

CONTAINER_FD = 3
_FRAME_LIMIT = 1 << 20


class Channel:
    """Our end; `theirs` is the descriptor to hand to podman, closed here once podman has it."""

    def __init__(self) -> None:
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self._fd = ours.detach()
        low = theirs.detach()
        # Above the low numbers: posix_spawn's dup2 onto 3 must be a real one, which clears close-on-exec.
        self.theirs = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 16)
        os.close(low)

    def spawned(self) -> None:
        """Let go of the container's end, so that its last holder's death reads as end of file."""
        os.close(self.theirs)

    def send(self, items: list[tuple[str, str]]) -> None:
        """Send one frame; raises OSError (EPIPE) when nobody is left to read it."""
        body = records.dump(items)
        data = memoryview(len(body).to_bytes(4, "little") + body)
        while data:
            data = data[os.write(self._fd, data) :]

    def receive(self) -> dict[str, list[str]] | None:
        """Return the next frame, or None when the other end is gone or sends something that is not one."""
        head = self._exactly(4)
        size = int.from_bytes(head or b"", "little")
        body = self._exactly(size) if head is not None and size <= _FRAME_LIMIT else None
        if body is None:
            return None
        try:
            return records.load(body)
        except ValueError:
            return None

    def _exactly(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            try:
                more = os.read(self._fd, size - len(data))
            except ConnectionResetError:
                return None
            if not more:
                return None
            data += more
        return data

    def close(self) -> None:
        """Close our end. Stage 2, if it still waits, refuses."""
        os.close(self._fd)
