"""Where a profile turns into what is mounted and reached: a request goes in, one that asks for no more comes out.

A run by flags alone has the profile that its flags imply; a card may state its own; the bench's ceiling restricts
both. The rule: never wider. What the ceiling takes away is told in a sentence each, what a profile leaves gated stays
closed unless a grant opened it for this run (`Opened`), and what no wall could hold, or makes no sense any more, is
refused. Pure but for resolving links.
"""

import os

from launcher.access.ceiling import restrict
from launcher.access.compiled import unavailable
from launcher.access.judge import ALLOW, DENY, GATED, ISOLATED, LEVELS
from launcher.access.profile import Profile, Root
from launcher.access.scope import deepest, holds, levels
from launcher.bench import CeilingFile
from launcher.fs.paths import FLAG, NOEXEC, READ, WRITE
from launcher.fs.policy import HOME
from launcher.request import Request
from launcher.value import Value
from oci.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from launcher.grants.token import Grant

_OPEN = LEVELS.index(ALLOW)
_LISTS = ((WRITE, "write"), (READ, "read"), (NOEXEC, "read_noexec"))
_NAME = dict(_LISTS)
_NO_NETWORK = "none"
CEILING = "the bench's ceiling"


class Opened(Value):
    """What grants open for one run, each thing gated by its profile: paths, hosts, and whether it may start.

    `grants` are used up before the worker starts; `notes` are for who passed them.
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    command: bool = False
    grants: "tuple[Grant, ...]" = ()
    notes: tuple[str, ...] = ()


class Bounds(Value):
    """What a run was held to: its profile before and after the ceiling, and in words what that took away or gates."""

    asked: Profile
    profile: Profile
    ceiling: CeilingFile | None
    narrowed: tuple[str, ...]
    gated: tuple[str, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """Return everything there is to say about it."""
        return self.narrowed + self.gated


class _Judged:
    """A request being bounded: what it may still ask for, and what there is to say."""

    def __init__(self, request: Request, asked: Profile, held: Profile, opened: Opened) -> None:
        self.request = request
        self.asked = asked
        self.held = held
        self.opened = opened
        self.stated = request.profile is not None
        self.changes: dict[str, object] = {}
        self.narrowed: list[str] = []
        self.gated: list[str] = []
        self.refusals: list[Refusal] = []

    def refuse(self, reason: str, text: str, hint: str = "") -> None:
        self.refusals.append(Refusal(reason, text, hint))


def implied(request: Request) -> Profile:
    """Return the profile that flags state by themselves: what they name is allowed, and everything else denied.

    The workspace is the first `--write`, else the first path to read, else the card's own HOME.
    """
    named: dict[str, str] = {}
    for access, name in _LISTS:
        for path in getattr(request, name):
            if path.startswith("/") and "\0" not in path:
                named.setdefault(os.path.realpath(path), access)
    places = [Root(path=path, read=ALLOW, write=ALLOW if access == WRITE else DENY) for path, access in named.items()]
    first = places[0] if places else Root(path=HOME)
    return Profile(
        workspace=first.path,
        workspace_read=first.read,
        workspace_write=first.write,
        network=DENY if request.net == _NO_NETWORK else ALLOW,
        command=ALLOW,
        home=request.home,
        roots=tuple(places[1:]),
    )


def bound(
    request: Request, ceiling: CeilingFile | None, opened: Opened | None = None
) -> tuple[Request, Bounds, list[Refusal]]:
    """Return the request with what its profile and the ceiling leave of it, what it was held to, and refusals."""
    asked = request.profile or implied(request)
    held = restrict(asked, ceiling.ceiling) if ceiling else asked
    judged = _Judged(request, asked, held, opened or Opened())
    _enforceable(judged)
    _command(judged)
    _files(judged)
    _network(judged)
    _home(judged)
    bounds = Bounds(
        asked=asked, profile=held, ceiling=ceiling, narrowed=tuple(judged.narrowed), gated=tuple(judged.gated)
    )
    return request.replace(**judged.changes), bounds, judged.refusals


def may_write(ceiling: CeilingFile, path: str) -> bool:
    """Return whether the ceiling, as it is for no card in particular, lets a path be written."""
    place = os.path.realpath(path)
    bench = Profile(**{**ceiling.ceiling.as_dict(), "workspace": ceiling.ceiling.workspace or HOME})
    return deepest(levels(bench, write=True), place) == _OPEN


def _enforceable(judged: _Judged) -> None:
    own = unavailable(judged.asked) if judged.stated else ()
    for row in own:
        judged.refuse("access-unenforceable", f"access.{row.feature} = {row.asked}: {row.text}")
    known = {row.feature for row in own}
    for row in unavailable(judged.held):
        if row.feature not in known:
            judged.refuse("ceiling-unenforceable", f"{CEILING}: {row.feature} = {row.asked}: {row.text}")


def _command(judged: _Judged) -> None:
    if judged.held.command == ALLOW or (judged.held.command == GATED and judged.opened.command):
        return
    if judged.asked.command == ALLOW:
        hint = "a grant opens it" if judged.held.command == GATED else ""
        judged.refuse("ceiling-command", f"{CEILING} says command = {judged.held.command}: nothing is started", hint)
    elif judged.held.command == GATED:
        judged.refuse("required", "access.command is gated: a run needs a grant for its command", "card grant issue")
    else:
        judged.refuse("denied", "access.command is deny: this card starts nothing")


def _files(judged: _Judged) -> None:
    """Decide every root: those that the request lists, in its order, then those that the profile has besides."""
    found: dict[str, str] = {}
    if judged.stated:
        _place(judged, judged.held.workspace, found)
    listed = [(access, path) for access, name in _LISTS for path in getattr(judged.request, name)]
    for access, path in listed:
        _listed(judged, access, path, found)
    for root in judged.held.roots:
        if os.path.realpath(root.path) not in {os.path.realpath(path) for path in found}:
            _place(judged, root.path, found)
    found = {**dict.fromkeys(judged.opened.read, READ), **found, **dict.fromkeys(judged.opened.write, WRITE)}
    for access, name in _LISTS:
        judged.changes[name] = tuple(path for path, taken in found.items() if taken == access)
    _start(judged)


def _levels(profile: Profile, path: str) -> tuple[int, int]:
    """Return what a profile answers for reading and for writing a path."""
    return deepest(levels(profile, write=False), path), deepest(levels(profile, write=True), path)


def _listed(judged: _Judged, access: str, path: str, found: dict[str, str]) -> None:
    """Decide one path of a list; what is no absolute path is kept for the file system's own judgement."""
    if not path.startswith("/") or "\0" in path:
        found[path] = access
        return
    place = os.path.realpath(path)
    asked, held = _levels(judged.asked, place), _levels(judged.held, place)
    if _granted(judged.opened, access, place):
        return  # the grant's own mount is what opens it
    wanted = asked[1] if access == WRITE else asked[0]
    if wanted < _OPEN:
        _contradiction(judged, access, path, LEVELS[wanted])
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


