"""Which paths a run gets mounted: the lists of its request, held to its profile, and the places of the profile itself.

The rule: a place is mounted with what its deepest root says, and what lies in a mounted tree with less access than that
is a mount of its own, or the run is refused. A mounted tree has no hole for reading: no wall could keep it.
"""

import os

from launcher.access.judge import ALLOW, GATED, LEVELS
from launcher.access.profile import Profile
from launcher.access.scope import deepest, holds, levels
from launcher.fs.paths import FLAG, NOEXEC, READ, WRITE
from launcher.request import Request
from launcher.value import Value
from oci.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from launcher.grants.token import Grant

_OPEN = LEVELS.index(ALLOW)
LISTS = ((WRITE, "write"), (READ, "read"), (NOEXEC, "read_noexec"))
_NAME = dict(LISTS)
CEILING = "the bench's ceiling"


class Opened(Value):
    """What grants open for one run, each thing gated by its profile: paths, hosts, and whether it may start.

    `variables` is the digest of the worker's variables that the grants were compared with; `grants` are used up before
    the worker starts; `notes` are for who passed them.
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    command: bool = False
    variables: str = ""
    grants: "tuple[Grant, ...]" = ()
    notes: tuple[str, ...] = ()


class Judged:
    """A request being bounded: what it may still ask for, and what there is to say."""

    def __init__(self, request: Request, asked: Profile, held: Profile, opened: Opened, *, top: str) -> None:
        self.request = request
        self.asked = asked
        self.held = held
        self.opened = opened
        self.top = top  # the tree that the ceiling has workspaces in, or ""
        self.stated = request.profile is not None
        self.changes: dict[str, object] = {}
        self.narrowed: list[str] = []
        self.gated: list[str] = []
        self.refusals: list[Refusal] = []

    def refuse(self, reason: str, text: str, hint: str = "") -> None:
        """Add one reason not to start."""
        self.refusals.append(Refusal(reason, text, hint))


def decide(judged: Judged) -> None:
    """Decide every root: those that the request lists, in its order, then those that the profile has besides."""
    found: dict[str, str] = {}
    if judged.stated:
        _place(judged, judged.held.workspace, found)
    listed = [(access, path) for access, name in LISTS for path in getattr(judged.request, name)]
    for access, path in listed:
        _listed(judged, access, path, found)
    for path in sorted(_places(judged.held)):
        if path not in {os.path.realpath(taken) for taken in found}:
            _place(judged, path, found)
    _inside(judged, found)
    found = {**_reading(judged), **found, **dict.fromkeys(judged.opened.write, WRITE)}
    for access, name in LISTS:
        judged.changes[name] = tuple(path for path, taken in found.items() if taken == access)
    judged.changes["protect"] = tuple(
        path for path in judged.request.protect if not _closed_anyway(judged, path, found)
    )
    _start(judged)


def _levels(profile: Profile, path: str) -> tuple[int, int]:
    """Return what a profile answers for reading and for writing a path."""
    return deepest(levels(profile, write=False), path), deepest(levels(profile, write=True), path)


def _listed(judged: Judged, access: str, path: str, found: dict[str, str]) -> None:
    """Decide one path of a list; what is no absolute path is kept for the file system's own judgement."""
    if not _whole(path):
        found[path] = access
        return
    place = os.path.realpath(path)
    asked, held = _levels(judged.asked, place), _levels(judged.held, place)
    wanted, may = (asked[1], held[1]) if access == WRITE else (asked[0], held[0])
    if may < _OPEN and _granted(judged.opened, access, place):
        return  # the grant's own mount is what opens it, as far as the list asks (`_reading`)
    if wanted < _OPEN:
        _beyond(judged, access, path, wanted, may)
    elif access != WRITE and asked[1] == _OPEN and place in _places(judged.asked) and _of_card(judged, access, path):
        text = f"{FLAG[access]} {path!r}: the card lists it as read-only, and its [access] lets it be written"
        judged.refuse("access-contradiction", text, "say it once")
    elif access == WRITE and held[1] < _OPEN <= held[0]:
        judged.narrowed.append(f"{CEILING} keeps {path} read-only")
        found[path] = READ
    elif held[0] < _OPEN:
        judged.narrowed.append(f"{CEILING} closes {path}")
    else:
        found.pop(place, None)
        found[path] = access


def _reading(judged: Judged) -> dict[str, str]:
    """Return what grants have mounted for reading, with no more than the lists of the request ask of those places.

    A grant is not what takes a noexec mount away: not in a listed path, nor from one inside of what it opens.
    """
    lists = [(path, access) for access, name in LISTS for path in getattr(judged.request, name)]
    asked = {os.path.realpath(path): access for path, access in lists if _whole(path)}
    found: dict[str, str] = {}
    for top in judged.opened.read:
        around = [place for place in asked if holds(place, top)]
        found[top] = NOEXEC if around and asked[max(around, key=len)] == NOEXEC else READ
    for place, access in asked.items():
        closed = _levels(judged.held, place)[0] < _OPEN
        if access != WRITE and closed and _granted(judged.opened, access, place):
            found[place] = access
    return found


