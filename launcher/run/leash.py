"""The leash: a process of its own that ends the card should card-run be killed where it cannot act (SIGKILL).

Forked and not started anew: it costs a millisecond, and its memory is card-run's. It waits on a pipe that only card-run
holds; an end of file without a word before it means that card-run is gone, and with it whoever would account for the
card. Everything else it does only then.
"""

import os

from launcher.run import command, directory
from launcher.run.directory import RunDirectory
from launcher.run.spawn import Child

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from typing import NoReturn
else:
    import _signal

_NAME = b"card-leash"  # not card-run's: who kills all of those means the cards too, and this ends them
_PODMAN_SECONDS = 30
_LAST_FD = (1 << 31) - 1


class Leash:
    """Our end of the pipe. Held as long as this process lives."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def let_go(self) -> None:
        """Say that the run is accounted for; the other process then ends and touches nothing."""
        try:
            os.write(self._fd, b".")
        except OSError:
            return  # it is gone already
        finally:
            os.close(self._fd)


def hold(child: Child, run: RunDirectory, environment: dict[str, str]) -> Leash:
    """Fork the process that ends this card when we are gone; only while this process has one thread."""
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        _watch(read_end, child, run, environment)
    os.close(read_end)
    return Leash(write_end)


def _watch(pipe: int, child: Child, run: RunDirectory, environment: dict[str, str]) -> "NoReturn":
    try:
        os.setsid()  # what ends card-run's whole group does not end this
        os.dup2(pipe, 0)
        for fd in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), fd)
        podman = os.dup2(os.pidfd_open(child.pid), 3)
        os.closerange(4, _LAST_FD)  # the plan's lock and the channel among them
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
        with open("/proc/self/comm", "wb") as file:
            file.write(_NAME)
        if not os.read(0, 1):
            _end(podman, child.program, run, environment)
    finally:
        os._exit(0)


def _end(podman: int, program: str, run: RunDirectory, environment: dict[str, str]) -> None:
    """Remove the container, whatever state it is in, wait for podman to be done with it, and clean up."""
    import select

    _remove(program, run, environment)
    # Without a container yet: stage 2 sees the channel's end and the hook no plan, so podman ends by itself.
    select.select([podman], [], [], _PODMAN_SECONDS)
    _remove(program, run, environment)
    # card-run's own lock went with it; whoever has it now does the same as we.
    taken = directory.take(run.path, wait=True)
    if taken is not None:
        from launcher.life import containers, undo

        undo.undo(taken, containers.Containers(program, environment))


def _remove(program: str, run: RunDirectory, environment: dict[str, str]) -> None:
    if run.read(command.CID) is None:
        return
    cid = f"--cidfile={run / command.CID}"
    words = [program, "--remote=false", "rm", "--force", "--ignore", "--time=0", cid]
    os.waitpid(os.posix_spawn(program, words, environment), 0)
