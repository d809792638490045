"""A hook's work done for the process that the runtime started: by one that runs already, with everything at hand.

The client (client.sh) is the hook as the runtime knows it. Whoever serves it takes the client's standard input, enters
the client's user and mount namespaces, and is from then on what the ordinary hook would have been there: the same code
runs. The rule: everything of the client's is reached through one descriptor of /proc/PID, opened before anything is
believed, so a process that ended and another under its number cannot be mixed up (proc(5)).
Standard library and this package only.
"""

import os

from hooks import libnft, netns, nft, poststop, prestart, rundir
from hooks.prestart import Ready
from oci.refusal import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from hooks.prestart import Told

PRESTART = "prestart"
KEEPER = "keeper"  # who did it, in the receipt
_STATE = "fd/5"  # where client.sh keeps the state's pipe


class NotOurs(Exception):
    """What asked is not the hook of this run."""


class Client:
    """The process that asked: its /proc directory."""

    __slots__ = ("_fd",)

    def __init__(self, pid: int, command: "tuple[str, ...]") -> None:
        """Open it; raises NotOurs unless it is this user's and was started with exactly this command."""
        self._fd = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if os.fstat(self._fd).st_uid != os.geteuid():
            raise NotOurs(f"process {pid} is another user's")
        if self._read("cmdline") != b"".join(os.fsencode(word) + b"\0" for word in command):
            raise NotOurs(f"process {pid} is not this run's hook")

    def open(self, name: str, flags: int = os.O_RDONLY) -> int:
        """Return a descriptor of one of its files; raises ProcessLookupError when the process has ended."""
        return os.open(name, flags | os.O_CLOEXEC, dir_fd=self._fd)

    def waits(self) -> bool:
        """Return whether the process is alive, and not a zombie (proc_pid_stat(5))."""
        try:
            return self._read("stat").rpartition(b")")[2].split()[0] not in (b"Z", b"X")
        except OSError:
            return False

    def _read(self, name: str) -> bytes:
        fd = self.open(name)
        try:
            return os.read(fd, 1 << 17)
        finally:
            os.close(fd)


def read_ahead(path: str) -> "Ready | None":
    """Return what the run's prestart can do before it is asked; None when that fails: then the hook itself says why."""
    try:
        return Ready(rundir.open_at(path))
    except (Refused, OSError):
        return None


def tool() -> "Callable[[], Told]":
    """Return what makes contexts of nft's library, loaded now; where there is no such library, the program's start.

    Started for each namespace, the program is most of what a hook's own work takes.
    """
    try:
        return libnft.Library().context
    except (Refused, OSError):
        return nft.Nft


def serve(verb: str, client: Client, ready: "Ready | None", tool: "Callable[[], Told]") -> int:
    """Become the client's hook and return the exit status; only in a process made for it, of one thread."""
    state = client.open(_STATE)
    os.dup2(client.open("fd/2", os.O_WRONLY | os.O_APPEND), 2)
    spaces = [(client.open("ns/user"), netns.CLONE_NEWUSER), (client.open("ns/mnt"), netns.CLONE_NEWNS)]
    for fd, kind in spaces:
        netns.setns(fd, kind=kind)
    if verb == PRESTART:
        return prestart.run(state, ready, prestart.Means(KEEPER, tool=tool, wanted=client.waits))
    return poststop.run(state, tool=tool)
