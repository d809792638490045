"""A system call layer that remembers what it was asked, over a tree of names held in memory."""

import errno
import os
import struct
from collections.abc import Iterable

from launcher.stage2.syscalls import Kernel

RESERVED = 10  # the ruleset's descriptor; what is opened comes after


class FakeKernel(Kernel):
    """A kernel of one Landlock ABI. `directories`, `files` and `links` are its tree; `fails` maps calls to errnos."""

    __slots__ = ("abi", "attr", "directories", "events", "fails", "files", "followed", "links", "opened")

    def __init__(
        self,
        abi: int,
        *,
        directories: Iterable[str] = (),
        files: Iterable[str] = (),
        links: dict[str, str] | None = None,
        fails: dict[str, int] | None = None,
    ) -> None:
        self.abi = abi
        self.directories = {"/", *directories}
        self.files = set(files)
        self.links = links or {}
        self.fails = fails or {}
        self.attr = b""
        self.events: list[tuple[str, ...] | tuple[str, str, int] | tuple[str, int, int]] = []
        self.opened: dict[int, str] = {}
        self.followed: set[str] = set()

    def _maybe_fail(self, call: str) -> None:
        if call in self.fails:
            number = self.fails[call]
            raise OSError(number, os.strerror(number), call)

    def landlock_create_ruleset(self, attr: bytes | None, flags: int) -> int:
        """Answer a query, or remember the attribute."""
        self._maybe_fail("landlock_create_ruleset")
        if attr is None:
            return self.abi if flags == 1 else 0b111
        self.attr = attr
        self.events.append(("create",))
        return RESERVED

    def landlock_add_rule(self, ruleset_fd: int, rule_type: int, attr: bytes) -> None:
        """Remember a rule with the path its descriptor was opened for."""
        assert ruleset_fd == RESERVED
        if rule_type == 2:
            access, port = struct.unpack("=QQ", attr)
            self.events.append(("port", port, access))
            return
        assert len(attr) == 12, "struct landlock_path_beneath_attr is packed"
        access, descriptor = struct.unpack("=Qi", attr)
        self.events.append(("path", self.opened[descriptor], access))

    def landlock_restrict_self(self, ruleset_fd: int, flags: int) -> None:
        """Remember that the domain was entered."""
        assert (ruleset_fd, flags) == (RESERVED, 0)
        self._maybe_fail("landlock_restrict_self")
        self.events.append(("restrict",))

    def open(self, path: str, flags: int) -> int:
        """Return a new number for a path of the tree."""
        assert flags & os.O_PATH
        if not flags & os.O_NOFOLLOW:
            self.followed.add(path)
        path = self.realpath(path)
        if path not in self.directories | self.files:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        descriptor = RESERVED + 1 + len(self.opened)
        self.opened[descriptor] = path
        return descriptor

    def close(self, descriptor: int) -> None:
        """Remember what was closed."""
        self.events.append(("close", self.opened.get(descriptor, "ruleset")))

    def is_directory(self, descriptor: int) -> bool:
        """Return what the tree says."""
        return self.opened[descriptor] in self.directories

    def realpath(self, path: str) -> str:
        """Follow the links of the tree."""
        for link, target in self.links.items():
            if path == link or path.startswith(f"{link}/"):
                return target + path[len(link) :]
        return path

    def listdir(self, path: str) -> list[str]:
        """Return the names below a directory, as scandir would."""
        base = "" if path == "/" else self.realpath(path)
        below = (name for name in self.directories | self.files if name.startswith(f"{base}/") and name != "/")
        return sorted({name[len(base) + 1 :].partition("/")[0] for name in below})

    def granted(self) -> list[tuple[str, int]]:
        """Return (path, access) of each path rule in the order it was added."""
        return [(str(event[1]), int(event[2])) for event in self.events if event[0] == "path"]
