"""The conversation with the launcher on descriptor 3: frames of records, each behind its length.

A frame is four bytes of little-endian length and that many bytes of records (see oci.records). Whatever is not a
frame, and an end of file, is EOFError or ValueError: stage 2 never goes on without the launcher.
"""

import os
import struct

from oci import records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from launcher.stage2.syscalls import Kernel

REPORT_FD = 3
# The environment of a process is the largest thing that is ever sent, and the kernel bounds that at 6 MiB.
MOST = 8 << 20
_SOCKET = 0o140000
_FORMAT = 0o170000


def usable(descriptor: int) -> bool:
    """Return whether the descriptor is an open socket, as the launcher's is."""
    try:
        return os.fstat(descriptor).st_mode & _FORMAT == _SOCKET
    except OSError:
        return False


def receive(descriptor: int) -> "dict[str, list[str]]":
    """Return the next frame's records; raises EOFError when the other side is gone, ValueError when it is no frame."""
    return _frame(descriptor, _exactly(descriptor, 4))


def receive_with(kernel: "Kernel", descriptor: int) -> "tuple[dict[str, list[str]], list[int]]":
    """Return the next frame's records and the descriptors that came with its first byte; raises as `receive` does."""
    head, descriptors = kernel.recvmsg(descriptor, 4)
    return _frame(descriptor, head + _exactly(descriptor, 4 - len(head)) if head else b""), descriptors


def _frame(descriptor: int, head: bytes) -> "dict[str, list[str]]":
    if not head:
        raise EOFError("the launcher is gone")
    (length,) = struct.unpack("<I", head)
    if length > MOST:
        raise ValueError(f"a frame of {length} bytes")
    return records.load(_exactly(descriptor, length))


def send(descriptor: int, items: "list[tuple[str, str]]") -> None:
    """Send one frame whole; raises OSError when the other side is gone."""
    body = records.dump(items)
    rest = memoryview(struct.pack("<I", len(body)) + body)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _exactly(descriptor: int, length: int) -> bytes:
    parts: list[bytes] = []
    while length:
        part = os.read(descriptor, min(length, 1 << 20))
        if not part:
            raise EOFError("the launcher is gone")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
