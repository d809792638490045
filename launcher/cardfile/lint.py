"""Everything that is wrong with a card file, or with a user's defaults, told as compilers tell it.

Beside what every reading finds, this says what a run would find without looking at more of the bench than the file's
own place: a card that the worker could rewrite.
"""

import os
from typing import Any

from launcher import options, trust
from launcher.cardfile import load, paths, position
from launcher.cardfile.keys import ACCESS
from launcher.cardfile.load import Located
from launcher.fs.paths import below
from oci.refusal import Refusal, Refused


def problems(path: str) -> list[Located]:
    """Return every problem of a file, in the order of its lines; raises Refused when it cannot be read at all."""
    place = os.path.abspath(path)
    found = trust.read(place, (os.getuid(), 0))
    if found.data is None:
        faults = found.faults or ("there is no such file",)
        raise Refused([Refusal("card-missing", f"{path}: {fault}") for fault in faults])
    defaults = place == options.user_config()
    table, located = load.judged(found.data, base=os.path.dirname(place), defaults=defaults)
    if not located and not defaults:
        located = _rewritable(table, place, position.marks(found.data.decode()))
    return located


def _rewritable(table: dict[str, Any], place: str, marks: dict[position.Where, position.Mark]) -> list[Located]:
    """Return the writable places that hold the card itself, unless it is protected in them."""
    base, itself = os.path.dirname(place), os.path.realpath(place)
    if itself in [os.path.realpath(paths.absolute(path, base)) for path in table.get("protect", ())]:
        return []
    text = "the card file is in here, so the worker could rewrite it, and a run is refused"
    hint = f'protect = ["{os.path.basename(place)}"], or keep the card elsewhere'
    found: list[Located] = []
    for where, path in _writable(table):
        if below(itself, os.path.realpath(paths.absolute(path, base))):
            line, column = position.nearest(marks, where).value
            key = ".".join(str(step) for step in where)
            found.append(Located(line=line, column=column, key=key, text=text, hint=hint))
    return found


def _writable(table: dict[str, Any]) -> list[tuple[position.Where, str]]:
    found: list[tuple[position.Where, str]] = [
        (("write", index), path) for index, path in enumerate(table.get("write", ()))
    ]
    access: dict[str, Any] = table.get(ACCESS, {})
    if access.get("workspace_write") == "allow":
        found.append(((ACCESS, "workspace"), access["workspace"]))
    for index, root in enumerate(access.get("roots", ())):
        if root.get("write") == "allow":
            found.append(((ACCESS, "roots", index, "path"), root["path"]))
    return found
