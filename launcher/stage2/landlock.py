"""The filesystem wall: what a Landlock ABI can check, a policy's ruleset as a value and as text, and its enforcement.

`build` is pure: the bench prints exactly what stage 2 will build, in the same order, one line per rule. `apply` opens
each path inside the container, because overlay layers and the merged view are different objects, and enforces.
Rights only add up: a rule on a directory reaches everything below it, and Landlock cannot subtract. So what has fewer
rights than the tree it lies in is left out of that tree's rules entry by entry (`around`).
See landlock(7) and include/uapi/linux/landlock.h. Imports the refusal value and the system call layer.
"""

import errno
import os
import struct

from launcher.stage2.abi import ABIS, FS, NET, SCOPE, Row, bits, names
from launcher.stage2.syscalls import Kernel
from oci.refusal import Refusal, Refused

CREATE_RULESET_VERSION = 1 << 0
CREATE_RULESET_ERRATA = 1 << 1
RULE_PATH_BENEATH = 1
RULE_NET_PORT = 2

EXECUTE = bits(FS, "EXECUTE")
LIST = bits(FS, "READ_DIR")
READ = bits(FS, "READ_FILE", "READ_DIR")
READ_EXECUTE = READ | EXECUTE
# All but device nodes and device ioctls: no card may make the first, and only terminals need the second.
WRITE = ((1 << len(FS)) - 1) & ~bits(FS, "MAKE_CHAR", "MAKE_BLOCK", "IOCTL_DEV")
DEVICE = bits(FS, "READ_FILE", "WRITE_FILE", "TRUNCATE")
TERMINAL = DEVICE | bits(FS, "READ_DIR", "IOCTL_DEV")
# The rights a rule on anything but a directory may carry; more is EINVAL (ACCESS_FILE in security/landlock/fs.c).
FILE_ONLY = bits(FS, "EXECUTE", "WRITE_FILE", "READ_FILE", "TRUNCATE", "IOCTL_DEV", "RESOLVE_UNIX")

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
TERMINALS = ("/dev/tty", "/dev/ptmx", "/dev/pts")
KERNEL_TREES = ("/proc", "/sys")
# What the image's rule must not reach: kernel trees and devices have rules of their own, ours have none.
NEVER_IMAGE = ("/dev", "/proc", "/run/card", "/run/card-runtime", "/sys")


class Policy:
    """What a card may reach, as normalised absolute paths inside the container."""

    __slots__ = ("exact", "loopback", "noexec", "private", "read", "write")

    def __init__(  # noqa: PLR0913 - one keyword per kind of path
        self,
        *,
        read: "tuple[str, ...]" = (),
        noexec: "tuple[str, ...]" = (),
        write: "tuple[str, ...]" = (),
        private: "tuple[str, ...]" = (),
        loopback: bool = True,
        exact: bool = False,
    ) -> None:
        self.read = read
        self.noexec = noexec
        self.write = write
        self.private = private
        self.loopback = loopback
        self.exact = exact


class Rule:
    """One rule: `kind` is the policy's word for it; a path rule with `around` stands for each entry but those.

    `optional` paths may be missing (a container with no terminal). For a port rule `path` is the port's number.
    """

    __slots__ = ("access", "around", "kind", "optional", "path")

    def __init__(
        self, kind: str, path: str, access: int, *, around: "tuple[str, ...]" = (), optional: bool = False
    ) -> None:
        self.kind = kind
        self.path = path
        self.access = access
        self.around = around
        self.optional = optional

    def __str__(self) -> str:
        table = NET if self.kind == "port" else FS
        around = "".join(f" {path!r}" for path in self.around)
        tail = f" each entry around{around}" if around else ""
        return f"{self.kind:<8} {self.path!r} {names(self.access, table)}{tail}"


