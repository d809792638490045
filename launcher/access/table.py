"""Reading an access profile from a table of a file: `[access]` of a card, `[ceiling]` of a bench.

The rule: nothing is guessed. A key or word that is not known, a relative path, a second answer for one place: each is a
problem, and all are told at once. Paths are resolved here, once, so that one place has one name and one fingerprint.
"""

import os

from launcher.access import judge
from launcher.access.ceiling import TABLE, Ceiling
from launcher.access.judge import Problem
from launcher.access.profile import Profile, Root, refuse
from launcher.fs.paths import unprintable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def parse(table: "Mapping[str, object]", *, base: str) -> Profile:
    """Return the profile that a table states; raises Refused (`access-profile`) with every problem at once.

    `base` is the directory of the table's file: no path is relative to it, but a hint can say what was meant.
    """
    refuse(problems(table, base=base))
    return Profile(**_fields(table))


def parse_ceiling(table: "Mapping[str, object]", *, base: str) -> Ceiling:
    """Return the ceiling that a table states, its workspace optional; raises Refused with every problem at once."""
    refuse(problems(table, base=base, workspace=False), table=TABLE)
    return Ceiling(**_fields(table))


def problems(table: "Mapping[str, object]", *, base: str, workspace: bool = True) -> list[Problem]:
    """Return everything that is wrong with a table, each problem with the keys that lead to it; empty when it parses.

    With `workspace` a table without that key is wrong.
    """
    found: list[Problem] = []
    if workspace and "workspace" not in table:
        text = "there is no workspace"
        found.append(Problem(where=("workspace",), text=text, hint="name the card's own directory: workspace = '/...'"))
    roots = table.get("roots", [])
    if not isinstance(roots, list):
        found.append(Problem(where=("roots",), text="it is not a list of tables", hint="write [[access.roots]]"))
        roots = []
    good: list[Mapping[str, object]] = []
    for index, root in enumerate(roots):  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
        if isinstance(root, dict):
            good.append(_resolved(root, "path"))  # pyright: ignore[reportUnknownArgumentType]
        else:
            text = f"{root!r} is not a table with a path"
            found.append(Problem(where=("roots", index), text=text))
            good.append({"path": "/..."})  # keeps the numbers of those after it
    rest = {name: value for name, value in table.items() if name != "roots"}
    judged = judge.problems(_resolved(rest, "workspace"), good)
    return [*found, *(_with_base(one, base) for one in judged)]


def _resolved(table: "Mapping[str, object]", key: str) -> "dict[str, Any]":
    """Return a table with its path resolved through its links, where it is one; what is relative stays as it is."""
    value = table.get(key)
    if isinstance(value, str) and value.startswith("/") and not unprintable(value):
        return {**table, key: os.path.realpath(value)}
    return dict(table)


def _with_base(problem: Problem, base: str) -> Problem:
    if not problem.text.endswith(" is relative"):
        return problem
    return problem.replace(hint=f"write it whole, {base}/... for what lies beside this file")


def _fields(table: "Mapping[str, Any]") -> "dict[str, Any]":
    resolved: list[dict[str, Any]] = [_resolved(root, "path") for root in table.get("roots", ())]
    return {**_resolved(table, "workspace"), "roots": tuple(Root(**root) for root in resolved)}
