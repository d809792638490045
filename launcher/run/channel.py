"""The sockets between card-run and stage 2: one for what is said, and one whose end the kernel acts on.

What is said is frames of records, each behind a 4-byte little-endian length. The container's ends are descriptors 3
and 4 (podman-run(1) `--preserve-fds`). `_socket` is what `socket` is made of, without
the 7 ms of its enums. Environment values and the nonce cross here, so neither is in an argv, a file, or podman's state.
"""

import _socket
import fcntl
import os
import sys

from oci import records
from oci.refusal import Refusal, Refused

CONTAINER_FD, LIFELINE_FD = 3, 4
_FRAME_LIMIT = 1 << 20
_UCRED = 12  # struct ucred: pid, uid and gid


class Lifeline:
    """Held as long as this process lives: with it the worker ends (`launcher.stage2.lifeline`).

    The container's end is put into our own end's queue, which nothing reads: the order to kill that stage 2 leaves on
    it is kept there by the kernel, whoever in the container or around it lets go of it. `theirs` is as Channel's.
    """

    def __init__(self) -> None:
        """Make the pair; raises Refused when the kernel will not keep it."""
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            kept = theirs.fileno().to_bytes(4, sys.byteorder)
            theirs.sendmsg([b"\0"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, kept)])
        except OSError as error:
            text = f"no lifeline can be made: {error.strerror}"
            hint = "too many descriptors of yours are in flight (unix(7) ETOOMANYREFS): a worker may hold them"
            raise Refused([Refusal("no-lifeline", text, hint)]) from None
        self._fd = ours.detach()
        self.theirs = _away(theirs.detach())

    def spawned(self) -> None:
        """Let go of the container's end, which our own end's queue keeps."""
        os.close(self.theirs)

    def hand_over(self) -> int:
        """Return our own end, which is then the caller's to give away and to close."""
        return self._fd


def _away(low: int) -> int:
    """Return a descriptor above the low numbers: posix_spawn's dup2 onto one of those must be real, to be inherited."""
    high = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 16)
    os.close(low)
    return high


class Channel:
    """Our end; `theirs` is the descriptor to hand to podman, closed here once podman has it."""

    def __init__(self) -> None:
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        ours.setsockopt(_socket.SOL_SOCKET, _socket.SO_PASSCRED, 1)
        self._fd = ours.detach()
        self.theirs = _away(theirs.detach())

    def spawned(self) -> None:
        """Let go of the container's end, so that its last holder's death reads as end of file."""
        os.close(self.theirs)

    @property
    def fd(self) -> int:
        """Our end, to wait on."""
        return self._fd

    def send(self, items: list[tuple[str, str]]) -> None:
        """Send one frame; raises OSError (EPIPE) when nobody is left to read it."""
        body = records.dump(items)
        _write(self._fd, len(body).to_bytes(4, "little") + body)

    def send_with(self, items: list[tuple[str, str]], descriptors: tuple[int, ...]) -> None:
        """Send one frame and open descriptors with its first byte (unix(7) SCM_RIGHTS); raises as `send` does."""
        body = records.dump(items)
        rights = b"".join(fd.to_bytes(4, sys.byteorder) for fd in descriptors)
        ours = _socket.socket(fileno=self._fd)
        try:
            ours.sendmsg([len(body).to_bytes(4, "little")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
        finally:
            ours.detach()
        _write(self._fd, body)

    def sender(self) -> int | None:
        """Wait for what is sent next and return the process id of who sends it, as the kernel has it; None at the end.

        Takes nothing from the queue (unix(7) SCM_CREDENTIALS, recv(2) MSG_PEEK).
        """
        ours = _socket.socket(fileno=self._fd)
        try:
            data, found, _, _ = ours.recvmsg(1, _socket.CMSG_SPACE(_UCRED), _socket.MSG_PEEK)
        finally:
            ours.detach()
        ids = [data for _, kind, data in found if kind == _socket.SCM_CREDENTIALS]
        return int.from_bytes(ids[0][:4], sys.byteorder) if data and ids else None

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


def _write(fd: int, body: bytes) -> None:
    data = memoryview(body)
    while data:
        data = data[os.write(fd, data) :]
