"""The probes as data: what each tries, the guarantee it backs, and what it must come to in a card and without walls.

A denial is believed only beside its control, the same attempt in a plain container. Where a call cannot succeed for an
ordinary user, its arguments are ones that the kernel itself would complain about: that complaint is the control, since
a walled call never gets as far. Errno by errno; `launcher.probe.inside` has the kinds of attempt.
"""

from functools import partial

from launcher.value import Value

HOST = "github.com"  # a base name: every card with a network has it pinned
MARKER = "CARD_PROBE_MARKER"
# For a card that is probed: what every bench can enforce, with no cgroup controller.
LIMITS = ("--nofile=64", "--tmp-size=1m", "--shm-size=1m")
ROUTE4, ROUTE6 = "IPv4 route", "IPv6 route"
_TWO_MIB = 2 << 20
_ALL = -1
_NEWUSER, _FS = 0x10000000, 0x200  # include/uapi/linux/sched.h
_TIOCSTI = 0x5412  # include/uapi/asm-generic/ioctls.h
_CAPBSET_READ, _GET_NO_NEW_PRIVS = 23, 39  # include/uapi/linux/prctl.h
_READ_IMPLIES_EXEC = 0x0400000  # include/uapi/linux/personality.h
_A, _TXT = 1, 16  # RFC 1035 section 3.2.2


class Probe(Value):
    """One promise: `attempt` is a kind and its arguments; `walled` and `control` are the results that each must have.

    Text arguments may hold `{work}`, `{read}`, `{noexec}`, `{outside}`: the scratch directories. `needs` names what
    the bench must have for the promise to be made at all, "" for nothing. With `opens`, the promise is that it works.
    """

    promise: str
    guarantee: str
    attempt: tuple[str | int, ...]
    walled: tuple[str, ...]
    control: tuple[str, ...] = ("ok",)
    needs: str = ""
    opens: bool = False


def _denied(
    guarantee: str, promise: str, *attempt: str | int, walled: str = "EPERM", control: str = "ok", needs: str = ""
) -> Probe:
    """Return the probe of something that must not work; results are one or several, by spaces."""
    return Probe(
        promise=promise,
        guarantee=guarantee,
        attempt=attempt,
        walled=tuple(walled.split()),
        control=tuple(control.split()),
        needs=needs,
    )


def _open(guarantee: str, promise: str, *attempt: str | int) -> Probe:
    """Return the probe of something that must work: a wall that stops everything is none of ours."""
    return Probe(promise=promise, guarantee=guarantee, attempt=attempt, walled=("ok",), opens=True)


_process = partial(_denied, "process_boundary")
_write = partial(_denied, "write_boundary")
_read = partial(_denied, "read_boundary")
_env = partial(_denied, "env_scrub")
_network = partial(_denied, "network_boundary")
_address = partial(_denied, "address_network")
_limit = partial(_denied, "resource_limits")

