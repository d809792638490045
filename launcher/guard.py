"""What of the bench a worker must not be able to write: the places that run or hold runs, and the files that decide.

Both are judged by identity against the write roots that were asked for, before anything is mounted.
"""

import os
import stat
import sys

from launcher import options, runtime, trust
from launcher.fs import searched
from launcher.fs.paths import FLAG, WRITE, ancestors, below, config_home, state_home
from launcher.fs.policy import Filesystem
from launcher.pool.place import NAME as POOL
from launcher.request import Request
from launcher.run import directory, site
from oci.refusal import Refusal, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def forbidden() -> tuple[tuple[str, str, bool], ...]:
    """Return what no write root may be or hold, as (path, what it is, whether none may lie below it either)."""
    home = os.path.expanduser("~")
    datas = _bases("XDG_DATA_HOME", f"{home}/.local/share")
    configs = _bases("XDG_CONFIG_HOME", f"{home}/.config")
    places = _runtime_directories()
    bases = directory.temporary()
    return (
        (home, "your HOME", False),
        *((place, "your runtime directory", False) for place in places),
        *((f"{place}/{name}", "a run's state", True) for place in places for name in _STATE),
        *((base, "a run's state", True) for base in bases),
        # Where podman 5 keeps its own without a session (containers-storage's own fallback).
        *((f"{os.path.dirname(base)}/storage-run-{os.getuid()}", "podman's state", True) for base in bases),
        *((f"{data}/containers", "podman's storage", True) for data in datas),
        ("/var/lib/containers", "podman's storage", True),
        *((cache, "card-run's own runtime", True) for cache in _runtimes()),
        *((f"{data}/card-run", "the registered hooks", True) for data in datas),
        (f"{state_home()}/card-run", "the receipts of ended runs", True),
        *((f"{config}/containers", "podman's configuration", True) for config in configs),
        *((f"{config}/card-run", "card-run's configuration", True) for config in configs),
        (os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "card-run's own code", False),
    )


def hidden() -> tuple[str, ...]:
    """Return what no root shows: podman's storage and state, where it mounts for other containers, and runs' state."""
    datas = _bases("XDG_DATA_HOME", os.path.expanduser("~/.local/share"))
    state = (f"{place}/{name}" for place in _runtime_directories() for name in (*_STATE, "netns"))
    return (*(f"{data}/containers" for data in datas), *state)


def _runtime_directories() -> list[str]:
    return sorted({f"/run/user/{os.getuid()}", os.environ.get("XDG_RUNTIME_DIR") or "/run/user"})


def _bases(variable: str, otherwise: str) -> list[str]:
    """Return where a user's files of a kind are: of a relative path some programs make nothing, and some what it says.

    The XDG base directory specification has it that relative paths are to be ignored.
    """
    value = os.environ.get(variable, "")
    return [value] if value.startswith("/") else [value, otherwise] if value else [otherwise]


def _runtimes() -> list[str]:
    """Return where runtimes are kept: none without a HOME, which refuses the run by itself."""
    try:
        return [runtime.default_cache()]
    except Refused:
        return []


# What card-run, podman and crun keep in a runtime directory.
_STATE = ("card-run", POOL, "containers", "crun", "libpod")


def secluded(roots: Filesystem) -> list[Refusal]:
    """Refuse a root, to read even, that holds what no worker may come near: a worker could open itself anything.

    That is the keys of this user's grants, and the socket of this user's pool, which may listen there later.
    """
    if not roots.roots:
        return []
    places = [(f"{state_home()}/card-run/grants", "grants-exposed", "the keys of your grants")]
    places += [(f"{os.path.dirname(one)}/{POOL}", "pool-exposed", "your pool") for one in directory.parents()]
    return [one for path, reason, what in places if os.path.isdir(path) for one in _held(roots, path, reason, what)]


def _held(roots: Filesystem, path: str, reason: str, what: str) -> list[Refusal]:
    found, holders = os.stat(path), set(ancestors(path))
    text = "{} {} holds {}, or lies among them"
    return [
        Refusal(reason, text.format(FLAG[root.access], root.path, what), "name a narrower path")
        for root in roots.roots
        if (root.device, root.inode) in holders or (found.st_dev, found.st_ino) in ancestors(root.path)
    ]


def deciding_files(request: Request, policy_path: str, roots: Filesystem) -> list[Refusal]:
    """Refuse a file that the worker could write and that decides what its next run may do."""
    reach = _Reach(roots)
    hint = "keep it elsewhere, or protect it: --protect {}"
    card = request.merged.card if request.merged else None
    files = [("policy-writable", "policy file", policy_path, "keep it elsewhere and name it with --egress")]
    files += [("card-writable", "card file", card.path, f"{hint}, or protect = [...] in it")] if card else []
    files += [("env-file-writable", "file of variables", path, hint) for path in request.env_file]
    found: list[Refusal] = []
    for reason, what, path, advice in files:
        root = reach.root(path)
        if root and not (advice.startswith(hint) and reach.fixed(path)):
            text = f"the {what} {path} is inside --write {root}: the worker could rewrite it"
            found.append(Refusal(reason, text, _itself(path, reach) or advice.format(path)))
    return found


def _itself(path: str, reach: "_Reach") -> str:
    """Return what to do about a path with a link in it, which cannot be protected; "" for one without."""
    place = os.path.realpath(path)
    if place == os.path.abspath(path):
        return ""
    also = f", and protect that: --protect {place}" if reach.root(place) else ""
    return f"a link leads to it: name {place} itself{also}"