class Ruleset:
    """What will be handled and granted. `abi` is the kernel's, `row` the table's row that is used."""

    __slots__ = ("abi", "fs", "net", "row", "rules", "scoped")

    def __init__(self, abi: int, row: Row, *, net: int, rules: "tuple[Rule, ...]") -> None:
        self.abi = abi
        self.row = row
        self.fs = row.fs
        self.net = net
        self.scoped = row.scoped
        self.rules = rules

    def attr(self) -> bytes:
        """Return struct landlock_ruleset_attr: fs, net, scoped, and no quiet bits."""
        return struct.pack("=6Q", self.fs, self.net, self.scoped, 0, 0, 0)

    def lines(self) -> "list[str]":
        """Return the ruleset as text: what is handled, then one line per rule in the order it is built."""
        net = names(self.net, NET)
        if not self.net:
            net = "not handled: port rules cannot tell lo from the rest; nft judges every packet off lo"
        return [
            f"landlock abi={self.abi} used={self.row.abi} kernel={self.row.kernel}",
            f"fs: {names(self.fs, FS)}",
            f"net: {net}",
            f"scoped: {names(self.scoped, SCOPE)}",
            *(str(rule) for rule in self.rules),
        ]


def inside(path: str, top: str) -> bool:
    """Return whether a normalised absolute path is below another, itself excluded."""
    return path != top and path.startswith("/" if top == "/" else top + "/")


def minimum(policy: Policy) -> int:
    """Return the lowest ABI that can carry the policy: port rules need 4, `mv` between directories needs REFER of 2."""
    if not policy.loopback:
        return 4
    return 2 if policy.write else 1


def choose(abi: int, policy: Policy) -> Row:
    """Return the row to build with, the kernel's or our highest; raises Refused below the need, or above when exact."""
    last = ABIS[-1]
    if abi < minimum(policy):
        text = f"the kernel's Landlock ABI is {abi} and this card needs {minimum(policy)}"
        raise Refused([Refusal("landlock-too-old", text, "use a newer kernel, or ask for less")])
    if abi > last.abi and policy.exact:
        text = f"the kernel's Landlock ABI is {abi} and this card-run knows {last.abi}"
        raise Refused([Refusal("landlock-too-new", text, "leave --landlock exact out, or update card-run")])
    return ABIS[min(abi, last.abi) - 1]


def build(abi: int, policy: Policy) -> Ruleset:
    """Return the ruleset of a policy for a kernel's ABI, its rules in building order; raises Refused (see `choose`)."""
    row = choose(abi, policy)
    net = 0 if policy.loopback else row.net
    wanted = [*_tree_rules(policy), *_named_rules(policy), *_device_rules()]
    rules = [Rule(r.kind, r.path, r.access & row.fs, around=r.around, optional=r.optional) for r in wanted]
    rules += [rule for rule in _port_rules() if (rule.access & net) == rule.access] if net else []
    return Ruleset(abi, row, net=net, rules=tuple(rule for rule in rules if rule.access))


def _tree_rules(policy: Policy) -> "list[Rule]":
    # A root with as many rights as the image may lie under the image's rule; one that holds something with fewer may
    # not, because the walk around that would go through all of it.
    holders = [root for root in (*policy.read, *policy.write, *policy.private) if _holes(root, policy)]
    around = tuple(sorted({*NEVER_IMAGE, *policy.noexec, *holders}))
    return [
        # `ls /` and every shell's completion need it. It gives names only, of the card's own tree: each directory in
        # the container is one that was named, the image's, or the kernel's.
        Rule("list", "/", LIST),
        Rule("image", "/", READ_EXECUTE, around=around),
        *(Rule("kernel", path, READ) for path in KERNEL_TREES),
    ]


def _holes(root: str, policy: Policy) -> "tuple[str, ...]":
    return tuple(sorted(path for path in policy.noexec if inside(path, root)))


def _named_rules(policy: Policy) -> "list[Rule]":
    rules: list[Rule] = []
    for path in policy.read:
        # A noexec path inside: reading is granted on the whole, executing around it. Inside a writable root it cannot
        # be (new entries must be executable there), and the mount's own noexec and ro are the wall.
        around = _holes(path, policy)
        rules += [Rule("read", path, READ), Rule("read", path, EXECUTE, around=around)] if around else []
        rules += [] if around else [Rule("read", path, READ_EXECUTE)]
    rules += [Rule("noexec", path, READ) for path in policy.noexec]
    rules += [Rule("write", path, WRITE) for path in policy.write]
    return rules + [Rule("private", path, WRITE) for path in policy.private]


def _device_rules() -> "list[Rule]":
    devices = [Rule("device", path, DEVICE, optional=True) for path in DEVICES]
    return devices + [Rule("terminal", path, TERMINAL, optional=True) for path in TERMINALS]


