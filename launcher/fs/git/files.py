"""What git's own files say: where a `.git` file leads, and which submodules an index has. Pure reading.

The rule: an earlier worker may have written each of them. Nothing but a regular file is opened and no link at its end
is followed, so nothing blocks; sizes and offsets in a file are not believed; and what is too large is said to be.
"""

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

CONFIG_LIMIT = 1 << 20
INDEX_LIMIT = 256 << 20
_PATH_LIMIT = 4096  # include/uapi/linux/limits.h: PATH_MAX
# gitformat-index(5): an entry's fields have these offsets, behind them an object's name of 20 or 32 bytes.
_HEADER, _MODE, _OBJECT = 12, 24, 40
_OBJECT_SIZES = (20, 32)
_LENGTH, _EXTENDED = 0xFFF, 0x4000
_GITLINK = (0o160000).to_bytes(4, "big")
_WITH_PREFIXES = 4  # the version in which a name is told as its difference from the one before


class TooMuch(Exception):
    """There is more at a path than is looked at; `why` says of what, behind the path."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why


def read(path: str, limit: int = CONFIG_LIMIT) -> bytes:
    """Return a regular file's bytes, none for anything else: a pipe would never answer; raises TooMuch."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            return b""
        if found.st_size > limit:
            raise TooMuch(path, f"is larger than {limit >> 20} MiB")
        return os.read(fd, found.st_size)
    finally:
        os.close(fd)


def led(path: str, prefix: str = "") -> str:
    """Return where a file leads that holds a path, as it says it, from its own folder on; "" when it leads nowhere.

    That is `.git` with "gitdir: ", `gitdir` and `commondir` (gitrepository-layout(5)). Raises TooMuch.
    """
    text = os.fsdecode(read(path))
    if not text.startswith(prefix):
        return ""
    named = text.removeprefix(prefix).rstrip("\r\n")
    return os.path.join(os.path.dirname(path), named) if named and "\0" not in named else ""


def gitlinks(path: str) -> list[str]:
    """Return the paths of the submodules in an index, and it may be some that are none; raises TooMuch.

    They are looked for by their mode, which costs a tenth of reading every entry.
    """
    data = read(path, INDEX_LIMIT)
    if not data.startswith(b"DIRC") or _GITLINK not in data:
        return []
    version = int.from_bytes(data[4:8], "big")
    find = _decoded if version == _WITH_PREFIXES else _marked
    found = (name for size in _OBJECT_SIZES for name in find(data, size))
    return list(dict.fromkeys(os.fsdecode(name) for name in found if name and not name.startswith(b"/")))


def _marked(data: bytes, size: int) -> "Iterator[bytes]":
    at = data.find(_GITLINK, _HEADER)
    while at >= 0:
        flags = at - _MODE + _OBJECT + size
        said = int.from_bytes(data[flags : flags + 2], "big")
        start = flags + (4 if said & _EXTENDED else 2)
        end = data.find(b"\0", start, start + _PATH_LIMIT)
        if end - start == said & _LENGTH or end - start >= _LENGTH == said & _LENGTH:
            yield data[start:end]
        at = data.find(_GITLINK, at + 1)


def _decoded(data: bytes, size: int) -> "Iterator[bytes]":
    """Yield what an index of version 4 has, entry by entry; an entry that is none ends it."""
    at, name = _HEADER, b""
    try:
        while True:
            mode = data[at + _MODE : at + _MODE + len(_GITLINK)]
            flags = at + _OBJECT + size
            at = flags + (4 if data[flags] & (_EXTENDED >> 8) else 2)
            drop, at = _number(data, at)
            end = data.index(b"\0", at, at + _PATH_LIMIT)
            name, at = name[: max(0, len(name) - drop)] + data[at:end], end + 1
            if mode == _GITLINK:
                yield name
    except (IndexError, ValueError):
        return


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable width (gitformat-pack(5), "OFS_DELTA") and where it ends."""
    value = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) | (data[at] & 0x7F)
    return value, at + 1
