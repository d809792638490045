"""Network namespaces: enter one, pin one by a bind mount, undo the pin (setns(2), mount(2), umount2(2)).

Every call here changes the calling process or the mount table and nothing else; the callers decide when. Kernel
failures are OSError and name the call. Python has no mount, and setns only from 3.12. The calls are made with what
`ctypes` itself is made of: its own start-up defines types for everything, 2 ms of the hook's 25.
"""

import _ctypes
import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ctypes import c_char_p, c_int, c_ulong
else:

    class c_int(_ctypes._SimpleCData):  # noqa: D101, N801, SLF001 - ctypes' own names and ways
        _type_ = "i"

    class c_ulong(_ctypes._SimpleCData):  # noqa: D101, N801, SLF001
        _type_ = "L"

    class c_char_p(_ctypes._SimpleCData):  # noqa: D101, N801, SLF001
        _type_ = "z"


# linux/sched.h, linux/mount.h, linux/fs.h
CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
MS_BIND = 4096
MNT_DETACH = 2
UMOUNT_NOFOLLOW = 8


_FLAGS = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO


class _Setns(_ctypes.CFuncPtr):
    _flags_, _restype_, _argtypes_ = _FLAGS, c_int, (c_int, c_int)


class _Mount(_ctypes.CFuncPtr):
    _flags_, _restype_, _argtypes_ = _FLAGS, c_int, (c_char_p, c_char_p, c_char_p, c_ulong, c_char_p)


class _Umount2(_ctypes.CFuncPtr):
    _flags_, _restype_, _argtypes_ = _FLAGS, c_int, (c_char_p, c_int)


_LIBC = _ctypes.dlopen(None, os.RTLD_NOW)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
_SETNS = _Setns(_ctypes.dlsym(_LIBC, "setns"))
_MOUNT = _Mount(_ctypes.dlsym(_LIBC, "mount"))
_UMOUNT2 = _Umount2(_ctypes.dlsym(_LIBC, "umount2"))


def setns(fd: int, *, kind: int = CLONE_NEWNET) -> None:
    """Move this (single-threaded) process into the network (or other) namespace of `fd`. There is no way back."""
    _check("setns", _SETNS(fd, kind))


def bind(source: str, target: str) -> None:
    """Bind-mount source over target, which must exist."""
    _check("mount", _MOUNT(os.fsencode(source), os.fsencode(target), None, MS_BIND, None))


def unmount(target: str) -> bool:
    """Unmount what is mounted on target, never following a link; return whether anything was (EINVAL, ENOENT: no)."""
    try:
        _check("umount2", _UMOUNT2(os.fsencode(target), MNT_DETACH | UMOUNT_NOFOLLOW))
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return False
        raise
    return True


def _check(call: str, result: int) -> None:
    if result < 0:
        number = _ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def open_of(pid: int) -> int:
    """Return an open descriptor of the network namespace of a process."""
    return os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def inode(fd: int) -> int:
    """Return the namespace's inode number, its identity while any reference to it is held (namespaces(7))."""
    return os.fstat(fd).st_ino


def is_own(fd: int) -> bool:
    """Whether the namespace is the one this process is in."""
    own = os.stat("/proc/self/ns/net")
    there = os.fstat(fd)
    return (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino)


def pin(fd: int, *, directory: int, name: str) -> None:
    """Keep the namespace under a name in a directory (a descriptor) after its last process is gone.

    Raises OSError: FileExistsError when the name is taken. On failure nothing is left under the name.
    """
    os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=directory))
    try:
        bind(f"/proc/self/fd/{fd}", f"/proc/self/fd/{directory}/{name}")
    except OSError:
        os.unlink(name, dir_fd=directory)
        raise


def unpin(*, directory: int, name: str) -> None:
    """Undo `pin`, however much of it there is; raises OSError only when the name is still there afterwards."""
    while unmount(f"/proc/self/fd/{directory}/{name}"):
        pass
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        return


def open_pin(*, directory: int, name: str) -> "int | None":
    """Return a descriptor of a pinned namespace, or None when there is nothing under the name, or something else."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=directory)
    except OSError:  # ENOENT, ELOOP
        return None
    # Every namespace file is on the kernel's one nsfs; an unmounted pin is a plain file on the run directory's own.
    if os.fstat(fd).st_dev == os.stat("/proc/self/ns/net").st_dev:
        return fd
    os.close(fd)
    return None
