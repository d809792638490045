"""One-way calls belong into a child: fork, do the thing, and bring back what it met."""

import ctypes
import os
import pickle
import signal
import traceback
from collections.abc import Callable
from typing import TypeVar

from launcher.stage2.syscalls import Kernel

T = TypeVar("T")
PR_SET_NO_NEW_PRIVS = 38


class Killed(Exception):
    """The child was ended by a signal."""

    def __init__(self, signal_number: int) -> None:
        self.signal = signal.Signals(signal_number)
        super().__init__(self.signal.name)


def in_child(action: Callable[[], T]) -> T:
    """Return what the action returns in a forked child without a terminal; raises Killed, or what the action raised."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        _answer(action, write_end)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as file:
        data = file.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        raise Killed(os.WTERMSIG(status))
    worked, value = pickle.loads(data)  # noqa: S301 - our own child wrote it
    if not worked:
        raise AssertionError(value)
    return value  # type: ignore[no-any-return]


def _answer(action: Callable[[], object], write_end: int) -> None:
    try:
        os.setsid()
        answer = pickle.dumps((True, action()))
    except BaseException:  # noqa: BLE001 - the child must end here, whatever happens
        answer = pickle.dumps((False, traceback.format_exc()))
    os.write(write_end, answer)
    os._exit(0)


def met(action: Callable[[], object]) -> int:
    """Return the errno that an action meets, 0 when it succeeds."""
    try:
        action()
    except OSError as error:
        return error.errno or -1
    return 0


def raw(number: int, *args: int) -> int:
    """Make a system call by number with whole registers; return its errno, 0 when it succeeds."""
    libc = ctypes.CDLL(None, use_errno=True)
    registers = [ctypes.c_ulong(arg & (1 << 64) - 1) for arg in args]
    result = libc.syscall(ctypes.c_long(number), *registers)
    return ctypes.get_errno() if result == -1 else 0


def no_new_privs() -> None:
    """Set no_new_privs on this process."""
    assert ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0) == 0
    assert Kernel().no_new_privs()