def configuration(roots: Filesystem) -> list[Refusal]:
    """Refuse what says what runs on the bench, where a link leads to it through what the worker could write."""
    try:
        hint = "keep it elsewhere, name a narrower path, or protect it: --protect {}"
        return _refused(_Reach(roots), _configuration(), hint)
    except Refused as error:
        return list(error.refusals)


def podman(path: str | None, roots: Filesystem) -> list[Refusal]:
    """Refuse a podman that the worker could write: it would run on the bench in the place of the real one."""
    root = _Reach(roots).root(path) if path else ""
    text = f"podman is {path}, inside --write {root}: the worker could rewrite it"
    hint = f"keep it elsewhere, or name another: {searched.NAMED}=PATH"
    return [Refusal("podman-writable", text, hint)] if root else []


def installed(roots: Filesystem) -> list[Refusal]:
    """Refuse this very card-run when the worker could write it, its interpreter, or a module that it would import."""
    hint = "name a narrower path, or install card-run elsewhere, in an environment of its own"
    return _refused(_Reach(roots), _installation(), hint)[:1]


def _refused(reach: "_Reach", places: "Iterator[tuple[str, str]]", hint: str) -> list[Refusal]:
    """Return a refusal for each place of the bench's own, (what it is, path), that the worker could change."""
    if not reach.any:
        return []
    text = "{} {} is reached through --write {}: the worker could change what runs on the bench"
    return [
        Refusal("bench-writable", text.format(what, path, root), hint.format(os.path.realpath(path)))
        for what, path in dict.fromkeys(places)
        if (root := reach.root(path)) and not reach.fixed(path)
    ]


def _configuration() -> "Iterator[tuple[str, str]]":
    """Yield what says what runs on the bench, by whatever links it is found; raises Refused as `site.hooks_dirs`."""
    yield "the file of your defaults", options.user_config()
    what = "podman's configuration"
    for path in (*site.files(), *site.storage_files()):
        yield what, path
        if not path.startswith(("/etc/", "/usr/")):
            yield from ((f"named by {path}:", named) for named in site.named_in(path))
    for folder in (f"{config_home()}/containers", "/etc/containers"):
        yield from ((what, path) for path in _below(folder))
    for name in ("CONTAINERS_REGISTRIES_CONF", "CONTAINERS_HELPER_BINARY_DIR"):
        yield from ((f"named by {name}:", path) for path in [os.environ.get(name)] if path)
    for folder in site.hooks_dirs():
        yield "the hooks directory", folder
        for path in _below(folder):
            yield "the hook", path
            yield from ((f"named by {path}:", named) for named in site.named_in(path))


def _below(folder: str) -> "Iterator[str]":
    """Yield what a folder of configuration has, and what its own folders of drop-ins have."""
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        yield f"{folder}/{name}"
        if name.endswith(".d"):
            yield from _below(f"{folder}/{name}")


def _installation() -> "Iterator[tuple[str, str]]":
    """Yield what this process is made of, and what the bench's loader puts into every other (ld.so(8))."""
    yield "card-run", getattr(sys.modules["__main__"], "__file__", None) or sys.executable
    yield "card-run's Python", sys.executable
    yield "card-run's Python", f"{sys.prefix}/pyvenv.cfg"
    # What is relative and no folder is no place, but a name for an importer (an editable installation's).
    folders = (path for path in sys.path if path.startswith("/") or os.path.isdir(path or "."))
    yield from (("the folder of card-run's modules", path) for path in folders)
    for name in _LOADED:
        entries = os.environ.get(name, "").replace(" ", ":").split(":") if name in os.environ else ()
        yield from ((f"named by {name}:", path) for path in entries if "/" in path or name != "LD_PRELOAD")


_LOADED = ("LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT", "GCONV_PATH")


class _Reach:
    """Where a worker could change what is found by a path: in a write root, or by a link in one that leads there."""

    def __init__(self, roots: Filesystem) -> None:
        self._roots = {(root.device, root.inode): root.path for root in roots.roots if root.access == WRITE}
        self._closed = roots.closed
        self._known: dict[str, str] = {}

    @property
    def any(self) -> bool:
        """Return whether there is a write root at all."""
        return bool(self._roots)

    def root(self, path: str) -> str:
        """Return the write root on the way to a path, there or not, or ""; one lstat(2) more than for its folder."""
        return self._found(os.path.abspath(path)) if self._roots else ""

    def fixed(self, path: str) -> bool:
        """Return whether what a path leads to is held in place, read-only, and no link in a write root leads there."""
        real = os.path.realpath(path)
        try:
            followed = trust.way(os.path.abspath(path))[1]
        except OSError:
            return False
        held = any(real == one or below(real, one) for one in self._closed)
        return held and not any(self._found(os.path.realpath(os.path.dirname(link))) for link in followed)

    def _found(self, path: str) -> str:
        if path not in self._known:
            above = self._found(os.path.dirname(path)) if path != "/" else ""
            self._known[path] = above or self._itself(path)
        return self._known[path]

    def _itself(self, path: str) -> str:
        try:
            found = os.lstat(path)
            if stat.S_ISLNK(found.st_mode):
                found_by = (*trust.way(path)[0], os.path.realpath(path))
                return next((root for one in found_by if (root := self._is(one))), "")
        except OSError:
            return ""
        return self._roots.get((found.st_dev, found.st_ino), "")

    def _is(self, path: str) -> str:
        try:
            found = os.stat(path)
        except OSError:
            return ""
        return self._roots.get((found.st_dev, found.st_ino), "")
