"""containers.conf(5) and its drop-ins: which hook directories podman ends up with, and ours among them.

`hooks_dir` replaces what earlier files said, so a drop-in that adds ours must name the site's own again, and one
further along that does not name ours takes our hooks away without a word. Edits keep comments and everything else.
"""

import os
from typing import Any, cast

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import Table

from launcher.run import site
from launcher.value import Value
from oci.refusal import Refusal, Refused


class Named(Value):
    """One file that sets `hooks_dir`: its path, and the directories podman has once it was read."""

    path: str
    directories: tuple[str, ...]


def chain(instead: dict[str, bytes | None] | None = None) -> list[Named]:
    """Return the files that set `hooks_dir`, in podman's order; raises Refused for one that cannot be parsed.

    `instead` gives other bytes for a path, None for no such file: what podman would do after a change.
    """
    given = instead or {}
    directories = [site.DEFAULT]
    found: list[Named] = []
    for path in _with(list(site.files()), [path for path, data in given.items() if data is not None]):
        data = given[path] if path in given else read(path)
        if data is None:
            continue
        later = site.after(path, data, directories)
        if later is not directories:
            directories = later
            found.append(Named(path=path, directories=tuple(dict.fromkeys(directories))))
    return found


def _with(files: list[str], more: list[str]) -> list[str]:
    """Return the files with those that podman would read too once they exist, each in the order of its folder."""
    for path in more:
        folder = os.path.dirname(path)
        if path in files or not folder.endswith("/containers.conf.d") or os.environ.get("CONTAINERS_CONF"):
            continue
        before = [at for at, other in enumerate(files) if _precedes(other, path, folder)]
        files.insert(before[-1] + 1 if before else 0, path)
    return files


def _precedes(other: str, path: str, folder: str) -> bool:
    return other == folder.removesuffix(".d") or (os.path.dirname(other) == folder and other < path)


def effective(instead: dict[str, bytes | None] | None = None) -> tuple[str, ...]:
    """Return the hook directories that podman uses; raises Refused as `chain` does."""
    found = chain(instead)
    return found[-1].directories if found else (site.DEFAULT,)


def read(path: str) -> bytes | None:
    """Return a file's bytes, or None when there is none that can be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


_HEAD = """\
# Written by `card hooks install`; `card hooks uninstall` takes it away again.
# hooks_dir replaces what earlier files say, so the directories they name are named here too, before card-run's.
"""


def with_directories(path: str, before: bytes | None, directories: tuple[str, ...]) -> bytes:
    """Return the file's text with exactly these hook directories; raises Refused when it is not TOML.

    Everything else in it stays as it is: comments, order and spelling.
    """
    document = _parse(path, before if before is not None else _HEAD.encode())
    engine = document.setdefault("engine", tomlkit.table())
    if not isinstance(engine, Table):
        raise Refused([Refusal("containers-conf", f"{path}: engine is not a table")])
    engine["hooks_dir"] = tomlkit.item(list(directories)).multiline(multiline=True)
    return tomlkit.dumps(document).encode()


def without_directory(path: str, text: bytes, directory: str) -> bytes:
    """Return the file's text with one hook directory taken out of its list; raises Refused when it is not TOML."""
    document = _parse(path, text)
    whole = cast("dict[str, Any]", document)
    listed: list[Any] = whole.get("engine", {}).get("hooks_dir", [])
    if directory in listed:
        listed.remove(directory)
    return tomlkit.dumps(document).encode()


def _parse(path: str, text: bytes) -> tomlkit.TOMLDocument:
    try:
        return tomlkit.parse(text)
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise Refused([Refusal("containers-conf", f"{path} cannot be parsed: {error}", "mend it first")]) from None
