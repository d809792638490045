"""The runtime: the bench's own Python, relocated, with stage 2 and the hooks compiled in; found or built, and checked.

Built once per bench and Python, kept under the owner's cache, named by the digest of what it holds. `ensure` is on
card-run's hot path: when it is there it costs a few hundred stats and no import beyond `os`. What is not exactly as
its manifest says, or was made from inputs that have changed since, is built again (launcher.runtime_build).
"""

import os
import sys

from oci import records
from oci.refusal import Refusal, Refused

CARD = "/run/card-runtime"  # where card_dir is mounted in the container
SCHEMA = "1"


class Runtime:
    """A built runtime. Every path is absolute and on the bench but `argv` and `filter_path`, which are the card's.

    `argv` starts stage 2 in the container; `hook_argv` starts a hook on the bench, the verb left out. `card_dir` is to
    be mounted read-only at /run/card-runtime, `hooksd_dir` to be given to podman's --hooks-dir, `seccomp_json` to
    --security-opt seccomp=. `filter_rules` counts the rules of the filter that stage 2 loads.
    """

    __slots__ = (
        "argv",
        "card_dir",
        "client",
        "containers_conf",
        "digest",
        "filter_path",
        "filter_rules",
        "hook_argv",
        "hooks_dir",
        "hooksd_dir",
        "path",
        "python",
        "seccomp_json",
    )

    def __init__(self, path: str, values: "dict[str, list[str]]") -> None:
        self.path = path
        self.digest = values["digest"][0]
        self.python = values["python"][0]
        self.argv = tuple(values["argv"])
        self.filter_rules = int(values["filter_rules"][0])
        self.filter_path = f"{CARD}/filter.bpf"
        self.card_dir = f"{path}/card"
        self.hooks_dir = f"{path}/hooks"
        self.client = f"{path}/hooks/client.sh"
        self.hooksd_dir = f"{path}/hooks.d"
        self.seccomp_json = f"{path}/seccomp.json"
        self.containers_conf = f"{path}/containers.conf"
        self.hook_argv = hook_argv(self.python, path)


def hook_argv(python: str, path: str) -> "tuple[str, ...]":
    """Return the argument list that starts a hook from the runtime at `path`, the verb left out."""
    return (python, "-I", "-S", "-B", f"{path}/hooks/hooks/__main__.pyc")


def ensure(cache_dir: "str | None" = None) -> Runtime:
    """Return this bench's runtime, built first if need be, with a line on stderr; raises Refused when it cannot be.

    `cache_dir` is the folder that holds runtimes, by default `card-run` in the owner's cache. A build that fails
    leaves nothing behind but the folder and its lock.
    """
    cache = cache_dir if cache_dir is not None else default_cache()
    ours(cache)
    found = lookup(cache)
    if found is not None:
        return found
    from launcher import runtime_build  # the build path's imports cost more than all of card-run's others

    return runtime_build.build(cache)


def default_cache() -> str:
    """Return the folder for runtimes, see the XDG base directory specification; raises Refused without a HOME."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    home = os.environ.get("HOME", "")
    if cache.startswith("/"):
        return f"{cache}/card-run"
    if not home.startswith("/"):
        text = "neither XDG_CACHE_HOME nor HOME is an absolute path"
        raise Refused([Refusal("no-cache-directory", text, "set one of them")])
    return f"{home}/.cache/card-run"


def ours(path: str) -> None:
    """Make the folder if it is missing; raises Refused unless it is a real folder, ours, and open to nobody else."""
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        status = os.lstat(path)
    except OSError as error:
        raise Refused([Refusal("no-cache-directory", f"{path}: {error.strerror}")]) from error
    if status.st_mode != 0o040700 or status.st_uid != os.geteuid():
        text = f"{path} is not a directory that is yours alone (mode 0700)"
        raise Refused([Refusal("cache-not-ours", text, f"chmod 700 {path}, or set XDG_CACHE_HOME")])


def lookup(cache: str) -> "Runtime | None":
    """Return the runtime for this Python and this code if it is there and exactly as it was built, else None."""
    try:
        with open(f"{cache}/{manifest_name()}", "rb") as file:
            values = records.load(file.read())
        path = f"{cache}/{directory_name(values['digest'][0])}"
        return Runtime(path, values) if _matches(path, values) else None
    except (OSError, ValueError, KeyError, IndexError):
        # Whatever is wrong with it, the answer is to build it again: nothing of it is trusted.
        return None


def directory_name(digest: str) -> str:
    """Return the name of a runtime's directory in the cache."""
    return f"runtime-{digest}"


def manifest_name() -> str:
    """Return the name of the manifest for this interpreter and this copy of the code.

    A plain number of both paths: it only keeps two Pythons from rebuilding in turns, the manifest holds the truth.
    """
    seed = f"{sys.version}\0{base_python()}\0{package_root()}".encode("utf-8", "surrogateescape")
    return f"manifest-{int.from_bytes(seed, 'big') % ((1 << 127) - 1):x}"


def base_python() -> str:
    """Return the interpreter below any virtual environment, which is what gets relocated and runs the hooks."""
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


def package_root() -> str:
    """Return the folder that holds the packages launcher, hooks and oci."""
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _matches(path: str, values: "dict[str, list[str]]") -> bool:
    """Return whether every input and every file of the runtime is as the manifest recorded it."""
    status = os.lstat(path)
    if values["schema"] != [SCHEMA] or status.st_mode != 0o040700 or status.st_uid != os.geteuid():
        return False
    inputs = (line.partition(" ") for line in values["input"])
    outputs = (line.partition(" ") for line in values["output"])
    return all(input_mark(name) == mark for mark, _, name in inputs) and all(
        output_mark(f"{path}/{name}") == mark for mark, _, name in outputs
    )


def input_mark(path: str) -> str:
    """Return what identifies the content of a file the runtime is made from, `-` when there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return "-"
    return f"{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"


def output_mark(path: str) -> str:
    """Return what identifies a file or directory of the runtime; raises OSError when it is gone.

    The change time cannot be set back by whoever alters a file, and a directory's modification time tells additions.
    """
    status = os.lstat(path)
    time = status.st_mtime_ns if status.st_mode & 0o170000 == 0o040000 else status.st_ctime_ns
    return f"{status.st_mode:o}:{status.st_uid}:{status.st_size}:{time}"
