"""podman in the foreground of a verb: it has the terminal and the descriptors, and its exit status is returned.

Where podman makes our terminal raw it is of our process group, and no key is a signal. Elsewhere it is apart, in a
group of its own: what the keyboard sends reaches us alone. What the caller ignores stays ignored.
"""

import contextlib
import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import NamedTuple

from launcher.fs import searched
from launcher.run import perform

_HEARD = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP)


class Child(NamedTuple):
    """A podman that was started: its process id, and whether it has a process group of its own."""

    pid: int
    apart: bool


def start(words: list[str], *, interactive: bool, tty: bool, descriptors: tuple[tuple[int, int], ...] = ()) -> Child:
    """Start podman by its absolute path, with (ours, its) descriptors; only while this process has one thread.

    `interactive` and `tty` are whether what it attaches to has an input of ours, and a terminal.
    """
    stdin = perform.stand_in(interactive=interactive, tty=tty)
    apart = not (interactive and tty and os.isatty(0))
    given = [*descriptors, *([(stdin.theirs, 0)] if stdin else [])]
    pid = os.posix_spawn(
        words[0],
        words,
        searched.environment(),
        file_actions=[(os.POSIX_SPAWN_DUP2, ours, its) for ours, its in given],
        setpgroup=0 if apart else os.getpgrp(),
        setsigmask=(),
        setsigdef=[*_heard(), signal.SIGPIPE],
    )
    if stdin is not None:
        stdin.spawned()
        stdin.serve(lambda: _kill(pid, signal.SIGWINCH))
    return Child(pid, apart)


def wait(child: Child, send: Callable[[int], None]) -> int:
    """Wait for a child and return its exit status, 128 + N for a signal; `send` is given what is sent to us meanwhile.

    Ctrl-Z stops a child that is apart together with us, and it goes on when we do.
    """
    before = {number: signal.getsignal(number) for number in _heard()}

    def hear(number: int, _: FrameType | None) -> None:
        if number == signal.SIGTSTP:
            _suspend(child)
        else:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                send(number)

    for number in before:
        signal.signal(number, hear)
    try:
        code = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


def end(child: Child) -> None:
    """End the child, and nothing that it is attached to: it must pass no signals on."""
    _kill(child.pid, signal.SIGTERM)


def _heard() -> list[signal.Signals]:
    return [number for number in _HEARD if signal.getsignal(number) != signal.SIG_IGN]


def _suspend(child: Child) -> None:
    if child.apart:
        _kill(child.pid, signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGSTOP)
    if child.apart:
        _kill(child.pid, signal.SIGCONT)


def _kill(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
