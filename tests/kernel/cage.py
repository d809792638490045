"""A container without podman, for tests: own namespaces, an empty root with what is asked for, no capabilities.

Run as a program with the Spec as JSON on descriptor 0; becomes `argv` inside. What podman would have done before
stage 2's first instruction is done here: mounts, no_new_privs, an (all-allowing) seccomp filter, dropped capabilities.
"""

import ctypes
import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
from dataclasses import asdict, dataclass, field

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x20000, 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = (
    1,
    2,
    4,
    8,
    32,
    4096,
    16384,
    1 << 18,
)
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")


@dataclass
class Spec:
    """What the cage holds. `binds` are (source, target, flags) with target below the new root."""

    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)
    binds: list[tuple[str, str, int]] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)
    tmpfs: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)  # path inside -> content, executable
    no_new_privs: bool = True
    drop_capabilities: bool = True
    profile: str = "allow"  # or "none", or the errno that landlock_create_ruleset is to meet
    read_only: bool = True
    proc_read_only: bool = False
    held: dict[str, str] = field(default_factory=dict)  # descriptor number -> path outside that stays open on it
    proof: list[str] = field(default_factory=list)  # path on the outside, run, nonce


def start(spec: Spec, *, pass_fd: int | None = None, lifeline: int | None = None) -> "subprocess.Popen[bytes]":
    """Start a cage; descriptor 3 inside is `pass_fd`, and 4 is `lifeline`, or they are closed."""
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "wb") as file:
        file.write(json.dumps(asdict(spec)).encode())
    fds = [fd for fd in (pass_fd, lifeline) if fd is not None]
    words = [sys.executable, "-I", __file__, *(str(-1 if fd is None else fd) for fd in (pass_fd, lifeline))]
    try:
        return subprocess.Popen(words, stdin=read_end, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=fds)
    finally:
        os.close(read_end)


def _call(name: str, *args: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*args) == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), f"{name}{args}")


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    encoded = [None if text is None else text.encode() for text in (source, target, kind)]
    _call("mount", *encoded, ctypes.c_ulong(flags), None if data is None else data.encode())


def _namespaces() -> None:
    uid, gid = os.geteuid(), os.getegid()
    _call("unshare", CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def _prove(path: str, run: str, nonce: str) -> None:
    """Write the hook's proof for the cage's own network namespace."""
    inode = os.readlink("/proc/self/ns/net").removeprefix("net:[").removesuffix("]")
    with open(path, "w", encoding="ascii") as file:
        file.write(f"run={run}\0digest=d\0nonce={nonce}\0netns={inode}\0table=t\0")


def _touch(source: str, target: str) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "ab"):
            pass


def _root(spec: Spec) -> None:
    root = "/tmp"
    _mount("none", "/", None, MS_REC | MS_PRIVATE)
    sources = [(os.open(source, os.O_PATH | os.O_CLOEXEC), target, flags) for source, target, flags in spec.binds]
    devices = [(os.open(f"/dev/{name}", os.O_PATH | os.O_CLOEXEC), name) for name in DEVICES]
    _mount("root", root, "tmpfs", 0, "mode=0755")
    for path in ("/proc", "/sys", "/dev", "/run", *spec.tmpfs):
        os.makedirs(root + path, exist_ok=True)
    _mount("dev", f"{root}/dev", "tmpfs", MS_NOSUID, "mode=0755")
    for descriptor, name in devices:
        _touch(f"/proc/self/fd/{descriptor}", f"{root}/dev/{name}")
        _mount(f"/proc/self/fd/{descriptor}", f"{root}/dev/{name}", None, MS_BIND)
    os.mkdir(f"{root}/dev/pts")
    _mount("devpts", f"{root}/dev/pts", "devpts", 0, "newinstance,ptmxmode=0666")
    os.symlink("pts/ptmx", f"{root}/dev/ptmx")
    for path in spec.tmpfs:
        _mount("private", root + path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    for target, link in spec.links:
        os.makedirs(os.path.dirname(root + link), exist_ok=True)
        os.symlink(target, root + link)
    for path, content in spec.files.items():
        os.makedirs(os.path.dirname(root + path), exist_ok=True)
        with open(root + path, "w", encoding="utf-8") as file:
            file.write(content)
        os.chmod(root + path, 0o755)  # noqa: S103 - a program of the image's
    for descriptor, target, flags in sources:
        place = f"/proc/self/fd/{descriptor}"
        _touch(place, root + target)
        _mount(place, root + target, None, MS_BIND)
        _mount(place, root + target, None, MS_BIND | MS_REMOUNT | MS_NOSUID | MS_NODEV | flags)
    if spec.read_only:
        _mount("root", root, None, MS_BIND | MS_REMOUNT | MS_RDONLY)
    proc_flags = MS_RDONLY if spec.proc_read_only else 0
    _mount("proc", f"{root}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC | proc_flags)
    os.chroot(root)
    os.chdir("/")


def _profile(name: str) -> None:
    """Load a filter as podman would: one that allows everything, or everything but Landlock's first call."""
    ops = [(6, 0, 0, 0x7FFF0000)]
    if name != "allow":
        ops = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (6, 0, 0, 0x50000 | int(name)), *ops]
    packed = b"".join(struct.pack("=HBBI", *op) for op in ops)
    program = ctypes.create_string_buffer(packed, len(packed))
    fprog = ctypes.create_string_buffer(struct.pack("@HP", len(ops), ctypes.addressof(program)))
    _call("prctl", 22, ctypes.c_ulong(2), fprog, 0, 0)


def _drop() -> None:
    for capability in range(64):
        ctypes.CDLL(None).prctl(24, ctypes.c_ulong(capability), 0, 0, 0)
    header = struct.pack("=Ii", 0x20080522, 0)
    _call("capset", header, bytes(24))


def _preserve(fds: list[int]) -> None:
    """Make these descriptors 3 and 4 and nothing else, as podman's --preserve-fds=2 does; -1 is none."""
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) if fd >= 0 else -1 for fd in fds]
    os.closerange(3, 10)
    for at, fd in enumerate(high, 3):
        if fd >= 0:
            os.dup2(fd, at)
            os.close(fd)


def _become(spec: Spec) -> None:
    if spec.proof:
        _prove(*spec.proof)
    for number, path in spec.held.items():
        os.dup2(os.open(path, os.O_RDONLY), int(number))
    _root(spec)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    if spec.drop_capabilities:
        _drop()
    if spec.no_new_privs:
        _call("prctl", 38, ctypes.c_ulong(1), 0, 0, 0)
    # What a careless parent leaves behind, for stage 2 to put right.
    os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGTERM})
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if spec.profile != "none":
        _profile(spec.profile)
    os.execve(spec.argv[0], spec.argv, spec.env)  # noqa: S606 - never a shell


def main() -> None:
    """Build the cage around this process's child and end with its status."""
    spec = Spec(**json.loads(sys.stdin.buffer.read()))
    _preserve([int(word) for word in sys.argv[1:]])
    _namespaces()
    child = os.fork()
    if child == 0:
        _become(spec)
    os.closerange(3, 5)
    _, status = os.waitpid(child, 0)
    os._exit(os.waitstatus_to_exitcode(status) % 256)


if __name__ == "__main__":
    main()