PROCESS = (
    _process("no new user namespace", "syscall", "unshare", _NEWUSER),
    _process("no clone into a new namespace", "syscall", "clone", _NEWUSER | _FS, 0, 0, 0, 0, control="EINVAL"),
    _process(
        "clone3 is not there",
        "syscall",
        "clone3",
        0,
        0,
        walled="ENOSYS",
        control="EINVAL",
    ),
    _process("no other namespace is entered", "syscall", "setns", _ALL, 0, control="EBADF"),
    _process("no mount", "syscall", "mount", 0, 0, 0, 0, 0, control="EFAULT"),
    _process("no mount by the newer calls", "syscall", "open_tree", _ALL, 0, _ALL, control="EINVAL"),
    _process("no other root directory", "syscall", "chroot", 0, control="EFAULT"),
    _process("no file by its handle", "syscall", "name_to_handle_at", _ALL, 0, 0, 0, _ALL, control="EINVAL"),
    _process("no tracing, not even of a child", "trace"),
    _process("no reading of another process's memory", "peek"),
    _process("no descriptor of another process", "syscall", "pidfd_getfd", _ALL, _ALL, 0, control="EBADF"),
    _process("no keyring", "syscall", "keyctl", 9999, 0, 0, 0, 0, control="ENOTSUP EOPNOTSUPP"),
    # EPERM: the bench itself has switched io_uring off, which is another errno than the wall's
    _process("io_uring is not there", "syscall", "io_uring_setup", 0, 0, walled="ENOSYS", control="EFAULT EPERM"),
    _process("no performance events", "syscall", "perf_event_open", 0, 0, _ALL, _ALL, _ALL, control="EINVAL EACCES"),
    _process("no page faults handled by itself", "syscall", "userfaultfd", _ALL, control="EINVAL"),
    _process("no raw socket", "syscall", "socket", 2, 3, 9999, control="EINVAL"),
    _process("no packet socket", "syscall", "socket", 17, 2, 0, walled="EAFNOSUPPORT", control="ok EPERM"),
    _process("no netlink beyond routes", "syscall", "socket", 16, 3, 16, walled="EAFNOSUPPORT"),
    _process("no keys pushed into a terminal", "syscall", "ioctl", _ALL, _TIOCSTI, 0, control="EBADF"),
    # podman's own profile: its errno changed between versions
    _process("no executable heap by personality", "libc", "personality", _READ_IMPLIES_EXEC, walled="ENOSYS EPERM"),
    _process("no capability can be had", "prctl", _CAPBSET_READ, 0, walled="0", control="1"),
    _process("no privilege by executing", "prctl", _GET_NO_NEW_PRIVS, 0, walled="1", control="0"),
)
WRITES = (
    _open("write_boundary", "a --write directory is writable", "create", "{work}/new"),
    _write("nothing new in a --read directory", "create", "{read}/new", walled="EROFS"),
    _write("no file of a --read directory is written", "write", "{read}/file", walled="EROFS"),
    _write("no mode is changed in a --read directory", "chmod", "{read}/file", walled="EROFS"),
    _write("nothing new outside", "create", "{outside}/new", walled="ENOENT"),
    _write("nothing outside through a link in the workspace", "write", "{work}/link", walled="ENOENT"),
    _write("no git hook is planted", "create", "{work}/.git/hooks/pre-commit", walled="EROFS"),
    _write("no git configuration is written", "write", "{work}/.git/config", walled="EROFS"),
    _write("the git directory is not swapped", "rename", "{work}/.git", "{work}/.other", walled="EBUSY"),
    # on a mount that is writable, by every user: only Landlock stands here
    _write("no process file is written", "write", "/proc/self/comm", walled="EACCES"),
)
READS = (
    _open("read_boundary", "a --read directory is readable", "read", "{read}/file"),
    _read("no file outside is read", "read", "{outside}/file", walled="ENOENT"),
    _read("no directory outside is listed", "list", "{outside}", walled="ENOENT"),
    _read("nothing outside by the parent directory", "read", "{work}/../outside/file", walled="ENOENT"),
    _read("nothing outside through a link in the workspace", "read", "{work}/link", walled="ENOENT"),
    _read("nothing through another process's root", "read", "/proc/1/root{read}/file", walled="EACCES"),
    _read("nothing through another process's descriptor", "read", "/proc/1/fd/0", walled="EACCES"),
    # an empty file is no program: ENOEXEC comes from a kernel that would have executed it
    _read("no program of a --read-noexec directory", "execute", "{noexec}/file", walled="EACCES", control="ENOEXEC"),
)
ENVIRONMENT = (
    _env("no variable of the caller crosses", "variable", MARKER, walled="unset", control="set"),
    _env("the first process's variables are out of reach", "read", "/proc/1/environ", walled="EACCES"),
)
NETWORK = (
    _network("no other port of a listed address (80)", "tcp", HOST, 80, walled="ECONNREFUSED"),
    _network("no other port of a listed address (22)", "tcp", HOST, 22, walled="ECONNREFUSED"),
    _network("no UDP to a listed address", "udp", HOST, 443),
    _network("no metadata service", "udp", "169.254.169.254", 80, needs=ROUTE4),
    _network("no metadata service by IPv6", "udp", "fd00:ec2::254", 80, needs=ROUTE6),
    _network("no other name server", "udp", "198.51.100.53", 53, needs=ROUTE4),
    _network("no text is asked of the card's name server", "question", HOST, _TXT),
    _network("no unlisted name is asked of it", "question", "unlisted.example.com", _A),
    _network("no child of a listed name is asked of it", "question", f"c2VjcmV0.{HOST}", _A),
)
ADDRESSES = (
    _open("address_network", "port 443 of a listed address is open", "tcp", HOST, 443),
    _open("address_network", "a listed name is answered", "question", HOST, _A),
    _address("no unlisted address", "udp", "198.51.100.1", 443, needs=ROUTE4),
    _address("no unlisted address by IPv6", "udp", "2001:db8::7", 443, needs=ROUTE6),
)
RESOURCES = (
    _limit("no more descriptors than --nofile", "descriptors", 128, walled="EMFILE"),
    _limit("no more in /tmp than --tmp-size", "fill", "/tmp/card-probe", _TWO_MIB, walled="ENOSPC"),  # noqa: S108
    _limit("no more in /dev/shm than --shm-size", "fill", "/dev/shm/card-probe", _TWO_MIB, walled="ENOSPC"),  # noqa: S108
)
PROBES = (*PROCESS, *WRITES, *READS, *ENVIRONMENT, *NETWORK, *ADDRESSES, *RESOURCES)
