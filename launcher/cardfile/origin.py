"""Where each value of a run came from: a flag, a line of the card file or of the user's defaults, a ceiling, or nobody.

For showing a plan, and for saying beside a refusal which line it is about. Reads the sources' text again for the lines,
so nothing of this is on the way of a run that is not shown and not refused.
"""

import os
import shlex
from collections.abc import Iterator
from typing import Any

from launcher.access.judge import ALLOW
from launcher.cardfile import keys, paths, position
from launcher.cardfile.load import Source
from launcher.cardfile.position import Where
from launcher.launch import Launch
from launcher.network import NONE
from launcher.request import Request
from launcher.value import Value
from oci.refusal import Refusal

DEFAULT, FLAG, IMPLIED = "default", "flag", "implied"
# Options that are no key of a card and of no file, in the order they are shown.
_FLAGS = ("egress", "resolve_timeout", "env_host", "git_writable", "keep", "landlock", "podman_arg")
_ACCESS_FIELDS = ("read", "write", "cwd")


class Row(Value):
    """One value of the run: the key as a card file has it, the value as text, and where it came from."""

    key: str
    value: str
    origin: str


def rows(launch: Launch) -> list[Row]:
    """Return every value of a run with its origin, one row for each element of a list; unset ones are left out.

    What several layers say is told once, with the one that is nearest to the run.
    """
    lines, found = _Lines(), list[Row]()
    known = [(key.dotted, key.field, key.where) for key in keys.KEYS if key.field]
    flags = [(f"--{name.replace('_', '-')}", name, (name,)) for name in _FLAGS]
    for name, field, where in [*known, *flags]:
        for item in dict.fromkeys(_items(field, getattr(launch.asked, field))):
            found.append(Row(key=name, value=_said(field, item), origin=_origin(launch, lines, field, where, item)))
    return [*found, *_profile(launch, lines)]


def notes(launch: Launch) -> tuple[str, ...]:
    """Return what was left out of what was asked for, in sentences."""
    merged = launch.asked.merged.notes if launch.asked.merged else ()
    return (*merged, *(launch.bounds.notes if launch.bounds else ()))


class _Lines:
    """The marks of each source, scanned once."""

    def __init__(self) -> None:
        self._marks: dict[str, dict[Where, position.Mark]] = {}

    def of(self, source: Source, where: Where) -> str:
        """Return the words for a place in a source."""
        marks = self._marks.setdefault(source.path, {}) or position.marks(source.data.decode())
        self._marks[source.path] = marks
        return f"{source.kind} {source.path} line {position.nearest(marks, where).value[0]}"


def _items(field: str, value: Any) -> list[Any]:
    """Return the elements of a list, or the one value that there is."""
    items: list[Any] = [*value] if isinstance(value, tuple) and field != "command" else [value]
    return [item for item in items if item not in (None, False, ())]


def _said(field: str, item: Any) -> str:
    """Return a value as text; a variable's own is left out, since a plan is for showing."""
    if field == "env":
        name, equals, _ = str(item).partition("=")
        return f"{name}{equals}..." if equals else name
    if isinstance(item, tuple):
        return shlex.join(map(str, item))  # pyright: ignore[reportUnknownArgumentType]
    return "true" if item is True else str(item)


def _origin(launch: Launch, lines: _Lines, field: str, where: Where, item: Any) -> str:
    request = launch.asked
    for source, values in reversed(request.merged.layers) if request.merged else ():
        place = _place(values, field, item)
        if place is None:
            continue
        if source is None:
            return FLAG
        if field == "card_name" and "card_name" not in source.values:
            return f"the name of {source.path}"
        return lines.of(source, (*where, *place))
    return _stated(request, lines, field, item) or _unsaid(launch, field, item)


def _place(values: dict[str, Any], field: str, item: Any) -> tuple[int, ...] | None:
    """Return where a layer has an item, () for a value that is no list; None when it has not."""
    value = values.get(field)
    if isinstance(value, tuple) and field != "command":
        items: tuple[Any, ...] = value  # pyright: ignore[reportUnknownVariableType]
        return (items.index(item),) if item in items else None
    return () if value is not None and value == item else None


