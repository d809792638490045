"""What of the bench a worker must not be able to write: the places that run or hold runs, and the files that decide.

Both are judged by identity against the write roots that were asked for, before anything is mounted.
"""

import os

from launcher import runtime
from launcher.fs import protect, searched
from launcher.fs.paths import FLAG, WRITE, ancestors, below, state_home
from launcher.fs.policy import Filesystem
from launcher.pool.place import NAME as POOL
from launcher.request import Request
from launcher.run import directory
from oci.refusal import Refusal, Refused


def forbidden() -> tuple[tuple[str, str, bool], ...]:
    """Return what no write root may be or hold, as (path, what it is, whether none may lie below it either)."""
    home = os.path.expanduser("~")
    datas = _bases("XDG_DATA_HOME", f"{home}/.local/share")
    configs = _bases("XDG_CONFIG_HOME", f"{home}/.config")
    places = {f"/run/user/{os.getuid()}", os.environ.get("XDG_RUNTIME_DIR") or "/run/user"}
    bases = directory.temporary()
    return (
        (home, "your HOME", False),
        *((place, "your runtime directory", False) for place in sorted(places)),
        *((f"{place}/{name}", "a run's state", True) for place in sorted(places) for name in _STATE),
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
    """Return what no root shows: podman's storage, where the file systems of other containers are mounted."""
    return tuple(f"{data}/containers" for data in _bases("XDG_DATA_HOME", os.path.expanduser("~/.local/share")))


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
    hint = "keep it elsewhere, or protect it: --protect {}"
    card = request.merged.card if request.merged else None
    files = [("policy-writable", "policy file", policy_path, "keep it elsewhere and name it with --egress")]
    files += [("card-writable", "card file", card.path, f"{hint}, or protect = [...] in it")] if card else []
    files += [("env-file-writable", "file of variables", path, hint) for path in request.env_file]
    found: list[Refusal] = []
    for reason, what, path, advice in files:
        if advice.startswith(hint) and _protected(path, roots):
            continue
        root = _writable(path, roots)
        if root:
            text = f"the {what} {path} is inside --write {root}: the worker could rewrite it"
            found.append(Refusal(reason, text, _itself(path, roots) or advice.format(path)))
    return found


def _itself(path: str, roots: Filesystem) -> str:
    """Return what to do about a path with a link in it, which cannot be protected; "" for one without."""
    place = os.path.realpath(path)
    if place == os.path.abspath(path):
        return ""
    also = f", and protect that: --protect {place}" if _writable(place, roots) else ""
    return f"a link leads to it: name {place} itself{also}"


def podman(path: str | None, roots: Filesystem) -> list[Refusal]:
    """Refuse a podman that the worker could write: it would run on the bench in the place of the real one."""
    root = _writable(path, roots) if path else ""
    text = f"podman is {path}, inside --write {root}: the worker could rewrite it"
    hint = f"keep it elsewhere, or name another: {searched.NAMED}=PATH"
    return [Refusal("podman-writable", text, hint)] if root else []


def _protected(path: str, roots: Filesystem) -> bool:
    """Return whether a file is held in place, read-only, in the write roots; a link to one is not."""
    place = os.path.abspath(path)
    return place in roots.closed and os.path.realpath(place) == place


def _writable(path: str, roots: Filesystem) -> str:
    """Return the write root that a file is in, or a link on the way to it that the worker could replace; else ""."""
    holders = set(ancestors(path))
    writable = [root for root in roots.roots if root.access == WRITE]
    linked = protect.link(os.path.abspath(path), [root.path for root in writable])
    inside = [root.path for root in writable if (root.device, root.inode) in holders or below(linked, root.path)]
    return inside[0] if inside else ""
