"""Paths of the bench as a card sees them: roots with their identity, and what "inside" means.

"Inside" is a question of device and inode along the ancestors, never of a string prefix, wherever the file system can
answer it: a bind mount or a hard link of a directory has other names. `below` is for resolved paths alone.
"""

import os
import stat

from launcher.value import Value
from oci.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

READ, NOEXEC, WRITE = "read", "noexec", "write"
FLAG = {READ: "--read", NOEXEC: "--read-noexec", WRITE: "--write"}


class Root(Value):
    """One path of the bench inside the card: its access, resolved path, kind and identity (device, inode)."""

    access: str
    path: str
    directory: bool
    device: int
    inode: int


def state_home() -> str:
    """Return the directory that a user's programs keep their state in (XDG base directory specification)."""
    state = os.environ.get("XDG_STATE_HOME", "")
    return state if state.startswith("/") else os.path.expanduser("~/.local/state")


def config_home() -> str:
    """Return the directory that a user's programs are configured in, one that is relative as it stands: podman does."""
    return os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")


def promptly(path: str, flags: int) -> int:
    """Open a file, as open()'s `opener`; raises OSError for a named pipe, whose writer may never come.

    An earlier worker may have left it in the file's place. A pipe that a shell opened is read as ever.
    """
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    place = os.path.realpath(path)
    if stat.S_ISFIFO(os.fstat(fd).st_mode) and os.path.exists(place):
        os.close(fd)
        raise OSError(0, "it is a named pipe", path)
    os.set_blocking(fd, True)
    return fd


def not_absolute(flag: str, text: str) -> Refusal:
    """Return the refusal of a path that is not absolute, with the one that was probably meant.

    What a card may reach must not hang on the directory that it happens to be started from. `~/` reaches us where no
    shell stood between, or it was quoted.
    """
    import shlex  # with re, 5 ms that no run pays which is not refused

    why = f"{flag} {text!r} is relative"
    if text == "~" or text.startswith("~/"):
        why, place = f"{why}: no shell put your HOME in the place of ~", os.path.expanduser("~") + text[1:]
    else:
        place = os.path.abspath(text or ".")
    return Refusal("relative-path", why, f"say {flag} {shlex.quote(place)}")


def misspelt(flag: str, text: str) -> list[Refusal]:
    """Return why a flag's text can be no path of a card, whatever is there: not printable, or not absolute."""
    if unprintable(text):
        return [Refusal("bad-path", f"{flag} {text!r} holds a control character or is not UTF-8")]
    return [] if text.startswith("/") else [not_absolute(flag, text)]


def folder(path: str) -> int:
    """Open a directory step by step, for looking in it (O_PATH); raises OSError when any part is a symbolic link."""
    fd = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        for name in filter(None, path.split("/")):
            above, fd = fd, os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            os.close(above)
    except OSError:
        os.close(fd)
        raise
    return fd


def below(path: str, top: str) -> bool:
    """Return whether a resolved path lies below another, itself excluded."""
    return path.startswith(top + "/")


def ancestors(path: str) -> "Iterator[tuple[int, int]]":
    """Yield (device, inode) of the resolved path and of each directory above it; what cannot be seen is passed over."""
    path = os.path.realpath(path)
    while True:
        try:
            found = os.stat(path)
            yield found.st_dev, found.st_ino
        except OSError:
            pass
        if path == "/":
            return
        path = os.path.dirname(path)


def unprintable(text: str) -> bool:
    """Return whether a path holds a control character or bytes that are not UTF-8 (surrogates, PEP 383)."""
    return any(ord(c) < 0x20 or ord(c) == 0x7F or 0xD800 <= ord(c) <= 0xDFFF for c in text)
