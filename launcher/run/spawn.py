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
HEARD = (*FORWARDED, _signal.SIGTSTP)
_PYTHON_IGNORES = (_signal.SIGPIPE, _signal.SIGXFSZ)


class Child:
    """A podman that was started: its program, process id, environment, and the descriptor its stderr is read from.

    `apart` is whether it has a process group of its own, so that what the terminal sends reaches card-run alone.
    """

    __slots__ = ("apart", "environment", "pid", "program", "stderr")

    def __init__(
        self, program: str, pid: int, stderr: int, *, apart: bool, environment: dict[str, str] | None = None
    ) -> None:
        self.program = program
        self.environment = environment or {}
        self.pid = pid
        self.stderr = stderr
        self.apart = apart


def hold_signals() -> None:
    """Keep the signals that we act on pending until there is a child to act on.

    But for those that our caller ignores, as nohup(1) does: a blocked signal would be kept all the same (signal(7)).
    """
    heard = [number for number in HEARD if _signal.getsignal(number) != _signal.SIG_IGN]
    _signal.pthread_sigmask(_signal.SIG_BLOCK, heard)


def podman(  # noqa: PLR0913 - what a process is started with
    argv: list[str],
    *,
    channel_fd: int,
    lifeline_fd: int,
    environment: dict[str, str],
    stdin: int | None = None,
    apart: bool = False,
) -> Child:
    """Start podman; raises OSError of posix_spawn(3), and then nothing was started.

    `stdin` is its standard input, ours where that is None. `apart` gives it a process group of its own; it cannot read
    our terminal then (setpgid(2), SIGTTIN).
    """
    group = 0 if apart else os.getpgrp()
    read_end, write_end = os.pipe()
    actions = [
        *([(os.POSIX_SPAWN_DUP2, stdin, 0)] if stdin is not None else []),
        (os.POSIX_SPAWN_DUP2, write_end, 2),
        (os.POSIX_SPAWN_DUP2, channel_fd, CONTAINER_FD),
        (os.POSIX_SPAWN_DUP2, lifeline_fd, LIFELINE_FD),
    ]
    try:
        pid = os.posix_spawn(
            argv[0],
            argv,
            environment,
            file_actions=actions,
            setpgroup=group,
            setsigmask=(),
            setsigdef=_PYTHON_IGNORES,
        )
    except OSError:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    return Child(argv[0], pid, read_end, apart=apart, environment=environment)
