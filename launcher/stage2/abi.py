"""Landlock's ABI as data: one row per version, with the kernel's own names.

What a kernel can check grows with its ABI, and an access that a ruleset does not handle is not checked at all: the
handled set is the whole set of the row. From include/uapi/linux/landlock.h; see also landlock(7). Imports nothing.
"""

FS = (
    "EXECUTE",
    "WRITE_FILE",
    "READ_FILE",
    "READ_DIR",
    "REMOVE_DIR",
    "REMOVE_FILE",
    "MAKE_CHAR",
    "MAKE_DIR",
    "MAKE_REG",
    "MAKE_SOCK",
    "MAKE_FIFO",
    "MAKE_BLOCK",
    "MAKE_SYM",
    "REFER",
    "TRUNCATE",
    "IOCTL_DEV",
    "RESOLVE_UNIX",
)
NET = ("BIND_TCP", "CONNECT_TCP", "BIND_UDP", "CONNECT_SEND_UDP")
SCOPE = ("ABSTRACT_UNIX_SOCKET", "SIGNAL")
RESTRICT = ("LOG_SAME_EXEC_OFF", "LOG_NEW_EXEC_ON", "LOG_SUBDOMAINS_OFF", "TSYNC", "NO_NEW_PRIVS")


class Row:
    """One ABI: the first kernel with it, how many bits of each kind it defines, and its attribute's size in bytes."""

    __slots__ = ("abi", "attr_size", "fs", "kernel", "net", "restrict", "scoped")

    def __init__(  # noqa: PLR0913 - one column each
        self, abi: int, kernel: str, *, fs: int, net: int, scoped: int, restrict: int, attr_size: int
    ) -> None:
        self.abi = abi
        self.kernel = kernel
        self.fs = (1 << fs) - 1
        self.net = (1 << net) - 1
        self.scoped = (1 << scoped) - 1
        self.restrict = (1 << restrict) - 1
        self.attr_size = attr_size


ABIS = (
    Row(1, "5.13", fs=13, net=0, scoped=0, restrict=0, attr_size=8),
    Row(2, "5.19", fs=14, net=0, scoped=0, restrict=0, attr_size=8),
    Row(3, "6.2", fs=15, net=0, scoped=0, restrict=0, attr_size=8),
    Row(4, "6.7", fs=15, net=2, scoped=0, restrict=0, attr_size=16),
    Row(5, "6.10", fs=16, net=2, scoped=0, restrict=0, attr_size=16),
    Row(6, "6.12", fs=16, net=2, scoped=2, restrict=0, attr_size=24),
    Row(7, "6.15", fs=16, net=2, scoped=2, restrict=3, attr_size=24),
    Row(8, "7.0", fs=16, net=2, scoped=2, restrict=4, attr_size=24),
    Row(9, "7.1", fs=17, net=2, scoped=2, restrict=4, attr_size=24),
    Row(10, "7.2", fs=17, net=4, scoped=2, restrict=4, attr_size=48),
    Row(11, "7.3", fs=17, net=4, scoped=2, restrict=5, attr_size=48),
)


def bits(names: "tuple[str, ...]", *wanted: str) -> int:
    """Return the mask of the named bits; raises ValueError for a name that the kernel does not have."""
    return sum(1 << names.index(name) for name in wanted)


def names(mask: int, table: "tuple[str, ...]") -> str:
    """Return the kernel's names of the bits set, comma-separated in bit order, `-` for none."""
    return ",".join(name for bit, name in enumerate(table) if mask >> bit & 1) or "-"
