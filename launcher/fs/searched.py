"""Where the programs that run on the bench are looked for, podman before all: PATH's folders (environ(7)), judged.

A virtual environment's `bin` or `node_modules/.bin` of the workspace often stands first on PATH, and a worker can put a
program there. The rule: what only root can change is searched first, and is all that podman and its helpers are looked
for in; where podman is nowhere else, its own folder comes last, and a podman that the worker could replace is not run,
and one that it put before the real one is taken away (`launcher.fs.aftermath`).
"""

import os
import stat

from launcher.fs.paths import WRITE, Root, ancestors
from launcher.value import Value
from oci.refusal import Refusal, Refused

NAMED = "CARD_RUN_PODMAN"
# What a login has without a PATH.
_SYSTEM = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NAME = "podman"


class Programs(Value):
    """What PATH comes to: podman, or None; the folders that programs are looked for in; podmans that were passed over.

    `before` are the paths of folders that are not root's alone where a podman would be found before this one.
    """

    podman: str | None
    folders: tuple[str, ...]
    passed: tuple[str, ...] = ()
    before: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """Return the PATH of what runs on the bench; a folder with a colon in its name cannot be on one."""
        return ":".join(folder for folder in self.folders if ":" not in folder)

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of what runs on the bench: ours, but for PATH."""
        return {**os.environ, "PATH": self.path}

    @property
    def notes(self) -> tuple[str, ...]:
        """Return a line when PATH has another podman first than the one that is used."""
        if not self.passed:
            return ()
        why = "in a folder that others than root can change"
        return (f"passing over {' and '.join(self.passed)}, {why}, for {self.podman}; {NAMED}=PATH chooses another",)


def look() -> Programs:
    """Return what PATH and CARD_RUN_PODMAN come to now; raises Refused (`bad-podman`) for a podman that is none."""
    known: dict[str, tuple[str, bool]] = {}
    folders = _folders(os.environ.get("PATH", os.defpath), known)
    trusted = [folder for folder, good in folders if good]
    named = os.environ.get(NAMED)
    if named:
        return Programs(podman=_named(named), folders=_with(trusted, os.path.dirname(named), known))
    places = [_in(folder) for folder, _ in folders]
    others = [_in(folder) for folder, good in folders if not good]
    found = next(filter(runs, map(_in, trusted)), None)
    if found is not None:
        earlier = [place for place in places[: places.index(found)] if place in others and runs(place)]
        # One that is only another name of the same is no other podman.
        passed = tuple(place for place in earlier if os.path.realpath(place) != os.path.realpath(found))
        return Programs(podman=found, folders=_given(trusted, known), passed=passed)
    found = next(filter(runs, others), None)
    before = tuple(others[: others.index(found)] if found else others)
    given = _with(trusted, os.path.dirname(found), known) if found else _given(trusted, known)
    return Programs(podman=found, folders=given, before=before)


def environment() -> dict[str, str]:
    """Return the environment of what runs on the bench, as PATH is now; raises as `look` does."""
    return look().environment


def program(name: str) -> str:
    """Return the absolute path of a program of the bench; raises Refused (`no-program`)."""
    folders = look().folders
    found = next(filter(runs, (f"{folder}/{name}" for folder in folders)), None)
    if found is None:
        text = f"{name} is in none of {', '.join(folders)}"
        raise Refused([Refusal("no-program", text, "only folders of PATH that root alone can change are searched")])
    return found


def runs(path: str) -> bool:
    """Return whether a file is there that would be run."""
    return os.path.isfile(path) and os.access(path, os.X_OK)


def planted(before: tuple[str, ...], roots: tuple[Root, ...]) -> tuple[str, ...]:
    """Return those paths of `Programs.before` that are in a write root."""
    if not any(root.access == WRITE for root in roots):
        return ()
    return tuple(path for path in before if _writable(os.path.dirname(path), roots))


def _named(path: str) -> str:
    hint = f"{NAMED} takes the absolute path of a podman"
    if not path.startswith("/"):
        raise Refused([Refusal("bad-podman", f"{NAMED}={path} is relative", hint)])
    if not runs(path):
        raise Refused([Refusal("bad-podman", f"{NAMED}={path} is no program", hint)])
    return path


def _folders(path: str, known: dict[str, tuple[str, bool]]) -> list[tuple[str, bool]]:
    """Return the absolute folders of a PATH and whether root alone can change each, which then is its real path."""
    return list(dict.fromkeys(_seen(folder, known) for folder in path.split(":") if folder.startswith("/")))


def _given(trusted: list[str], known: dict[str, tuple[str, bool]]) -> tuple[str, ...]:
    """Return where programs are looked for: never nowhere, which execvp(3) would take for a list of its own."""
    return tuple(trusted or [path for path, good in _folders(_SYSTEM, known) if good] or os.defpath.split(":")[::-1])


def _with(trusted: list[str], folder: str, known: dict[str, tuple[str, bool]]) -> tuple[str, ...]:
    """Return where programs are looked for, podman's own folder last."""
    return tuple(dict.fromkeys((*_given(trusted, known), _seen(folder, known)[0])))


def _seen(folder: str, known: dict[str, tuple[str, bool]]) -> tuple[str, bool]:
    """Return whether root alone can change a folder and every one above its real path, and that path; else itself.

    One lstat(2) for each folder that is not `known` yet, which shares those above. What cannot be seen is not trusted.
    """
    if folder not in known:
        try:
            real, good = _judged(folder, known)
        except OSError:
            real, good = folder, False
        known[folder] = (real if good else folder, good)
    return known[folder]


def _judged(folder: str, known: dict[str, tuple[str, bool]]) -> tuple[str, bool]:
    if folder == "/":
        return folder, _roots_alone(folder, os.lstat(folder))
    if os.path.normpath(folder) != folder:
        return _seen(os.path.realpath(folder, strict=True), known)
    above, good = _seen(os.path.dirname(folder), known)
    place = f"{above.rstrip('/')}/{os.path.basename(folder)}"
    found = os.lstat(place)
    if stat.S_ISLNK(found.st_mode):
        return _seen(os.path.realpath(place, strict=True), known)
    return place, good and stat.S_ISDIR(found.st_mode) and _roots_alone(place, found)


def _roots_alone(path: str, found: os.stat_result) -> bool:
    """Return whether root owns a folder and we could not write it: as anybody, as of its group, or by its ACL (acl(5)).

    The bits of the group are an ACL's mask, so it is asked only where they let anybody write.
    """
    if found.st_uid != 0 or found.st_mode & stat.S_IWOTH:
        return False
    if not found.st_mode & stat.S_IWGRP:
        return True
    return found.st_gid not in (os.getegid(), *os.getgroups()) and not os.access(path, os.W_OK)


def _in(folder: str) -> str:
    return f"{folder}/{_NAME}"


def _writable(folder: str, roots: tuple[Root, ...]) -> bool:
    holders = set(ancestors(folder))
    return any(root.access == WRITE and (root.device, root.inode) in holders for root in roots)
