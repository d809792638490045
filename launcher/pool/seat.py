"""The one place of a user's pool: who has it, and what a pool leaves there that was killed.

The rule: whoever has the place holds its directory's lock, and nothing in it is touched without.
"""

import contextlib
import fcntl
import os
import socket

from launcher.life import exposed
from launcher.pool import place
from oci.refusal import Refusal, Refused

_BACKLOG = 64
# Nobody listens there (connect(2), unix(7)), or whoever did has ended. Anything else is a pool.
GONE = (ConnectionRefusedError, FileNotFoundError, ConnectionResetError, BrokenPipeError)


class Seat:
    """The one place of a user's pool: its directory, locked as long as the pool lives, and its socket in there."""

    def __init__(self) -> None:
        """Take it; raises Refused when there is a pool, whether it answers or not. What a dead one left is cleared."""
        self._held = _lock(place.folder())
        self._made: os.stat_result | None = None
        try:
            self.listener = self._listen()
        except BaseException:
            self.leave()
            raise

    def _listen(self) -> socket.socket:
        exposed.refuse(place.folder(), "pool-exposed", "the pool's socket")
        if listens(place.socket()):
            raise _exists()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(place.socket())
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(place.socket())
        self._made = os.lstat(place.socket())
        listener.listen(_BACKLOG)
        return listener

    def close(self) -> None:
        """Let another process have it that was forked meanwhile: the lock is held as long as one of both has it."""
        self.listener.close()
        os.close(self._held)

    def leave(self) -> None:
        """Take away what is ours, and let go. Harmless when said twice."""
        if self._held < 0:
            return
        with contextlib.suppress(OSError):
            if self._made and os.path.samestat(self._made, os.lstat(place.socket())):
                os.unlink(place.socket())
        with contextlib.suppress(OSError):  # somebody else's socket is in it
            os.rmdir(place.folder())
        os.close(self._held)
        self._held = -1


def listens(path: str) -> bool:
    """Return whether somebody listens on a socket, however busy."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
        other.setblocking(False)
        try:
            other.connect(path)
        except BlockingIOError:
            return True  # its queue is full (unix(7))
        except GONE:
            return False
    return True


def _lock(folder: str) -> int:
    """Return the pool's directory, made if need be and locked; raises Refused when another holds it."""
    while True:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        try:
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:  # whoever had it has removed it just now
            continue
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever had it may have removed it.
            if os.path.samestat(os.fstat(held), os.lstat(folder)):
                return held
        except BlockingIOError:
            os.close(held)
            raise _exists() from None
        except FileNotFoundError:
            pass
        os.close(held)


def _exists() -> Refused:
    return Refused([Refusal("pool-exists", "there is a pool already", "card pool stop")])


def clear(*, dry: bool = False) -> str:
    """Take away the socket that a killed pool left, and return its path, "" where there is none; with `dry` only look.

    Raises Refused without a runtime directory.
    """
    path = place.socket()
    if not os.path.lexists(path):
        return ""
    try:
        held = _lock(place.folder())
    except Refused:  # a pool that lives
        return ""
    try:
        if not os.path.lexists(path) or listens(path):
            return ""
        if not dry:
            os.unlink(path)
            with contextlib.suppress(OSError):  # something that is not ours is in it
                os.rmdir(place.folder())
        return path
    finally:
        os.close(held)
