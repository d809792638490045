"""Which process: its id, when it started, and of which boot (proc_pid_stat(5), random(4)).

A process id alone is anybody's once its owner is gone. The rule: it is compared with its start time before anything is
said or done about the process, and a signal goes through a pidfd, which cannot come to mean another (pidfd_open(2)).
On the hot path: imports nothing but what the interpreter has.
"""

import os

from launcher.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

_STATE, _START = 0, 19  # /proc/PID/stat's fields 3 and 22, counted from behind the name
_DEAD = (b"Z", b"X", b"x")


class Identity(Value):
    """One process of this boot: its id and its start, in clock ticks since boot."""

    pid: int
    start: int


def boot_id() -> str:
    """Return the id that the kernel drew when it started."""
    with open("/proc/sys/kernel/random/boot_id", "rb") as file:
        return file.read().decode("ascii").strip()


def of(pid: int) -> Identity | None:
    """Return the identity of a process, or None when there is none, or only its zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name may hold spaces and parentheses; the last one ends it.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:  # ENOENT, and ESRCH while it ends
        return None
    if not fields or fields[_STATE] in _DEAD:
        return None
    return Identity(pid=pid, start=int(fields[_START]))


def own() -> Identity:
    """Return the identity of this process."""
    found = of(os.getpid())
    if found is None:
        raise OSError("/proc does not show this process: is it mounted?")
    return found


def alive(identity: Identity) -> bool:
    """Return whether this very process, and not another under its number, still runs."""
    return of(identity.pid) == identity


def hold(identity: Identity) -> int | None:
    """Return a pidfd of this very process, or None when it is gone. What is sent through it reaches no other."""
    try:
        fd = os.pidfd_open(identity.pid)
    except (OSError, OverflowError):  # ESRCH; a number that can be no process's
        return None
    # Looked at after the pidfd was made: who has the number and this start time now has had them all along.
    if alive(identity):
        return fd
    os.close(fd)
    return None


def send(identity: Identity, number: int) -> bool:
    """Send this very process a signal; return False, with nothing sent, when it is gone."""
    fd = hold(identity)
    if fd is None:
        return False
    try:
        _signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    return True
