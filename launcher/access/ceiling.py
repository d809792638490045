"""Restricting a profile: what it may do and a ceiling may do too, and never more.

`restrict` is the least of two profiles, place by place. Both say for each path of the bench what its deepest root says,
so their minimum changes only where one of them has a root: the result has the roots of both. A root of the ceiling so
bounds every root of the base inside it, and is itself a root in each root of the base that holds it.

A bench's ceiling may leave its workspace open: it then speaks of wherever a card's workspace is, and its roots still
bound that place. What a ceiling does not state is deny.
"""

from launcher.access import judge
from launcher.access.judge import HOMES, ISOLATIONS, LEVELS, UNCONFINED
from launcher.access.profile import Answers, Profile, Root, refuse
from launcher.access.scope import deepest, holds, levels

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TABLE = "ceiling"
_Pair = tuple[str, str]


class Ceiling(Answers):
    """A profile without a place of its own: `workspace` is the tree that cards' workspaces are in, or "" for any.

    Raises Refused (`access-profile`) with every problem at once.
    """

    workspace: str = ""

    if not TYPE_CHECKING:  # checkers see the fields, as for any Value

        def __init__(self, **given: "Any") -> None:
            super().__init__(**given)
            fields = {name: value for name, value in self.as_dict().items() if name != "roots" and value != ""}
            refuse(judge.problems(fields, [root.as_dict() for root in self.roots]), table=TABLE)

    def over(self, workspace: str) -> Profile:
        """Return the profile that this ceiling is for a card with that workspace.

        With a workspace of its own it is just that: one outside of it is bounded by `host_*`. Without, it is as if its
        workspace were the card's, less what its roots say of that place.
        """
        if self.workspace:
            return Profile(**self.as_dict())
        above = [root for root in self.roots if holds(root.path, workspace)]
        changes: dict[str, Any] = {"workspace": workspace}
        if above:
            nearest = max(above, key=lambda root: len(root.path))
            changes["workspace_read"] = least(self.workspace_read, nearest.read)
            changes["workspace_write"] = least(self.workspace_write, nearest.write)
        changes["roots"] = tuple(root for root in self.roots if root.path != workspace)
        return Profile(**{**self.as_dict(), **changes})


def least(one: str, other: str, words: tuple[str, ...] = LEVELS) -> str:
    """Return the more closed of two words of a list that has the closed one first."""
    return words[min(words.index(one), words.index(other))]


def restrict(base: Profile, ceiling: Profile | Ceiling) -> Profile:
    """Return the base, with nothing that the ceiling does not have: `access_for` is at most what either answers.

    The workspace stays the base's. Restricting again by the same ceiling changes nothing, and two ceilings answer alike
    in either order. A root that only the ceiling has is left out where it says what is around it anyway.
    """
    held = ceiling.over(base.workspace) if isinstance(ceiling, Ceiling) else ceiling
    isolation = least(base.isolation, held.isolation, ISOLATIONS)
    places = _places(base, held)
    (host_read, host_write), (workspace_read, workspace_write) = places.pop(""), places.pop(base.workspace)
    return Profile(
        workspace=base.workspace,
        workspace_read=workspace_read,
        workspace_write=workspace_write,
        host_read=host_read,
        host_write=host_write,
        network=least(base.network, held.network),
        command=least(base.command, held.command),
        home=least(base.home, held.home, HOMES),
        isolation=isolation,
        ack_unconfined=isolation == UNCONFINED,
        roots=tuple(Root(path=path, read=read, write=write) for path, (read, write) in places.items()),
    )


def _places(base: Profile, held: Profile) -> dict[str, _Pair]:
    """Return (read, write) of the bench (""), of the workspace, and of each root that is needed."""
    tables = [(levels(profile, write=False), levels(profile, write=True)) for profile in (base, held)]
    own = {root.path for root in base.roots}
    found: dict[str, _Pair] = {path: _minimum(tables, path) for path in ("", base.workspace)}
    for path in sorted({*own, held.workspace, *(root.path for root in held.roots)} - {base.workspace}):
        pair = _minimum(tables, path)
        around = found[max((top for top in found if top != path and holds(top, path)), key=len)]
        if path in own or pair != around:
            found[path] = pair
    return found


def _minimum(tables: list[tuple[dict[str, int], dict[str, int]]], path: str) -> _Pair:
    read, write = (LEVELS[min(deepest(table[index], path) for table in tables)] for index in (0, 1))
    return read, write
