"""The site's own hook directories: what podman would use if we did not name ours (containers.conf(5) `hooks_dir`).

`--hooks-dir` replaces them all, so they are named again, before ours: a file of ours then wins over one of the same
name. TOML is parsed only where the option is set: that would cost every card 10 ms.
"""

import os

from launcher.fs.paths import config_home, promptly
from oci.refusal import Refusal, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

DEFAULT = "/usr/share/containers/oci/hooks.d"
_LIMIT = 1 << 20
_STARTS = ("", "~", "$HOME")
_STORAGE = ("/etc/containers/storage.conf", "/usr/share/containers/storage.conf")


def hooks_dirs() -> tuple[str, ...]:
    """Return the directories, in podman's order; raises Refused for a containers.conf that cannot be parsed."""
    found: list[str] = [DEFAULT]
    for path in files():
        try:
            with open(path, "rb") as file:
                found = after(path, file.read(), found)
        except OSError:
            continue
    return tuple(dict.fromkeys(found))


def files(*, everyone: bool = False) -> "Iterator[str]":
    """Yield the configuration files that podman reads, the later ones winning; not all of them exist.

    With `everyone` those of every user alike: nothing of the caller's environment or home directory.
    """
    only = os.environ.get("CONTAINERS_CONF")
    if only and not everyone:
        yield only
        return
    for base in ("/usr/share/containers", "/etc/containers", *(() if everyone else (f"{config_home()}/containers",))):
        yield f"{base}/containers.conf"
        folder = f"{base}/containers.conf.d"
        if os.path.isdir(folder):
            yield from (f"{folder}/{name}" for name in sorted(os.listdir(folder)) if name.endswith(".conf"))


def remote() -> str:
    """Return the file that makes podman a client of a remote one (`[engine] remote`), "" where none does."""
    import tomllib  # only once podman has failed

    found = ""
    for path in files():
        try:
            with open(path, "rb") as file:
                said = tomllib.load(file).get("engine", {}).get("remote")
        except (OSError, ValueError):
            continue
        found = found if said is None else path if said else ""
    return found


def storage_files() -> list[str]:
    """Return the files that may say where podman's storage is, there or not (containers-storage.conf(5))."""
    named = os.environ.get("CONTAINERS_STORAGE_CONF")
    return [*([named] if named else []), f"{config_home()}/containers/storage.conf", *_STORAGE]


def named_in(path: str) -> "Iterator[str]":
    """Yield each absolute path that a file of configuration has in quotes, comments left out: what it names.

    A leading `~` or `$HOME` is the user's own (containers.conf(5), containers-storage.conf(5)).
    """
    try:
        with open(path, "rb", opener=promptly) as file:
            text = file.read(_LIMIT).decode("utf-8", "surrogateescape")
    except OSError:
        return
    home = os.path.expanduser("~")
    for line in text.split("\n"):
        for word in line.partition("#")[0].replace("'", '"').split('"')[1::2]:
            first, slash, rest = word.partition("/")
            if slash and first in _STARTS:
                yield f"{home if first else ''}/{rest}"


def after(path: str, data: bytes, before: list[str]) -> list[str]:
    """Return the directories once this file was read too; raises Refused when it names some and cannot be parsed."""
    # The files that distributions ship name every option in a comment: those need no parsing.
    if not _has(data, b"hooks_dir"):
        return before
    import tomllib  # 13 ms, only on a bench that has hook directories of its own

    try:
        table: "dict[str, Any]" = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Refused([Refusal("containers-conf", f"{path} cannot be parsed: {error}")]) from None
    value: "list[Any] | None" = table.get("engine", {}).get("hooks_dir")
    if value is None:
        return before
    named = [str(one) for one in value if isinstance(one, str)]
    append = {"append": True} in value
    return before + named if append else named


def _has(data: bytes, word: bytes) -> bool:
    """Return whether a word is anywhere outside of lines that are comments; does not look at every line."""
    at = data.find(word)
    while at >= 0:
        if not data[data.rfind(b"\n", 0, at) + 1 : at].lstrip().startswith(b"#"):
            return True
        at = data.find(word, at + 1)
    return False
