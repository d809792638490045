"""What a probe tries from inside, run from its own source text by the image's python3: in a card, and without walls.

Takes a JSON list of attempts, each a kind and its arguments, and prints a JSON list of results: `ok`, a value, an
errno's name, `timeout`, or the signal that ended the attempt. Every attempt has a child of its own, and undoes what it
did. Imports the standard library only, and little of it: the image's Python may be any.
"""

import ctypes
import errno
import json
import os
import signal
import socket
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

TIMEOUT = 4
PTRACE_SEIZE, PTRACE_DETACH = 0x4206, 17  # include/uapi/linux/ptrace.h
QUERY = 0x0100  # RFC 1035 section 4.1.1: a plain query that asks for recursion
CHUNK = 65536
libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int) -> int:
    """Return a C call's result; raises OSError when it is -1."""
    if result == -1:
        raise OSError(ctypes.get_errno(), "")
    return result


def syscall(number: int, *words: int) -> None:
    """Make a call by its number."""
    libc.syscall.restype = ctypes.c_long
    checked(libc.syscall(*[ctypes.c_long(word) for word in (number, *words)]))


def libc_call(name: str, *words: int) -> None:
    """Make a call by its name in libc."""
    checked(getattr(libc, name)(*[ctypes.c_ulong(word) for word in words]))


def prctl(option: int, argument: int) -> int:
    """Return what the kernel answers about this process."""
    return checked(libc.prctl(option, *[ctypes.c_ulong(word) for word in (argument, 0, 0, 0)]))


def child() -> int:
    """Return a child that waits to be ended."""
    pid = os.fork()
    if pid == 0:
        signal.pause()
    return pid


def end(pid: int) -> None:
    """End a child."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def trace() -> None:
    """Trace a child, which Yama allows too, and let go of it."""
    pid = child()
    try:
        checked(libc.ptrace(PTRACE_SEIZE, pid, None, None))
        libc.ptrace(PTRACE_DETACH, pid, None, None)
    finally:
        end(pid)


def peek() -> None:
    """Read a child's memory: the same address as ours, which fork(2) gave it."""
    target = ctypes.create_string_buffer(8)
    address = ctypes.addressof(target)
    vector = (ctypes.c_size_t * 2)(address, 8)
    pid = child()
    try:
        checked(libc.process_vm_readv(pid, vector, ctypes.c_ulong(1), vector, ctypes.c_ulong(1), ctypes.c_ulong(0)))
    finally:
        end(pid)


def read(path: str) -> None:
    """Read one byte."""
    fd = os.open(path, os.O_RDONLY)
    os.read(fd, 1)
    os.close(fd)


def listing(path: str) -> None:
    """List a directory."""
    os.listdir(path)


def write(path: str) -> None:
    """Open an existing file for writing, and write nothing."""
    os.close(os.open(path, os.O_WRONLY))


def create(path: str) -> None:
    """Make a file and remove it."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    os.unlink(path)


def rename(old: str, new: str) -> None:
    """Rename, and rename back."""
    os.rename(old, new)
    os.rename(new, old)


def chmod(path: str) -> None:
    """Set the mode that a file already has."""
    os.chmod(path, 0o600)


def execute(path: str) -> None:
    """Execute a file; one that is no program is ENOEXEC to a kernel that would have executed it."""
    os.execv(path, [path])  # noqa: S606 - the call itself is what is tried


def fill(path: str, size: int) -> None:
    """Write that many bytes to a new file and remove it."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        for _ in range(size // CHUNK):
            os.write(fd, bytes(CHUNK))
    finally:
        os.unlink(path)


def descriptors(count: int) -> None:
    """Open that many descriptors at once."""
    for _ in range(count):
        os.open("/dev/null", os.O_RDONLY)


def variable(name: str) -> str:
    """Say whether a variable is set."""
    return "set" if name in os.environ else "unset"


def pinned(name: str) -> str:
    """Return the address that hosts(5) has for a name."""
    with open("/etc/hosts") as file:
        rows = [line.split() for line in file]
    return next(row[0] for row in rows if name in row[1:])


def server() -> str:
    """Return the name server of resolv.conf(5)."""
    with open("/etc/resolv.conf") as file:
        rows = [line.split() for line in file]
    return next(row[1] for row in rows if row[:1] == ["nameserver"])


def connected(kind: int, address: str, port: int) -> socket.socket:
    """Return a connected socket of the address's family."""
    asker = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
    asker.settimeout(TIMEOUT)
    asker.connect((address, port))
    return asker


def tcp(name: str, port: int) -> None:
    """Open a TCP connection to the address of a listed name."""
    connected(socket.SOCK_STREAM, pinned(name), port).close()


def udp(place: str, port: int) -> None:
    """Send a datagram: to an address, or to that of a listed name. Nobody needs to answer."""
    address = place if place[:1].isdigit() or ":" in place else pinned(place)
    connected(socket.SOCK_DGRAM, address, port).send(b"\0")


def question(name: str, kind: int) -> None:
    """Ask the container's name server for a name, and wait for an answer, whatever it says (RFC 1035)."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    asker = connected(socket.SOCK_DGRAM, server(), 53)
    asker.send(struct.pack(">6H", 7, QUERY, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">2H", kind, 1))
    asker.recv(CHUNK)


KINDS: "dict[str, Callable[..., object]]" = {
    "syscall": syscall,
    "libc": libc_call,
    "prctl": prctl,
    "trace": trace,
    "peek": peek,
    "read": read,
    "list": listing,
    "write": write,
    "create": create,
    "rename": rename,
    "chmod": chmod,
    "execute": execute,
    "fill": fill,
    "descriptors": descriptors,
    "variable": variable,
    "tcp": tcp,
    "udp": udp,
    "question": question,
}


def outcome(kind: str, *words: "str | int") -> str:
    """Return what an attempt comes to."""
    try:
        found = KINDS[kind](*words)
    except socket.timeout:  # noqa: UP041 - before Python 3.10 it is not TimeoutError
        return "timeout"
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "ok" if found is None else str(found)


def attempt(words: "list[str | int]") -> str:
    """Return what an attempt comes to in a child of its own: some cannot be taken back."""
    mine, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(theirs, outcome(str(words[0]), *words[1:]).encode())
        os._exit(0)
    os.close(theirs)
    with open(mine, "rb") as pipe:
        found = pipe.read().decode()
    status = os.waitpid(pid, 0)[1]
    return found or (signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "crashed")


if __name__ == "__main__":
    sys.stdout.write(json.dumps([attempt(words) for words in json.loads(sys.argv[1])]))
