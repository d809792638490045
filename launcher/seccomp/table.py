"""The syscall wall as data: what a worker may not call, with which errno, and why.

One list serves the filter that stage 2 loads (`bpf`), the profile that podman re-applies on `podman exec` (`profile`)
and the text that people review (`text`). Order is meaning where a call has several rules: the first that matches
decides. Numbers come from arch/x86/entry/syscalls/syscall_64.tbl and scripts/syscall.tbl (arm64).
"""

import errno
import os
from dataclasses import dataclass, field

from oci.refusal import Refusal, Refused


@dataclass(frozen=True, slots=True)
class Arch:
    """A machine: its AUDIT_ARCH value, the ranges of call numbers we know (both ends included), and x32's trap."""

    name: str
    audit: int
    known: tuple[tuple[int, int], ...]
    x32: bool = False

    @property
    def last(self) -> int:
        """The highest call number known; what is above came with a newer kernel and is ENOSYS."""
        return self.known[-1][1]


# include/uapi/linux/audit.h. The last call known is file_setattr of Linux 6.17; x86_64's 335 and 336 are the kernel's
# own uretprobe and uprobe. Compat entry (i386, arm) comes with another AUDIT_ARCH.
X86_64 = Arch("x86_64", 0xC000003E, ((0, 336), (424, 469)), x32=True)
AARCH64 = Arch("aarch64", 0xC00000B7, ((0, 294), (424, 469)))
ARCHES = {arch.name: arch for arch in (X86_64, AARCH64)}


@dataclass(frozen=True, slots=True)
class Test:
    """A question about one argument's low 32 bits, which are all that the kernel reads of an int.

    `values` with `inside`: the masked bits are one of the values; without: none of them.
    """

    argument: int
    values: tuple[int, ...]
    inside: bool
    words: str
    mask: int = 0xFFFFFFFF

    def holds(self, value: int) -> bool:
        """Return whether a register's value passes."""
        return (value & self.mask in self.values) is self.inside


@dataclass(frozen=True, slots=True)
class Deny:
    """One rule: the call by its name and numbers (None: the machine has no such call), its errno, the reason.

    Every test must hold for the rule to match; with none it always does.
    """

    call: str
    x86_64: int | None
    aarch64: int | None
    errno: int
    why: str
    tests: tuple[Test, ...] = field(default=())

    def number(self, arch: Arch) -> int | None:
        """Return the call's number on a machine, None where it does not exist."""
        return self.x86_64 if arch.name == "x86_64" else self.aarch64


# include/linux/socket.h, include/linux/net.h, include/uapi/linux/in.h, include/uapi/linux/netlink.h
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
SOCK_STREAM, SOCK_DGRAM, SOCK_RAW = 1, 2, 3
SOCK_TYPE_MASK = 0xF  # above are SOCK_CLOEXEC and SOCK_NONBLOCK
IPPROTO_IP, IPPROTO_ICMP, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMPV6 = 0, 1, 6, 17, 58
NETLINK_ROUTE = 0
# include/uapi/linux/sched.h: CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}. NEWTIME's bit is an exit signal in clone(2).
CLONE_NEW = 0x7E020000
# include/uapi/asm-generic/ioctls.h
TIOCSTI, TIOCLINUX, TIOCSETD = 0x5412, 0x541C, 0x5423
# include/uapi/linux/stat.h: S_ISUID and S_ISGID
SET_ID = 0o6000

INTERNET = Test(0, (AF_INET, AF_INET6), inside=True, words="family INET or INET6")
SOCKET_FAMILIES = (AF_UNIX, AF_INET, AF_INET6, AF_NETLINK)
INTERNET_TYPES = (SOCK_STREAM, SOCK_DGRAM)
INTERNET_PROTOCOLS = (IPPROTO_IP, IPPROTO_ICMP, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMPV6)