def _granted(opened: Opened, access: str, place: str) -> bool:
    tops = opened.write if access == WRITE else (*opened.read, *opened.write)
    return any(holds(top, place) for top in tops)


def _places(profile: Profile) -> set[str]:
    return {profile.workspace, *(root.path for root in profile.roots)}


def _of_card(judged: _Judged, access: str, path: str) -> bool:
    """Return whether the card file itself lists a path; a flag may ask for less than the card."""
    merged = judged.request.merged
    return (
        judged.stated
        and merged is not None
        and merged.card is not None
        and path in merged.card.values.get(_NAME[access], ())
    )


def _contradiction(judged: _Judged, access: str, path: str, level: str) -> None:
    verb = "writing" if access == WRITE else "reading"
    text = f"{FLAG[access]} {path!r} asks for what the card's [access] does not allow: {verb} there is {level}"
    hint = "a grant opens it" if level == GATED else "make it a root of [access], or leave it out"
    judged.refuse("access-contradiction", text, hint)


def _place(judged: _Judged, path: str, found: dict[str, str]) -> None:
    """Decide the workspace, or a root of the profile or of the ceiling, that no list names."""
    asked, held = _levels(judged.asked, path), _levels(judged.held, path)
    own = judged.stated and path in _places(judged.asked)
    if held[1] == _OPEN or held[0] == _OPEN:
        if not own and not os.path.lexists(path):
            _missing(judged, path, held, found)
            return
        found[path] = WRITE if held[1] == _OPEN else READ
    if own and held[1] < _OPEN == asked[1]:
        judged.narrowed.append(f"{CEILING} {'keeps' if held[0] == _OPEN else 'closes'} {path}" + _read_only(held))
    elif own and held[0] < _OPEN == asked[0]:
        judged.narrowed.append(f"{CEILING} closes {path}")
    closed = [word for word, level in zip(("read", "write"), held, strict=True) if LEVELS[level] == GATED]
    if own and closed and asked == held and not _granted(judged.opened, WRITE, path):
        judged.gated.append(f"{' and '.join(closed)} of {path} is gated: closed without a grant")


