"""Who listens on a Unix socket that has a name in a file system: in our network namespace, and in those we may look at.

Of our own the kernel tells inode and device of each (sock_diag(7), UNIX_DIAG_VFS); of another only the name as it was
bound (proc_net_unix(5)). The names are anybody's to choose: a line of the table that makes no sense is passed over.
"""

import _socket
import os

from launcher.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# include/uapi/linux/netlink.h, sock_diag.h, unix_diag.h
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY = 4, 20
_REQUEST_DUMP, _DONE, _ERROR = 0x301, 3, 2
_SHOW_NAME_VFS, _NAME, _VFS = 0x3, 0, 1
# include/net/tcp_states.h: a datagram socket takes what is sent to it while it is closed, as that calls it
_CLOSE, _LISTEN = 7, 10
# include/linux/net.h: SOCK_DGRAM as /proc/net/unix writes it, and the flag of a socket that listens
_DATAGRAM, _SO_ACCEPTCON = b"0002", 0x10000
_BUFFER = 1 << 16


class Listener(Value):
    """A socket of our network namespace: the name as it was bound, the superblock's device, 32 bits of the inode."""

    name: str
    device: str
    inode: int


def own() -> list[Listener]:
    """Return those of our network namespace; raises OSError where the kernel has no unix_diag."""
    channel = _socket.socket(_socket.AF_NETLINK, _socket.SOCK_RAW | _socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG)
    try:
        channel.sendto(_message(), (0, 0))
        found: list[Listener] = []
        while True:
            data = channel.recv(_BUFFER)
            while len(data) >= 16:
                length, kind = _number(data, 0, 4), _number(data, 4, 2)
                if kind == _DONE:
                    return found
                if kind == _ERROR:
                    number = 2**32 - _number(data, 16, 4)
                    raise OSError(number, f"sock_diag: {os.strerror(number)}")
                found += _listener(data[16:length])
                data = data[_aligned(length) :]
    finally:
        channel.close()


def _message() -> bytes:
    """Return the question: a struct nlmsghdr, and a struct unix_diag_req."""
    states = (1 << _CLOSE) | (1 << _LISTEN)
    fields = (
        *((40, 4), (_SOCK_DIAG_BY_FAMILY, 2), (_REQUEST_DUMP, 2), (1, 4), (0, 4)),
        *((_socket.AF_UNIX, 4), (states, 4), (0, 4), (_SHOW_NAME_VFS, 4), (0, 8)),
    )
    return b"".join(value.to_bytes(size, "little") for value, size in fields)


def _listener(data: bytes) -> list[Listener]:
    """Return the one of a struct unix_diag_msg and its attributes, nothing where it has no file or takes nothing."""
    kind, state = data[1], data[2]
    if state != _LISTEN and kind != _socket.SOCK_DGRAM:
        return []
    attributes: dict[int, bytes] = {}
    data = data[16:]
    while len(data) >= 4:
        length = _number(data, 0, 2)
        attributes[_number(data, 2, 2)] = data[4:length]
        data = data[_aligned(length) :]
    if _VFS not in attributes:
        return []
    inode, device = _number(attributes[_VFS], 0, 4), _number(attributes[_VFS], 4, 4)
    name = os.fsdecode(attributes.get(_NAME, b"").rstrip(b"\0"))
    # The kernel's own dev_t: 20 bits of minor (include/linux/kdev_t.h).
    return [Listener(name=name, device=f"{device >> 20}:{device & 0xFFFFF}", inode=inode)]


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


def _aligned(length: int) -> int:
    """Return where the next header begins; a length that is none still goes forward."""
    return max(length + 3 & ~3, 4)


def namespaces() -> dict[str, list[str]]:
    """Return the processes that we may look at, as in /proc, by their network namespace."""
    found: dict[str, list[str]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                found.setdefault(os.readlink(f"/proc/{name}/ns/net"), []).append(name)
            except OSError:
                continue  # another user's, or gone
    return found


def names(process: str) -> dict[str, int]:
    """Return the names that are listened on in the network namespace of a process, and how many do on each."""
    found: dict[str, int] = {}
    try:
        with open(f"/proc/{process}/net/unix", "rb") as file:
            lines = file.read().split(b"\n")[1:]
    except OSError:
        return found
    for name in _names(lines):
        found[name] = found.get(name, 0) + 1
    return found


def _names(lines: list[bytes]) -> "Iterator[str]":
    for line in lines:
        fields = line.split(None, 7)
        if len(fields) < 8 or fields[7].startswith(b"@"):
            continue
        try:
            listens = int(fields[3], 16) & _SO_ACCEPTCON
        except ValueError:
            continue  # a name with a newline in it
        if listens or fields[4] == _DATAGRAM:
            yield os.fsdecode(fields[7])