CONDITIONAL = (
    Deny(
        "socket", 41, 198, errno.EAFNOSUPPORT, "other families are kernel code that no tool of a card needs",
        (Test(0, SOCKET_FAMILIES, inside=False, words="family not UNIX, INET, INET6 or NETLINK"),),
    ),
    Deny(
        "socket", 41, 198, errno.EAFNOSUPPORT, "of netlink, interfaces and routes are what getaddrinfo reads",
        (
            Test(0, (AF_NETLINK,), inside=True, words="family NETLINK"),
            Test(2, (NETLINK_ROUTE,), inside=False, words="protocol not ROUTE"),
        ),
    ),
    Deny(
        "socket", 41, 198, errno.EPERM, "raw sockets forge packets",
        (INTERNET, Test(1, (SOCK_RAW,), inside=True, words="type RAW", mask=SOCK_TYPE_MASK)),
    ),
    Deny(
        "socket", 41, 198, errno.ESOCKTNOSUPPORT, "other types lead to SCTP and DCCP",
        (INTERNET, Test(1, INTERNET_TYPES, inside=False, words="type not STREAM or DGRAM", mask=SOCK_TYPE_MASK)),
    ),
    Deny(
        "socket", 41, 198, errno.EPROTONOSUPPORT, "MPTCP, SCTP and kin pass by rules that are written for TCP and UDP",
        (INTERNET, Test(2, INTERNET_PROTOCOLS, inside=False, words="protocol not TCP, UDP or ICMP")),
    ),
    Deny(
        "socketpair", 53, 199, errno.EAFNOSUPPORT, "only Unix sockets come in pairs",
        (Test(0, (AF_UNIX,), inside=False, words="family not UNIX"),),
    ),
    Deny(
        "clone", 56, 220, errno.EPERM, "a user namespace hands out every capability inside it",
        (Test(0, (0,), inside=False, words="any CLONE_NEW flag", mask=CLONE_NEW),),
    ),
    Deny(
        "ioctl", 16, 29, errno.EPERM, "keys pushed into a terminal run in its shell; a line discipline is kernel code",
        (Test(1, (TIOCSTI, TIOCLINUX, TIOCSETD), inside=True, words="request TIOCSTI, TIOCLINUX or TIOCSETD"),),
    ),
    *(
        Deny(
            call, x86_64, aarch64, errno.EPERM, "a set-ID program in a write root makes its caller the bench's user",
            (Test(argument, (0,), inside=False, words="mode with S_ISUID or S_ISGID", mask=SET_ID),),
        )
        # A file that open(2) or mknod(2) makes with such a mode is empty, and loses it when it is written (inode(7)).
        for call, x86_64, aarch64, argument in (
            ("chmod", 90, None, 1), ("fchmod", 91, 52, 1), ("fchmodat", 268, 53, 2), ("fchmodat2", 452, 452, 2),
        )
    ),
)  # fmt: skip


def _all(error: int, why: str, *calls: tuple[str, int | None, int | None]) -> tuple[Deny, ...]:
    return tuple(Deny(call, x86_64, aarch64, error, why) for call, x86_64, aarch64 in calls)