def _whole(path: str) -> bool:
    return path.startswith("/") and "\0" not in path


def _granted(opened: Opened, access: str, place: str) -> bool:
    tops = opened.write if access == WRITE else (*opened.read, *opened.write)
    return any(holds(top, place) for top in tops)


def _places(profile: Profile) -> set[str]:
    return {profile.workspace, *(root.path for root in profile.roots)}


def _of_card(judged: Judged, access: str, path: str) -> bool:
    """Return whether the card file itself lists a path; a flag may ask for less than the card."""
    merged = judged.request.merged
    return (
        judged.stated
        and merged is not None
        and merged.card is not None
        and path in merged.card.values.get(_NAME[access], ())
    )


def _beyond(judged: Judged, access: str, path: str, wanted: int, may: int) -> None:
    """Refuse what is listed and not allowed: `required` where a grant would open it, else a contradiction."""
    what = "writing" if access == WRITE else "reading"
    if LEVELS[may] == GATED:
        text = f"{FLAG[access]} {path!r}: {what} there is gated: a run needs a grant for it"
        judged.refuse("required", text, "card grant issue")
        return
    level = LEVELS[wanted]
    text = f"{FLAG[access]} {path!r} asks for what the card's [access] does not allow: {what} there is {level}"
    hint = f"{CEILING} denies it" if level == GATED else "make it a root of [access], or leave it out"
    judged.refuse("access-contradiction", text, hint)


def _place(judged: Judged, path: str, found: dict[str, str]) -> None:
    """Decide the workspace, or a root of the profile or of the ceiling, that no list names."""
    asked, held = _levels(judged.asked, path), _levels(judged.held, path)
    own = judged.stated and path in _places(judged.asked)
    if held[1] < _OPEN and _granted(judged.opened, WRITE, path):
        return  # the grant's own mount opens it, and it must not become read-only inside that
    if held[1] == _OPEN or held[0] == _OPEN:
        if not own and not os.path.lexists(path):
            return
        found[path] = WRITE if held[1] == _OPEN else READ
    if own and held[1] < _OPEN == asked[1]:
        judged.narrowed.append(f"{CEILING} {'keeps' if held[0] == _OPEN else 'closes'} {path}" + _read_only(held))
    elif own and held[0] < _OPEN == asked[0]:
        judged.narrowed.append(f"{CEILING} closes {path}")
    closed = [word for word, level in zip(("read", "write"), held, strict=True) if LEVELS[level] == GATED]
    if own and closed and asked == held:
        judged.gated.append(f"{' and '.join(closed)} of {path} is gated: closed without a grant")


def _read_only(held: tuple[int, int]) -> str:
    return " read-only" if held[0] == _OPEN else ""


def _closed_anyway(judged: Judged, path: str, found: dict[str, str]) -> bool:
    """Return whether a protected path lies in what was to be written, and is not: it needs no protection."""
    place = os.path.realpath(path)
    if any(access == WRITE and holds(os.path.realpath(top), place) for top, access in found.items()):
        return False
    return any(holds(os.path.realpath(top), place) for top in (*judged.request.write, *_places(judged.asked)))


def _inside(judged: Judged, found: dict[str, str]) -> None:
    """Refuse each place with less access than the mount around it, which no mount of its own takes out."""
    mounts = {os.path.realpath(path): access for path, access in found.items() if path.startswith("/")}
    for place in sorted(_places(judged.held) - mounts.keys()):
        around = [top for top in mounts if holds(top, place)]
        level = mounts[max(around, key=len)] if around else None
        held = _levels(judged.held, place)
        if level is not None and held[0] < _OPEN:
            _unenforceable(judged, place, max(around, key=len))
        elif level == WRITE and held[1] < _OPEN:
            text = f"{place} stays read-only, and is not there: the worker could make it in {max(around, key=len)}"
            judged.refuse("path-missing", text, "make it first")


def _unenforceable(judged: Judged, place: str, top: str) -> None:
    own = _levels(judged.asked, place)[0] < _OPEN
    reason, whose = ("access-unenforceable", "the card's [access]") if own else ("ceiling-unenforceable", CEILING)
    text = f"{whose} closes {place}, which lies in {top}: no wall takes reading away from a part of a mounted tree"
    judged.refuse(reason, text, "name narrower paths, or keep that place elsewhere")


def _start(judged: Judged) -> None:
    """Keep the worker in its workspace, where that became read-only; without one that it may read there is no run."""
    held, asked = judged.held, judged.asked
    if asked.workspace_read == ALLOW and held.workspace_read != ALLOW:
        hint = f"work below {judged.top}" if judged.top else "work in another place"
        judged.refuse("ceiling-workspace", f"{CEILING} closes the workspace {held.workspace}", hint)
    own = judged.stated or asked.workspace_write == ALLOW
    if own and judged.request.cwd is None and held.workspace_read == ALLOW and os.path.isdir(held.workspace):
        judged.changes["cwd"] = held.workspace
