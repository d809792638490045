"""Starting podman: posix_spawn(3), with the container's ends of both sockets as its descriptors 3 and 4.

On the hot path, so `_signal` and not `signal`, whose enums cost 3 ms.
"""

import os

from launcher.run.channel import CONTAINER_FD, LIFELINE_FD

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

FORWARDED = (
    _signal.SIGTERM,
    _signal.SIGINT,
    _signal.SIGHUP,
    _signal.SIGQUIT,
    _signal.SIGUSR1,
    _signal.SIGUSR2,
)
_PYTHON_IGNORES = (_signal.SIGPIPE, _signal.SIGXFSZ)


class Child:
    """A podman that was started: its program, process id, and the descriptor that its stderr is read from."""

    __slots__ = ("pid", "program", "stderr")

    def __init__(self, program: str, pid: int, stderr: int) -> None:
        self.program = program
        self.pid = pid
        self.stderr = stderr


def hold_signals() -> None:
    """Keep the signals that end a run pending until there is a child to forward them to."""
    _signal.pthread_sigmask(_signal.SIG_BLOCK, FORWARDED)


def podman(argv: list[str], *, channel_fd: int, lifeline_fd: int, environment: dict[str, str]) -> Child:
    """Start podman; raises OSError of posix_spawn(3), and then nothing was started."""
    read_end, write_end = os.pipe()
    actions = [
        (os.POSIX_SPAWN_DUP2, write_end, 2),
        (os.POSIX_SPAWN_DUP2, channel_fd, CONTAINER_FD),
        (os.POSIX_SPAWN_DUP2, lifeline_fd, LIFELINE_FD),
    ]
    try:
        pid = os.posix_spawn(argv[0], argv, environment, file_actions=actions, setsigmask=(), setsigdef=_PYTHON_IGNORES)
    except OSError:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    return Child(argv[0], pid, read_end)