def _port_rules() -> "list[Rule]":
    """Return what a card without loopback may do: HTTPS out, and from ABI 10 DNS out from a port the kernel picks."""
    return [
        Rule("port", "443", bits(NET, "CONNECT_TCP")),
        Rule("port", "53", bits(NET, "CONNECT_SEND_UDP")),
        Rule("port", "0", bits(NET, "BIND_UDP")),
    ]


def query_abi(kernel: Kernel) -> int:
    """Return the kernel's ABI; raises Refused and tells a missing, a disabled and a blocked Landlock apart."""
    try:
        return kernel.landlock_create_ruleset(None, CREATE_RULESET_VERSION)
    except OSError as error:
        raise Refused([_unavailable(error)]) from error


def _unavailable(error: OSError) -> Refusal:
    if error.errno == errno.ENOSYS:
        text = "landlock_create_ruleset: ENOSYS: the kernel has no Landlock, or a seccomp profile hides it"
        return Refusal("landlock-missing", text, "`card check` on the bench tells which")
    if error.errno == errno.EOPNOTSUPP:
        text = "the kernel has Landlock but it was not enabled at boot (EOPNOTSUPP)"
        return Refusal("landlock-disabled", text, "add landlock to the kernel's lsm= parameter")
    if error.errno in {errno.EPERM, errno.EACCES}:
        text = "a seccomp profile blocks landlock_create_ruleset (EPERM)"
        return Refusal("landlock-blocked", text, "let podman's profile allow the landlock_* calls")
    return Refusal("landlock-failed", f"{error.filename}: {error.strerror}")


def query_errata(kernel: Kernel) -> str:
    """Return the errata fixed in the kernel as a mask in hexadecimal, `unknown` below ABI 7: recorded, never a gate."""
    try:
        return hex(kernel.landlock_create_ruleset(None, CREATE_RULESET_ERRATA))
    except OSError:
        return "unknown"


def apply(kernel: Kernel, ruleset: Ruleset) -> int:
    """Enforce the ruleset on this thread, for good, and return how many rules it took.

    Raises OSError naming the call or path; before the last step nothing is enforced yet, and nothing stays behind.
    """
    ruleset_fd = kernel.landlock_create_ruleset(ruleset.attr(), 0)
    try:
        count = sum(_add(kernel, ruleset_fd, rule) for rule in ruleset.rules)
        kernel.landlock_restrict_self(ruleset_fd, 0)
    finally:
        kernel.close(ruleset_fd)
    return count


def _add(kernel: Kernel, ruleset_fd: int, rule: Rule) -> int:
    if rule.kind == "port":
        kernel.landlock_add_rule(ruleset_fd, RULE_NET_PORT, struct.pack("=QQ", rule.access, int(rule.path)))
        return 1
    if not rule.around:
        return _add_path(kernel, ruleset_fd, rule, rule.path, os.O_PATH)
    around = tuple(kernel.realpath(path) for path in rule.around)
    # An entry that is a symbolic link is not followed: it must not carry the tree's rights to where it points.
    flags = os.O_PATH | os.O_NOFOLLOW
    top = kernel.realpath(rule.path)
    return sum(_add_path(kernel, ruleset_fd, rule, path, flags) for path in entries(kernel, top, around))


def entries(kernel: Kernel, top: str, around: "tuple[str, ...]") -> "list[str]":
    """Return the paths that together cover everything below `top` except symbolic links and the `around` paths."""
    found: list[str] = []
    for name in kernel.listdir(top):
        path = f"/{name}" if top == "/" else f"{top}/{name}"
        if path in around:
            continue
        if any(inside(hole, path) for hole in around):
            found += entries(kernel, path, around)
        else:
            found.append(path)
    return found


def _add_path(kernel: Kernel, ruleset_fd: int, rule: Rule, path: str, flags: int) -> int:
    try:
        descriptor = kernel.open(path, flags)
    except FileNotFoundError:
        if rule.optional:
            return 0
        raise
    try:
        access = rule.access if kernel.is_directory(descriptor) else rule.access & FILE_ONLY
        if not access:
            return 0
        kernel.landlock_add_rule(ruleset_fd, RULE_PATH_BENEATH, struct.pack("=Qi", access, descriptor))
    finally:
        kernel.close(descriptor)
    return 1