MOUNTS = _all(
    errno.EPERM,
    "mounts decide what every path means",
    ("mount", 165, 40),
    ("umount2", 166, 39),
    ("pivot_root", 155, 41),
    ("chroot", 161, 51),
    ("open_tree", 428, 428),
    ("move_mount", 429, 429),
    ("fsopen", 430, 430),
    ("fsconfig", 431, 431),
    ("fsmount", 432, 432),
    ("fspick", 433, 433),
    ("mount_setattr", 442, 442),
    ("open_tree_attr", 467, 467),
)
NAMESPACES = (
    *_all(errno.EPERM, "new namespaces open the kernel's largest attack surface", ("unshare", 272, 97)),
    *_all(errno.EPERM, "another namespace has other walls", ("setns", 308, 268)),
    # ENOSYS makes libc fall back to clone, whose flags are a register that a filter can read
    *_all(errno.ENOSYS, "its flags lie in memory, where a filter cannot look", ("clone3", 435, 435)),
)
PTRACE = _all(errno.EPERM, "a traced process does what its tracer says", ("ptrace", 101, 117))
OTHERS = _all(
    errno.EPERM,
    "other processes' memory and descriptors are theirs",
    ("process_vm_readv", 310, 270),
    ("process_vm_writev", 311, 271),
    ("pidfd_getfd", 438, 438),
)
SURFACE = (
    *_all(
        errno.EPERM,
        "kernel attack surface",
        ("bpf", 321, 280),
        ("perf_event_open", 298, 241),
        ("userfaultfd", 323, 282),
        ("modify_ldt", 154, None),
        ("uselib", 134, None),
        ("lookup_dcookie", 212, 18),
        ("lsm_set_self_attr", 460, 460),
    ),
    *_all(
        errno.ENOSYS,
        "does what other calls do without being seen by a filter; programs fall back to those",
        ("io_uring_setup", 425, 425),
        ("io_uring_enter", 426, 426),
        ("io_uring_register", 427, 427),
    ),
)
KEYS = _all(
    errno.EPERM,
    "keyrings are not namespaced and hold the bench's keys",
    ("add_key", 248, 217),
    ("request_key", 249, 218),
    ("keyctl", 250, 219),
)
HANDLES = _all(
    errno.EPERM,
    "file handles and marks reach files by no path",
    ("name_to_handle_at", 303, 264),
    ("open_by_handle_at", 304, 265),
    ("fanotify_init", 300, 262),
    ("fanotify_mark", 301, 263),
)
MACHINE = _all(
    errno.EPERM,
    "the machine is not the card's",
    ("kexec_load", 246, 104),
    ("kexec_file_load", 320, 294),
    ("init_module", 175, 105),
    ("finit_module", 313, 273),
    ("delete_module", 176, 106),
    ("swapon", 167, 224),
    ("swapoff", 168, 225),
    ("reboot", 169, 142),
    ("settimeofday", 164, 170),
    ("clock_settime", 227, 112),
    ("clock_adjtime", 305, 266),
    ("adjtimex", 159, 171),
    ("acct", 163, 89),
    ("quotactl", 179, 60),
    ("quotactl_fd", 443, 443),
    ("syslog", 103, 116),
    ("iopl", 172, None),
    ("ioperm", 173, None),
    ("sethostname", 170, 161),
    ("setdomainname", 171, 162),
    ("vhangup", 153, 58),
)
MEMORY_NODES = _all(
    errno.EPERM,
    "memory placement is the bench's, and its code is rarely walked",
    ("mbind", 237, 235),
    ("set_mempolicy", 238, 237),
    ("get_mempolicy", 239, 236),
    ("migrate_pages", 256, 238),
    ("move_pages", 279, 239),
    ("set_mempolicy_home_node", 450, 450),
)


def rules(*, ptrace: bool = False) -> tuple[Deny, ...]:
    """Return the deny list in order; with `ptrace` a worker may trace its own children (debuggers)."""
    tracing = () if ptrace else PTRACE
    return (
        *CONDITIONAL, *MOUNTS, *NAMESPACES, *tracing, *OTHERS, *SURFACE, *KEYS, *HANDLES, *MACHINE, *MEMORY_NODES,
    )  # fmt: skip


def on(arch: Arch, deny: tuple[Deny, ...]) -> tuple[Deny, ...]:
    """Return the rules whose call exists on a machine."""
    return tuple(rule for rule in deny if rule.number(arch) is not None)


def this_machine() -> Arch:
    """Return the machine we run on; raises Refused where the table has no numbers for it."""
    name = os.uname().machine
    if name not in ARCHES:
        text = f"there is no syscall table for {name}, only for {', '.join(sorted(ARCHES))}"
        raise Refused([Refusal("unknown-machine", text)])
    return ARCHES[name]
