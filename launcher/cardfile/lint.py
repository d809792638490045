"""Everything that is wrong with a card file, or with a user's defaults, told as compilers tell it.

Beside what every reading finds, this says what a run would find without looking at more of the bench than the file's
own place: a card that the worker could rewrite, and one that contradicts itself or states what no wall can hold; of a
card that is not well formed, of the parts that are. A card is judged alone, without the bench's ceiling and anybody's
defaults; one that wants a grant is a good card.
"""

import itertools
import os
import shlex
from typing import Any

from launcher import options, reach
from launcher.access.compiled import unavailable
from launcher.access.judge import Problem
from launcher.access.profile import Profile
from launcher.cardfile import load, merge, origin, paths, shape
from launcher.cardfile.keys import ACCESS
from launcher.cardfile.load import Located, Source
from launcher.cardfile.position import Where
from launcher.fs.paths import below
from launcher.network import NONE
from launcher.request import Request
from launcher.roots import LISTS
from oci.refusal import Refusal

_UNENFORCEABLE = "access-unenforceable"


def problems(path: str) -> list[Located]:
    """Return every problem of a file, in the order of its lines; raises Refused when it cannot be read at all."""
    place = os.path.abspath(path)
    defaults = place == options.user_config()
    data = load.text(path, hint="" if defaults else shlex.join(("card", "new", path)))
    table, syntax = load.parsed(data)
    if syntax is not None:
        return [syntax]
    found = shape.problems(table, base=os.path.dirname(place), defaults=defaults)
    if not defaults:
        found += _of_sound_parts(table, {one.where for one in found}, place, data)
    return load.located(found, data)


def _of_sound_parts(table: dict[str, Any], wrong: set[Where], place: str, data: bytes) -> list[Problem]:
    """Return what a run would find of a table without what is wrong in it, each where it stands in the whole.

    Of `[access]` nothing is concluded while anything in it is wrong, and nothing of who writes the card while `protect`
    is: a missing word closes more than was meant.
    """
    sound: dict[str, Any] = _without(table, wrong, ())
    found = [] if _touches(wrong, "protect") else _rewritable(sound, place)
    if _touches(wrong, ACCESS):
        sound.pop(ACCESS, None)
    found += _impossible(load.good(load.CARD, place, data, sound))
    return [one.replace(where=_original(one.where, wrong)) for one in found]


def _touches(wrong: set[Where], name: str) -> bool:
    return any(where[0] == name for where in wrong)


def _without(value: Any, wrong: set[Where], where: Where) -> Any:
    if isinstance(value, dict):
        pairs: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
        return {key: _without(item, wrong, (*where, key)) for key, item in pairs.items() if (*where, key) not in wrong}
    if isinstance(value, list):
        items: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
        return [_without(item, wrong, (*where, at)) for at, item in enumerate(items) if (*where, at) not in wrong]
    return value


def _original(where: Where, wrong: set[Where]) -> Where:
    """Return the keys in the whole table of what `where` leads to in the one without what is wrong."""
    found: Where = ()
    for step in where:
        if isinstance(step, int):
            kept = (at for at in itertools.count() if (*found, at) not in wrong)
            found = (*found, next(itertools.islice(kept, step, None)))
        else:
            found = (*found, step)
    return found


def _impossible(source: Source) -> list[Problem]:
    """Return why no run can be what the card says by itself."""
    merged = merge.alone(source)
    values: dict[str, Any] = {"command": (), **merged.values}
    request = Request(**values, profile=merged.profile, merged=merged)
    found: list[Problem] = []
    if request.profile is not None:
        found += _unheld(request.profile, source)
        told = {one.where for one in found}
        request, _, refusals = reach.bound(request, None)
        unheld = [one for one in refusals if one.reason == _UNENFORCEABLE]
        # What wants a grant is no mistake.
        others = [one for one in refusals if one.reason not in {_UNENFORCEABLE, "required"}]
        found += [one for one in _closed(unheld, source) if one.where not in told]
        found += [_refused(one, source) for one in others]
    return [*found, *_unreached(request), *_twice(request, source)]


def _refused(refusal: Refusal, source: Source) -> Problem:
    """Return a refusal as a problem of the value that it is about."""
    said = origin.quoted(refusal.text, source, source.values)
    where = said or ((ACCESS, "command") if refusal.reason == "denied" else (ACCESS,))
    return Problem(where=where, text=refusal.text, hint=refusal.hint)


def _closed(refusals: list[Refusal], source: Source) -> list[Problem]:
    """Return the closed places of the profile that lie in what its lists open, each at its own key."""
    return [
        Problem(where=where, text=one.text, hint=one.hint)
        for one in refusals
        for path, where in origin.profile_paths(source)
        if f" closes {path}, " in one.text
    ]


def _unheld(profile: Profile, source: Source) -> list[Problem]:
    """Return what the profile states and no wall holds, at the place that it is about."""
    places = {f"roots[{path}].read": where for path, where in origin.profile_paths(source)}
    places |= {"workspace_read": (ACCESS, "workspace"), "isolation": (ACCESS, "isolation")}
    hint = "name narrower paths, or keep that place elsewhere"
    return [
        Problem(
            where=places[row.feature],
            text=f"{row.feature.rpartition('.')[2]} = {row.asked}: {row.text}",
            hint="" if row.feature == "isolation" else hint,
        )
        for row in unavailable(profile)
    ]


def _unreached(request: Request) -> list[Problem]:
    """Return the hosts of a card that has no network."""
    if request.net != NONE:
        return []
    named: list[tuple[Where, object]] = [
        (("hosts",), request.allow_host),
        (("worker", "model_host"), request.model_host),
    ]
    text = "it names a host, and net = none reaches none"
    return [Problem(where=where, text=text, hint="leave one of them out") for where, said in named if said]


def _twice(request: Request, source: Source) -> list[Problem]:
    """Return the paths that stand in two lists."""
    seen: dict[str, str] = {}
    found: list[Problem] = []
    for _, name in LISTS:
        for path in getattr(request, name):
            other = seen.setdefault(os.path.realpath(path), name)
            if other != name:
                where = (name, source.values[name].index(path))
                found.append(Problem(where=where, text=f"{path} is in {other} too", hint="give it one access"))
    return found


def _rewritable(table: dict[str, Any], place: str) -> list[Problem]:
    """Return the writable places that hold the card itself, unless it is protected in them."""
    base, itself = os.path.dirname(place), os.path.realpath(place)
    if itself in [os.path.realpath(paths.absolute(path, base)) for path in table.get("protect", ())]:
        return []
    text = "the card file is in here, so the worker could rewrite it, and a run is refused"
    hint = f'protect = ["{os.path.basename(place)}"], or keep the card elsewhere'
    return [
        Problem(where=where, text=text, hint=hint)
        for where, path in _writable(table)
        if below(itself, os.path.realpath(paths.absolute(path, base)))
    ]


def _writable(table: dict[str, Any]) -> list[tuple[Where, str]]:
    found: list[tuple[Where, str]] = [(("write", index), path) for index, path in enumerate(table.get("write", ()))]
    access: dict[str, Any] = table.get(ACCESS, {})
    if access.get("workspace_write") == "allow" and "workspace" in access:
        found.append(((ACCESS, "workspace"), access["workspace"]))
    for index, root in enumerate(access.get("roots", ())):
        if root.get("write") == "allow" and "path" in root:
            found.append(((ACCESS, "roots", index, "path"), root["path"]))
    return found