def _read_only(held: tuple[int, int]) -> str:
    return " read-only" if held[0] == _OPEN else ""


def _missing(judged: _Judged, path: str, held: tuple[int, int], found: dict[str, str]) -> None:
    """Refuse a place that the ceiling keeps read-only inside a writable one, and that is not there to be mounted."""
    around = [top for top, access in found.items() if access == WRITE and holds(os.path.realpath(top), path)]
    if around and held[1] < _OPEN:
        text = f"{CEILING} keeps {path} read-only, and it is not there: the worker could make it in {around[-1]}"
        judged.refuse("ceiling-path", text, "make it first")


def _start(judged: _Judged) -> None:
    """Keep the worker in its workspace, where that became read-only; without one that it may read there is no run."""
    held, asked = judged.held, judged.asked
    if asked.workspace_read == ALLOW and held.workspace_read != ALLOW:
        judged.refuse("ceiling-workspace", f"{CEILING} closes the workspace {held.workspace}", "work in another place")
    own = judged.stated or asked.workspace_write == ALLOW
    if own and judged.request.cwd is None and held.workspace_read == ALLOW and os.path.isdir(held.workspace):
        judged.changes["cwd"] = held.workspace


def _network(judged: _Judged) -> None:
    request, level = judged.request, judged.held.network
    if request.net == _NO_NETWORK or level == ALLOW:
        return
    if level == GATED and judged.opened.hosts:
        judged.changes |= {"model_host": None, "allow_host": judged.opened.hosts}
        return
    named = [name for name in (request.model_host, *request.allow_host) if name]
    judged.changes |= {"net": _NO_NETWORK, "model_host": None, "allow_host": ()}
    without = f", without {' '.join(named)}" if named else ""
    if judged.asked.network != ALLOW:
        if level == GATED:
            judged.gated.append(f"the network is gated: closed without a grant{without}")
        elif judged.asked.network == DENY and named:
            text = f"the card names {' '.join(named)}, and its [access] says network = deny"
            judged.refuse("access-contradiction", text, "say network = 'allow', or name no host")
    elif request.model_host:
        text = f"{CEILING} closes the network, and the worker needs its model host {request.model_host}"
        judged.refuse("ceiling-network", text, "" if level == DENY else "a grant opens it")
    else:
        judged.narrowed.append(f"{CEILING} closes the network{without}")


def _home(judged: _Judged) -> None:
    request, merged = judged.request, judged.request.merged
    said = merged is not None and "home" in merged.values
    wanted = request.home if said or not judged.stated else judged.asked.home
    if wanted != ISOLATED and judged.asked.home == ISOLATED:
        judged.refuse("access-contradiction", "--home real, and the card's [access] says home = isolated")
    elif wanted != ISOLATED and judged.held.home == ISOLATED:
        judged.narrowed.append(f"{CEILING} keeps HOME isolated")
        wanted = ISOLATED
    judged.changes["home"] = wanted
