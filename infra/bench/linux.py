"""The few system calls that the bench needs and Python 3.11 has no function for.

One wrapper per call, with the man page's name; constants keep their uapi names. Imports the standard library only.
"""

import ctypes
import os
import signal

CLONE_NEWNS = 0x00020000  # linux/sched.h
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1  # linux/mount.h
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MS_SHARED = 1 << 20
MNT_DETACH = 2

PR_SET_PDEATHSIG = 1  # linux/prctl.h

_NUMBER_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_ulong,
    ctypes.c_char_p,
)
_libc.prctl.argtypes = (ctypes.c_int, *(ctypes.c_ulong,) * 4)


def _check(result: int, call: str) -> None:
    """Raise the OSError of a call that returned -1, naming the call."""
    if result == -1:
        error = ctypes.get_errno()
        raise OSError(error, f"{call}: {os.strerror(error)}")


def unshare(flags: int) -> None:
    """Leave the namespaces in flags for fresh ones; this process cannot go back.

    See unshare(2).
    """
    _check(_libc.unshare(flags), f"unshare({flags:#x})")


def mount(source: str, target: str, kind: str = "", *, flags: int = 0, data: str = "") -> None:
    """Make source visible at target.

    See mount(2).
    """
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        kind.encode() or None,
        flags,
        os.fsencode(data) or None,
    )
    _check(result, f"mount({source!r}, {target!r}, {kind!r}, {flags:#x}, {data!r})")


def umount2(target: str, flags: int = 0) -> None:
    """Take away the mount at target, see umount(2)."""
    _check(_libc.umount2(os.fsencode(target), flags), f"umount2({target!r})")


def pivot_root(new_root: str, put_old: str) -> None:
    """Make new_root the root of this mount namespace and show the old one at put_old.

    See pivot_root(2); libc has no wrapper, so the number is ours.
    """
    number = _NUMBER_PIVOT_ROOT[os.uname().machine]
    _check(_libc.syscall(number, os.fsencode(new_root), os.fsencode(put_old)), f"pivot_root({new_root!r})")


def die_with_parent() -> None:
    """Ask for SIGKILL at the parent's death, PR_SET_PDEATHSIG of prctl(2). A parent already gone is not noticed."""
    _check(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")


def bind(source: str, target: str, *, readonly: bool = False) -> None:
    """Bind source on target; read-only also means no set-user-id programs and no devices."""
    mount(source, target, flags=MS_BIND)
    if readonly:
        mount("none", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)
