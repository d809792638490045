"""The kernel as stage 2 uses it: one wrapper per system call, under the manual page's name.

Every wrapper returns the call's result or raises OSError whose filename is the call's name, so that a refusal can say
which call failed. `Kernel` is the whole interface: tests hand its users another object with the same methods.
Numbers are only used for calls that libc does not wrap and that have one number on every architecture.
"""

import os
import struct

from oci import native

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal  # the C module below `signal`, which would cost the import of `enum`

# include/uapi/asm-generic/unistd.h; one number everywhere since the tables were unified at 424
NR_CLOSE_RANGE = 436
NR_LANDLOCK_CREATE_RULESET = 444
NR_LANDLOCK_ADD_RULE = 445
NR_LANDLOCK_RESTRICT_SELF = 446

# include/uapi/linux/prctl.h and include/uapi/linux/seccomp.h
PR_SET_SECCOMP = 22
PR_GET_NO_NEW_PRIVS = 39
SECCOMP_MODE_FILTER = 2

# include/uapi/asm-generic/fcntl.h; the same on x86_64 and aarch64
F_GETFL = 3
F_SETFL = 4
F_SETOWN = 8
F_GETOWN = 9
F_SETSIG = 10
F_GETSIG = 11
O_ASYNC = 0o20000

# include/linux/socket.h and include/linux/net.h
SOL_SOCKET = 1
SCM_RIGHTS = 1
MSG_CMSG_CLOEXEC = 0x40000000
CMSG_HEADER = 16  # sizeof(struct cmsghdr) with 64-bit longs
CONTROL_SIZE = 64
MSG_PEEK = 2
MSG_DONTWAIT = 0x40
AF_INET = 2
AF_INET6 = 10
SOCK_DGRAM_CLOEXEC = 2 | 0o2000000

_int, _long, _ptr, _size, _bytes = native.c_int, native.c_long, native.c_void_p, native.c_size_t, native.c_char_p

# syscall(2) is variadic: every integer is passed as long, so that no half of a register is left undefined
_create_ruleset = native.function("syscall", _long, _long, _bytes, _size, _long)
_add_rule = native.function("syscall", _long, _long, _long, _long, _bytes, _long)
_three = native.function("syscall", _long, _long, _long, _long, _long)
_prctl = native.function("prctl", _int, _int, _long, _long, _long, _long)
_prlimit = native.function("prlimit", _int, _int, _int, _bytes, _ptr)
_unshare = native.function("unshare", _int, _int)
_socket = native.function("socket", _int, _int, _int, _int)
_sendto = native.function("sendto", _long, _int, _bytes, _size, _int, _bytes, _int)
_fcntl = native.function("fcntl", _int, _int, _int, _long)
_recv = native.function("recv", _long, _int, _ptr, _size, _int)
_inet_pton = native.function("inet_pton", _int, _int, _bytes, _ptr)


def _checked(result: int, call: str) -> int:
    """Return a call's result, or raise its errno as OSError with the call's name in the filename's place."""
    if result == -1:
        number = native.get_errno()
        raise OSError(number, os.strerror(number), call)
    return result


