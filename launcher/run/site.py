"""The site's own hook directories: what podman would use if we did not name ours (containers.conf(5) `hooks_dir`).

`--hooks-dir` replaces them all, so they are named again, before ours: a file of ours then wins over one of the same
name. TOML is parsed only where the option is set: that would cost every card 10 ms.
"""

import os

from oci.refusal import Refusal, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_DEFAULT = "/usr/share/containers/oci/hooks.d"


def hooks_dirs() -> tuple[str, ...]:
    """Return the directories, in podman's order; raises Refused for a containers.conf that cannot be parsed."""
    found: list[str] = [_DEFAULT]
    for path in _files():
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError:
            continue
        # The files that distributions ship name every option in a comment: those need no parsing.
        if any(line.lstrip().startswith(b"hooks_dir") for line in data.split(b"\n")):
            found = _parse(path, data, found)
    return tuple(dict.fromkeys(found))


def _files() -> "Iterator[str]":
    """Yield the configuration files, the later ones winning."""
    only = os.environ.get("CONTAINERS_CONF")
    if only:
        yield only
        return
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    for base in ("/usr/share/containers", "/etc/containers", f"{config}/containers"):
        yield f"{base}/containers.conf"
        folder = f"{base}/containers.conf.d"
        if os.path.isdir(folder):
            yield from (f"{folder}/{name}" for name in sorted(os.listdir(folder)) if name.endswith(".conf"))


def _parse(path: str, data: bytes, before: list[str]) -> list[str]:
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
