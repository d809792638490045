"""What of the bench a worker must not be able to write: the places that run or hold runs, and the files that decide.

Both are judged by identity against the write roots that were asked for, before anything is mounted.
"""

import os

from launcher.fs import protect, searched
from launcher.fs.paths import FLAG, WRITE, ancestors, below, state_home
from launcher.fs.policy import Filesystem
from launcher.request import Request
from launcher.run import directory
from oci.refusal import Refusal


def forbidden() -> tuple[tuple[str, str, bool], ...]:
    """Return what no write root may be or hold, as (path, what it is, whether none may lie below it either)."""
    home = os.path.expanduser("~")
    data = os.environ.get("XDG_DATA_HOME") or f"{home}/.local/share"
    cache = os.environ.get("XDG_CACHE_HOME") or f"{home}/.cache"
    config = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    places = {f"/run/user/{os.getuid()}", os.environ.get("XDG_RUNTIME_DIR") or "/run/user"}
    return (
        (home, "your HOME", False),
        *((place, "your runtime directory", False) for place in sorted(places)),
        *((f"{place}/{name}", "a run's state", True) for place in sorted(places) for name in _STATE),
        *((base, "a run's state", True) for base in directory.temporary()),
        (f"{data}/containers", "podman's storage", True),
        ("/var/lib/containers", "podman's storage", True),
        (f"{cache}/card-run", "card-run's own runtime", True),
        (f"{data}/card-run", "the registered hooks", True),
        (f"{state_home()}/card-run", "the receipts of ended runs", True),
        (f"{config}/containers", "podman's configuration", True),
        (f"{config}/card-run", "card-run's configuration", True),
        (os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "card-run's own code", False),
    )


# What card-run, podman and crun keep in a runtime directory.
_STATE = ("card-run", "card-run-pool", "containers", "crun", "libpod")


def grant_keys(roots: Filesystem) -> list[Refusal]:
    """Refuse a root, to read even, that holds the keys of this user's grants: a worker could open itself anything."""
    keys = f"{state_home()}/card-run/grants"
    if not roots.roots or not os.path.isdir(keys):
        return []
    found, holders = os.stat(keys), set(ancestors(keys))
    text = "{} {} holds the keys of your grants, or lies among them"
    return [
        Refusal("grants-exposed", text.format(FLAG[root.access], root.path), "name a narrower path")
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
            found.append(Refusal(reason, text, advice.format(path)))
    return found


def podman(roots: Filesystem) -> list[Refusal]:
    """Refuse a podman that the worker could write: it would run on the bench in the place of the real one."""
    path = searched.podman()
    root = _writable(path, roots) if path else ""
    text = f"podman on PATH is {path}, inside --write {root}: the worker could rewrite it"
    return [Refusal("podman-writable", text, "take that folder off PATH, or keep it elsewhere")] if root else []


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