class Kernel:
    """The calls stage 2 makes. No state: an object only so that a test can pass another one."""

    __slots__ = ()

    def landlock_create_ruleset(self, attr: "bytes | None", flags: int) -> int:
        """Return a ruleset descriptor (close-on-exec), or the ABI or errata asked for by `flags` with no attr."""
        size = len(attr) if attr is not None else 0
        return _checked(_create_ruleset(NR_LANDLOCK_CREATE_RULESET, attr, size, flags), "landlock_create_ruleset")

    def landlock_add_rule(self, ruleset_fd: int, rule_type: int, attr: bytes) -> None:
        """Add one rule of the given type to a ruleset."""
        _checked(_add_rule(NR_LANDLOCK_ADD_RULE, ruleset_fd, rule_type, attr, 0), "landlock_add_rule")

    def landlock_restrict_self(self, ruleset_fd: int, flags: int) -> None:
        """Enforce the ruleset on the calling thread. Cannot be undone."""
        _checked(_three(NR_LANDLOCK_RESTRICT_SELF, ruleset_fd, flags, 0), "landlock_restrict_self")

    def close_range(self, first: int, last: int) -> None:
        """Close every descriptor from first to last, both included."""
        _checked(_three(NR_CLOSE_RANGE, first, last, 0), "close_range")

    def no_new_privs(self) -> bool:
        """Return whether execve can no longer grant privileges, see PR_GET_NO_NEW_PRIVS in prctl(2)."""
        return _checked(_prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), "prctl(PR_GET_NO_NEW_PRIVS)") == 1

    def seccomp(self, program: bytes) -> None:
        """Load a filter of struct sock_filter items; needs no_new_privs. Cannot be undone."""
        # prctl(2) rather than seccomp(2): the same load, and no number that differs between architectures
        buffer = native.memory(program)
        fprog = native.memory(struct.pack("@HP", len(program) // 8, native.address(buffer)))
        result = _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, native.address(fprog), 0, 0)
        _checked(result, "prctl(PR_SET_SECCOMP)")

    def prlimit(self, resource: int, soft: int, hard: int) -> None:
        """Set a resource limit of this process."""
        _checked(_prlimit(0, resource, struct.pack("=QQ", soft, hard), None), "prlimit")

    def unshare(self, flags: int) -> None:
        """Leave namespaces. With 0 it does nothing, which makes it a harmless probe."""
        _checked(_unshare(flags), "unshare")

    def fcntl(self, descriptor: int, command: int, argument: int) -> int:
        """Return what a command on a descriptor that takes an integer returns."""
        return _checked(_fcntl(descriptor, command, argument), "fcntl")

    def connected(self, descriptor: int) -> bool:
        """Return whether the other end of a stream socket, which sends nothing, is still there."""
        byte = native.memory(1)
        try:
            return _checked(_recv(descriptor, byte, 1, MSG_PEEK | MSG_DONTWAIT), "recv") > 0
        except BlockingIOError:
            return True
        except ConnectionResetError:
            return False

    def recvmsg(self, descriptor: int, size: int) -> "tuple[bytes, list[int]]":
        """Return up to `size` bytes of a socket and the descriptors that came with them, close-on-exec."""
        # Only a warm card receives descriptors: the prototype is made here.
        recvmsg = native.function("recvmsg", _long, _int, _ptr, _int)
        data, control = native.memory(size), native.memory(CONTROL_SIZE)
        vector = native.memory(struct.pack("@PN", native.address(data), size))
        words = (None, 0, native.address(vector), 1, native.address(control), CONTROL_SIZE, 0)
        header = native.memory(struct.pack("@PIPNPNi", *(word or 0 for word in words)))
        count = _checked(recvmsg(descriptor, header, MSG_CMSG_CLOEXEC), "recvmsg")
        # struct msghdr and struct cmsghdr, bits/socket.h: the kernel has put the used size of control in its place
        (used,) = struct.unpack_from("@N", header.raw, struct.calcsize("@PIPNP"))
        if used < CMSG_HEADER:
            return data.raw[:count], []
        length, level, kind = struct.unpack_from("@Nii", control.raw)
        rights = (level, kind) == (SOL_SOCKET, SCM_RIGHTS)
        number = (min(length, used) - CMSG_HEADER) // 4 if rights else 0
        return data.raw[:count], list(struct.unpack_from(f"={number}i", control.raw, CMSG_HEADER))

    def send_datagram(self, family: int, address: str, port: int) -> None:
        """Send one empty UDP datagram to an address in text form; raises ValueError when it is not one."""
        packed = native.memory(16)
        if _inet_pton(family, address.encode(), packed) != 1:
            raise ValueError(f"not an address: {address!r}")
        if family == AF_INET:
            name = struct.pack("=H", family) + struct.pack("!H", port) + packed.raw[:4] + bytes(8)
        else:
            name = struct.pack("=H", family) + struct.pack("!HI", port, 0) + packed.raw + bytes(4)
        descriptor = _checked(_socket(family, SOCK_DGRAM_CLOEXEC, 0), "socket")
        try:
            _checked(_sendto(descriptor, b"", 0, 0, name, len(name)), "sendto")
        finally:
            os.close(descriptor)

    def default_signals(self) -> None:
        """Give every signal its default action and unblock all: Python ignores some, and execve keeps that."""
        for number in _signal.valid_signals():
            # None: those that libc keeps for itself; KILL and STOP are at their default already
            if _signal.getsignal(number) not in {None, _signal.SIG_DFL}:
                _signal.signal(number, _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())

    def interruptible(self) -> None:
        """Let SIGINT end this process as it ends any other, instead of raising KeyboardInterrupt."""
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

    def open(self, path: str, flags: int) -> int:
        """Return a new descriptor, close-on-exec; it may create a file for its owner alone."""
        return os.open(path, flags | os.O_CLOEXEC, 0o600)

    def close(self, descriptor: int) -> None:
        """Give a descriptor back."""
        os.close(descriptor)

    def is_directory(self, descriptor: int) -> bool:
        """Return whether an open descriptor is a directory, see fstat(2)."""
        return os.fstat(descriptor).st_mode & 0o170000 == 0o040000

    def mount_flags(self, path: str) -> int:
        """Return the flags of the mount that a path is on, as ST_ bits, see statvfs(3)."""
        return os.statvfs(path).f_flag

    def identity(self, path: str) -> "tuple[int, int] | None":
        """Return the device and inode of a path, no link followed at its end; None when it is not there."""
        try:
            found = os.lstat(path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def size(self, path: str) -> int:
        """Return the size in bytes of the file system that a path is on, see statvfs(3)."""
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize

    def readlink(self, path: str) -> str:
        """Return where a symbolic link points."""
        return os.readlink(path)

    def realpath(self, path: str) -> str:
        """Return the path with every symbolic link followed; a missing tail stays as it is."""
        return os.path.realpath(path)

    def listdir(self, path: str) -> "list[str]":
        """Return the names in a directory that are no symbolic links, sorted."""
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if not entry.is_symlink())

    def read_file(self, path: str) -> bytes:
        """Return a whole file, /proc's included."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts: list[bytes] = []
            while part := os.read(descriptor, 65536):
                parts.append(part)
            return b"".join(parts)
        finally:
            os.close(descriptor)
