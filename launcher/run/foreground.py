"""podman in the foreground of a verb: it has the terminal and the descriptors, and its exit status is returned.

What the keyboard sends reaches it by itself where it is of our process group; what is sent to us is passed on.
"""

import contextlib
import os
import signal
from collections.abc import Callable

from launcher.fs import searched

_BY_KEYS = (signal.SIGINT, signal.SIGQUIT)
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def start(words: list[str], *, descriptors: tuple[tuple[int, int], ...] = (), apart: bool = False) -> int:
    """Start a program by its absolute path, with (ours, its) descriptors; return its process id.

    `apart` gives it a process group of its own: what the keyboard sends reaches us alone.
    """
    actions = [(os.POSIX_SPAWN_DUP2, ours, its) for ours, its in descriptors]
    heard = [number for number in (*_BY_KEYS, *_PASSED_ON) if signal.getsignal(number) != signal.SIG_IGN]
    group = 0 if apart else os.getpgrp()
    return os.posix_spawn(
        words[0],
        words,
        searched.environment(),
        file_actions=actions,
        setpgroup=group,
        setsigdef=[*heard, signal.SIGPIPE],
    )


def wait(child: int, send: Callable[[int], None], *, by_keys: bool = False) -> int:
    """Wait for a child and return its exit status, 128 + N for a signal; `send` passes a signal on meanwhile.

    `by_keys` is whether those of the keyboard are to be passed on too: only where the child does not get them itself.
    """
    for number in (*_PASSED_ON, *_BY_KEYS):
        if by_keys or number in _PASSED_ON:
            signal.signal(number, lambda heard, _: _sent(send, heard))
        else:
            signal.signal(number, signal.SIG_IGN)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def _sent(send: Callable[[int], None], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        send(number)


def run(words: list[str]) -> int:
    """Start a program and wait for it; what is sent to us is passed on to it."""
    child = start(words)
    return wait(child, lambda number: os.kill(child, number))
