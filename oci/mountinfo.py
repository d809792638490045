"""The mounts of a mount namespace, from proc_pid_mountinfo(5). Pure; imports nothing."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T")


def mounts(data: bytes) -> "list[tuple[str, str, str]]":
    """Return (id, root, mount point) of each line of /proc/PID/mountinfo, as text with surrogates (PEP 383)."""
    return [(number, root, point) for number, (_, root, point) in placed(data).items()]


def placed(data: bytes) -> "dict[str, tuple[str, str, str]]":
    """Return (device as major:minor, root, mount point) by the id of each line, as `mounts` does."""
    lines = (line.split(" ", 5) for line in data.decode("utf-8", "surrogateescape").split("\n"))
    return {fields[0]: (fields[2], _unescaped(fields[3]), _unescaped(fields[4])) for fields in lines if len(fields) > 5}


def innermost(point: str, places: "dict[str, T]", none: "T") -> "T":
    """Return what the innermost of the places above a path has, the path itself excluded; `none` where none is."""
    holders = [place for place in places if point.startswith(f"{place}/")]
    return places[max(holders, key=len)] if holders else none


def _unescaped(text: str) -> str:
    """Return a path of mountinfo, where space, tab, newline and backslash are octal."""
    if "\\" not in text:
        return text
    for octal, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(octal, character)
    return text
