"""What is tried from inside, run from its own source text by the executor's python3, with and without the wall.

Takes a JSON list of attempts on standard input, each a kind and its arguments, and prints a JSON list of texts: what
each found, or an errno's name. Every attempt has a child of its own. Imports the standard library only, and little of
it: that Python may be any.
"""

import ctypes
import errno
import fcntl
import json
import os
import signal
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS = 3
CLONE_NEWUSER = 0x10000000  # include/uapi/linux/sched.h
LINGER_SECONDS = 20


def write(path: str, text: str) -> None:
    """Put a text into a file, made if it is not there."""
    with open(path, "w") as file:
        file.write(text)


def remove(path: str) -> None:
    """Remove a file."""
    os.unlink(path)


def read(path: str) -> str:
    """Return what a file holds."""
    with open(path, errors="replace") as file:
        return file.read()


def variable(name: str) -> str:
    """Return one of this process's variables."""
    return os.environ.get(name, "unset")


def each_process(name: str, start: str) -> str:
    """Return those entries of a file of every readable process that start so: proc(5), `environ` or `cmdline`."""
    found: "list[str]" = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                found += [word for word in read(f"/proc/{entry}/{name}").split("\0") if word.startswith(start)]
            except OSError:
                continue
    return " ".join(found)


def kill(pid: int) -> None:
    """Send the signal that the scene's process counts."""
    os.kill(pid, signal.SIGUSR1)


def new_user_namespace() -> None:
    """Make one, which this process is then in."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWUSER) == -1:
        raise OSError(ctypes.get_errno(), "")


def privileges() -> str:
    """Return the line that says whether executing a file may give privileges: proc_pid_status(5)."""
    rows = read("/proc/self/status").splitlines()
    return next(row for row in rows if row.startswith("NoNewPrivs")).replace("\t", "")


def connect(kind: str, host: str, port: int, token: str) -> str:
    """Reach a place of the network and say a word there; a datagram is followed by what is answered."""
    number = socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM
    family, _, _, _, address = socket.getaddrinfo(host, port, type=number)[0]
    with socket.socket(family, number) as asker:
        asker.settimeout(SECONDS)
        asker.connect(address)
        asker.sendall(bytes.fromhex(token))
        if kind == "udp-asked":
            asker.recv(4096)
    return "reached"


def abstract(name: str, token: str) -> None:
    """Say a word to a socket that has no file: unix(7)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asker:
        asker.connect("\0" + name)
        asker.sendall(bytes.fromhex(token))


def descriptors(count: int) -> None:
    """Open that many descriptors at once."""
    for _ in range(count):
        os.open("/dev/null", os.O_RDONLY)


def linger(lock: str, stop: str) -> None:
    """Leave a process behind that holds a lock, until a file appears or its time is over."""
    mine, theirs = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            stay(lock, stop, theirs)
        os._exit(0)
    os.close(theirs)
    os.read(mine, 1)


def stay(lock: str, stop: str, ready: int) -> None:
    """Hold the lock, with nothing of the command's still open."""
    fd = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.write(ready, b".")
    nothing = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    os.closerange(3, fd)
    os.closerange(fd + 1, 256)
    end = time.monotonic() + LINGER_SECONDS
    while time.monotonic() < end and not os.path.exists(stop):
        time.sleep(0.02)
    os._exit(0)


KINDS: "dict[str, Callable[..., str | None]]" = {
    "write": write,
    "remove": remove,
    "read": read,
    "variable": variable,
    "each_process": each_process,
    "kill": kill,
    "new_user_namespace": new_user_namespace,
    "privileges": privileges,
    "connect": connect,
    "abstract": abstract,
    "descriptors": descriptors,
    "linger": linger,
}


def outcome(kind: str, *words: "str | int") -> str:
    """Return what an attempt comes to."""
    try:
        return KINDS[kind](*words) or "done"
    except socket.timeout:  # noqa: UP041 - before Python 3.10 it is not TimeoutError
        return "timeout"
    except socket.gaierror as error:
        return str(error)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))


def attempt(words: "list[str | int]") -> str:
    """Return what an attempt comes to in a child of its own: some cannot be taken back."""
    mine, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        data = outcome(str(words[0]), *words[1:]).encode(errors="replace")
        while data:
            data = data[os.write(theirs, data) :]
        os._exit(0)
    os.close(theirs)
    with open(mine, "rb") as pipe:
        found = pipe.read().decode(errors="replace")
    os.waitpid(pid, 0)
    return found or "crashed"


if __name__ == "__main__":
    sys.stdout.write(json.dumps([attempt(words) for words in json.load(sys.stdin)]))
