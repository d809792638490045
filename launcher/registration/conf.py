"""containers.conf(5) and its drop-ins: which hook directories podman ends up with, and ours among them.

`hooks_dir` replaces what earlier files said, so a drop-in that adds ours must name the site's own again, and one
further along that does not name ours takes our hooks away without a word. Edits keep comments and everything else.
"""

import os
from collections.abc import Mapping
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


def chain(instead: Mapping[str, bytes | None] | None = None, *, everyone: bool = False) -> list[Named]:
    """Return the files that set `hooks_dir`, in podman's order; raises Refused for one that cannot be parsed.

    `instead` gives other bytes for a path, None for no such file: what podman would do after a change. With `everyone`
    it is what holds for every user of the bench, whatever the caller's own configuration.
    """
    given = instead or {}
    directories = [site.DEFAULT]
    found: list[Named] = []
    files = list(site.files(everyone=everyone))
    if everyone or not os.environ.get("CONTAINERS_CONF"):
        files = _with(files, [path for path, data in given.items() if data is not None])
    for path in files:
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
        if path in files or not folder.endswith("/containers.conf.d"):
            continue
        before = [at for at, other in enumerate(files) if _precedes(other, path, folder)]
        files.insert(before[-1] + 1 if before else 0, path)
    return files


def _precedes(other: str, path: str, folder: str) -> bool:
    return other == folder.removesuffix(".d") or (os.path.dirname(other) == folder and other < path)


def effective(instead: Mapping[str, bytes | None] | None = None, *, everyone: bool = False) -> tuple[str, ...]:
    """Return the hook directories that podman uses; raises Refused as `chain` does."""
    found = chain(instead, everyone=everyone)
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
    engine = _engine(path, document.setdefault("engine", tomlkit.table()))
    engine["hooks_dir"] = tomlkit.item(list(directories)).multiline(multiline=True)
    return tomlkit.dumps(document).encode()


def without_directories(path: str, text: bytes, before: bytes | None, directories: tuple[str, ...]) -> bytes | None:
    """Return the text of a file that was changed since without our part; None when it holds nothing else.

    `directories` are those that were named there, ours last, and `before` is what the file was then. As long as they
    are what it names, they become what they were: a list that stayed would keep out what the site names later. A list
    that somebody changed only loses ours. Raises Refused when the file is not TOML.
    """
    document = _parse(path, text if before is not None else text.replace(_HEAD.encode(), b"", 1))
    engine = _engine(path, cast("dict[str, Any]", document).get("engine", tomlkit.table()))
    listed: Any = cast("dict[str, Any]", engine).get("hooks_dir")
    if listed == list(directories):
        _restore(document, engine, {} if before is None else _parse(path, before))
    elif isinstance(listed, list) and directories[-1] in listed:
        listed.remove(directories[-1])  # pyright: ignore[reportUnknownMemberType]
    left = tomlkit.dumps(document)
    if before is None:
        left = left.lstrip("\n")  # what parted the table from our header
    return left.encode() if left.strip() else None


def _engine(path: str, item: object) -> Table:
    if not isinstance(item, Table):
        raise Refused([Refusal("containers-conf", f"{path}: engine is not a table", "mend it first")])
    return item


def _restore(document: tomlkit.TOMLDocument, engine: Table, before: Mapping[str, Any]) -> None:
    """Give `hooks_dir` the value that it had, or take it away, and with it a table that then holds nothing."""
    was: Mapping[str, Any] = before.get("engine", {})
    if "hooks_dir" in was:
        engine["hooks_dir"] = was["hooks_dir"]
        return
    del engine["hooks_dir"]
    if "engine" not in before and not engine.as_string().strip():
        del document["engine"]


def _parse(path: str, text: bytes) -> tomlkit.TOMLDocument:
    try:
        return tomlkit.parse(text)
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise Refused([Refusal("containers-conf", f"{path} cannot be parsed: {error}", "mend it first")]) from None
