"""Whether who connects to the pool is where the pool is: in its user namespace and its process namespace.

A user id alone says nothing: a card's worker has the caller's own. The rule: what a process id stands for is believed
only while the process that connected is held and lives (pidfd_open(2)), so no other can have got its number.
"""

import errno
import os
import select

from launcher.pool import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket

_SOL_SOCKET, _SO_PEERPIDFD = 1, 77  # asm-generic/socket.h; Linux 6.5
_NAMESPACES = ("user", "pid")


def foreign(connection: "_socket.socket") -> str:
    """Return why the process that connected is not to be heard; "" for one that is."""
    pid, uid = wire.peer(connection)
    if uid != os.getuid():
        return "it is another user's"
    try:
        held = _pidfd(connection, pid)
    except OSError:
        return "who connected is gone"
    try:
        there = [os.readlink(f"/proc/{pid}/ns/{name}") for name in _NAMESPACES]
        gone = select.select([held], [], [], 0)[0]
    except OSError as error:
        return f"its namespaces cannot be seen: {error.strerror}"
    finally:
        os.close(held)
    if gone:
        return "who connected is gone"
    here = [os.readlink(f"/proc/self/ns/{name}") for name in _NAMESPACES]
    return "" if there == here else "it is in another namespace"


def _pidfd(connection: "_socket.socket", pid: int) -> int:
    """Return a pidfd of who connected; raises OSError when it is gone, or is in no namespace that we see into."""
    try:
        return connection.getsockopt(_SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:
            raise
    return os.pidfd_open(pid)