def _stated(request: Request, lines: _Lines, field: str, item: Any) -> str:
    """Return the line of `[access]` that a path comes from, or a network of none; else ""."""
    card = request.merged.card if request.merged else None
    if card is None:
        return ""
    if (field, item) == ("net", NONE) and request.profile and request.profile.network != ALLOW:
        return lines.of(card, (keys.ACCESS, "network"))
    if field not in _ACCESS_FIELDS:
        return ""
    found = [where for path, where in profile_paths(card) if path == item]
    return lines.of(card, found[0]) if found else ""


def profile_paths(card: Source) -> list[tuple[str, Where]]:
    """Return the paths of a card's `[access]`, resolved, each with the keys that lead to it."""
    if card.access is None:
        return []
    table = paths.access(card.access, card.base)
    found: list[tuple[str, Where]] = [(table["workspace"], ("workspace",))]
    found += [(root["path"], ("roots", index, "path")) for index, root in enumerate(table.get("roots", ()))]
    return [(os.path.realpath(path), (keys.ACCESS, *where)) for path, where in found]


def _unsaid(launch: Launch, field: str, item: Any) -> str:
    """Name what no layer said: the ceiling's doing, a flag of a run without a card, or a default."""
    ceiling = launch.bounds.ceiling if launch.bounds else None
    if ceiling and launch.bounds and any(_about(one, field, item) for one in launch.bounds.narrowed):
        return f"the bench's ceiling {ceiling.path}"
    default = getattr(Request, field, None)
    return DEFAULT if launch.asked.merged or item == default else FLAG


def _about(sentence: str, field: str, item: Any) -> bool:
    words = {"net": " the network", "home": " HOME ", "read": f" {item} ", "cwd": f" {item} "}
    return field in words and words[field] in f"{sentence} "


def _profile(launch: Launch, lines: _Lines) -> list[Row]:
    """Return the words of the profile that the run was held to, where a card or a ceiling speaks of one."""
    bounds, stated = launch.bounds, launch.asked.profile
    if bounds is None:
        return []
    card = launch.asked.merged.card if launch.asked.merged else None
    written = (card.access if card else None) or {}
    found: list[Row] = []
    for name, value in bounds.profile.as_dict().items():
        if not isinstance(value, str):
            continue
        if bounds.ceiling and value != getattr(bounds.asked, name):
            origin = f"the bench's ceiling {bounds.ceiling.path}"
        elif card and name in written:
            origin = lines.of(card, (keys.ACCESS, name))
        else:
            origin = DEFAULT if stated else IMPLIED
        found.append(Row(key=f"{keys.ACCESS}.{name}", value=value, origin=origin))
    return found


def explained(refusals: list[Refusal], request: Request) -> list[Refusal]:
    """Return refusals, each with the line of the file that it is about, where its text quotes a value from one."""
    if request.merged is None:
        return refusals
    lines = _Lines()
    return [_explained(refusal, request.merged.layers, lines) for refusal in refusals]


def _explained(refusal: Refusal, layers: tuple[tuple[Source | None, dict[str, Any]], ...], lines: _Lines) -> Refusal:
    for source, values in reversed(layers):
        where = quoted(refusal.text, source, values) if source else None
        if source and where:
            hints = (refusal.hint, lines.of(source, where))
            return Refusal(refusal.reason, refusal.text, "; ".join(filter(None, hints)))
    return refusal


def quoted(text: str, source: Source, values: dict[str, Any]) -> Where | None:
    """Return the keys of the first value of a source that a refusal's text quotes, or None."""
    return next((where for field, where, item in _said_by(source, values) if _quotes(text, field, item)), None)


def _said_by(source: Source, values: dict[str, Any]) -> Iterator[tuple[str, Where, str]]:
    """Yield (field, keys, text) of every text that a source says."""
    for key in keys.KEYS:
        for index, item in enumerate(_items(key.field, values.get(key.field))):
            if isinstance(item, str):
                yield key.field, (*key.where, index) if key.kind.many else key.where, item
    for path, where in profile_paths(source):
        yield from ((field, where, path) for field in _ACCESS_FIELDS)


def _quotes(text: str, field: str, item: str) -> bool:
    option = f"--{field.replace('_', '-')}"
    return any(f"{option} {form}" in text for form in (repr(item), item))
