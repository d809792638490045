"""Paths as a card file writes them, made absolute: from the file's own directory, or from the caller's HOME.

The rule: `~` alone and `~/` at the start are HOME, nothing else is expanded, and no variable ever is. Links are not
followed here: each wall resolves what it is given.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def absolute(text: str, base: str) -> str:
    """Return a path from a file in the directory `base`; a `..` in it is left for the kernel, which knows the links.

    One that is empty stays so, and means nothing.
    """
    if text == "~" or text.startswith("~/"):
        return os.path.expanduser("~") + text[1:]
    if text.startswith("/") or not text:
        return text
    path = os.path.join(base, text)
    return path if ".." in text.split("/") else os.path.normpath(path)


def access(table: "dict[str, Any]", base: str) -> "dict[str, Any]":
    """Return an `[access]` table with its paths absolute; what is not text, or not a table, stays as it is."""
    found = dict(table)
    if isinstance(found.get("workspace"), str):
        found["workspace"] = absolute(found["workspace"], base)
    if isinstance(found.get("roots"), list):
        found["roots"] = [_root(root, base) for root in found["roots"]]
    return found


def _root(root: "Any", base: str) -> "Any":
    """Return a root's table with its path absolute, and what is none as it is."""
    whole: "Any" = isinstance(root, dict) and isinstance(root.get("path"), str)  # pyright: ignore[reportUnknownMemberType]
    return {**root, "path": absolute(root["path"], base)} if whole else root  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
