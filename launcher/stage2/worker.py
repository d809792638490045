"""Becoming the worker: its environment, limits and directory, and execve with a shell's exit codes."""

import errno
import os

from launcher.stage2.syscalls import Kernel
from oci.refusal import EXIT_CANNOT_EXECUTE, EXIT_NOT_FOUND, Refusal, Refused

# Variables that make a loader or an interpreter run code of the image's or the workspace's choosing in programs that
# are not theirs. The launcher keeps LD_* from stage 2 itself (Runtime.unsetenv); the worker gets them only by --env.
LOADER_PREFIXES = ("LD_",)
LOADER_NAMES = frozenset({
    "BASH_ENV",
    "ENV",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "LOCPATH",
    "NODE_OPTIONS",
    "PERL5LIB",
    "PERL5OPT",
    "PYTHONHOME",
    "PYTHONINSPECT",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "RUBYLIB",
    "RUBYOPT",
})  # fmt: skip
# With these the loader runs foreign code before our first instruction (ld.so(8)); card-run has podman unset them.
STEERING = (b"LD_AUDIT", b"LD_PRELOAD")
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# include/uapi/asm-generic/resource.h; the same on x86_64 and aarch64
RLIMITS = (
    "CPU",
    "FSIZE",
    "DATA",
    "STACK",
    "CORE",
    "RSS",
    "NPROC",
    "NOFILE",
    "MEMLOCK",
    "AS",
    "LOCKS",
    "SIGPENDING",
    "MSGQUEUE",
    "NICE",
    "RTPRIO",
    "RTTIME",
)
UNLIMITED = (1 << 64) - 1


def loader_variable(name: str) -> bool:
    """Return whether a variable steers a loader or an interpreter."""
    return name in LOADER_NAMES or name.startswith(LOADER_PREFIXES)


def environment(block: bytes, items: "list[str]") -> "dict[str, str]":
    """Return the worker's environment: the container's without loader variables, then the launcher's NAME=VALUE.

    `block` is /proc/self/environ, as execve was given it: os.environ also holds what Python put there by itself.
    Raises Refused where the loader was told to load code of the image's choosing into stage 2 itself.
    """
    inherited = (item.decode("utf-8", "surrogateescape").partition("=") for item in block.split(b"\0"))
    env = {name: value for name, equals, value in inherited if equals and not loader_variable(name)}
    steered = sorted(name for name in STEERING if any(item.startswith(name + b"=") for item in block.split(b"\0")))
    if steered:
        text = f"the image's {b', '.join(steered).decode()} reached stage 2's own loader"
        raise Refused([Refusal("loader-steered", text, "podman must unset it: is podman older than 5.0?")])
    for item in items:
        name, equals, value = item.partition("=")
        if not name or not equals:
            raise Refused([Refusal("frame-malformed", f"an environment item has no name or no `=`: {name!r}")])
        env[name] = value
    return env


def limit(kernel: Kernel, rlimits: "tuple[tuple[str, int, int], ...]") -> None:
    """Set the resource limits, -1 meaning unlimited; raises Refused for one that is unknown or cannot be set."""
    for name, soft, hard in rlimits:
        try:
            kernel.prlimit(RLIMITS.index(name), soft & UNLIMITED, hard & UNLIMITED)
        except ValueError as error:
            raise Refused([Refusal("rlimit-unknown", f"no such limit: {name}")]) from error
        except OSError as error:
            text = f"RLIMIT_{name} {soft}:{hard}: {error.strerror}"
            raise Refused([Refusal("rlimit-refused", text, "a hard limit can only be lowered")]) from error


def settle(cwd: str) -> None:
    """Set the umask and the working directory; raises Refused when the directory cannot be entered."""
    os.umask(0o022)
    try:
        os.chdir(cwd)
    except OSError as error:
        raise Refused([Refusal("cwd-unusable", f"{cwd}: {error.strerror}")]) from error


def execute(argv: "tuple[str, ...]", env: "dict[str, str]") -> "tuple[int, str]":
    """Become the worker; only returns when that failed: the exit code and what to say, as a shell would."""
    name = argv[0]
    failed = 0
    for path in candidates(name, env):
        failed = failed or _attempt(path, argv, env)
    if failed == 0:
        return EXIT_NOT_FOUND, f"{name}: not found"
    if failed == errno.ENOENT:
        return EXIT_NOT_FOUND, f"{name}: the program it needs to run (its #! line or loader) is not there"
    return EXIT_CANNOT_EXECUTE, f"{name}: {os.strerror(failed)}"


def candidates(name: str, env: "dict[str, str]") -> "list[str]":
    """Return the paths to try in order: the name itself if it has a slash, else it in each directory of PATH."""
    if "/" in name:
        return [name]
    return [f"{directory or '.'}/{name}" for directory in env.get("PATH", DEFAULT_PATH).split(":")] if name else []


def _attempt(path: str, argv: "tuple[str, ...]", env: "dict[str, str]") -> int:
    """Return 0 when the path is not there, else why it could not be executed."""
    try:
        os.execve(path, argv, env)  # noqa: S606 - never a shell
    except OSError as error:
        if error.errno == errno.ENOENT and os.path.lexists(path):
            return errno.ENOENT
        return 0 if error.errno in {errno.ENOENT, errno.ENOTDIR} else error.errno or errno.EIO
