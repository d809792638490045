"""From flags, card file and user's defaults to one request, and back: where each value came from.

The rule: what is said nearer to the run wins. A flag replaces the card's word, the card's the defaults'; lists add,
since a card that lists a path or a host means it. Two exceptions keep that sensible: a path that a flag names is taken
out of the card's lists, and a network of none leaves out the hosts that were named further away.
"""

import os

from launcher.access.profile import Profile
from launcher.access.table import parse
from launcher.cardfile import load, paths
from launcher.cardfile.load import Source
from launcher.fs.paths import below
from launcher.value import Value
from oci.refusal import Refusal, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_ROOTS = ("read", "read_noexec", "write")
_HOSTS = ("allow_host", "model_host")


class Merged(Value):
    """What one command line came to: each layer's own values, the nearest last, and what was left out of them."""

    layers: "tuple[tuple[Source | None, dict[str, Any]], ...]"
    notes: tuple[str, ...] = ()

    @property
    def card(self) -> Source | None:
        """Return the card file, if one was named."""
        return self._source(load.CARD)

    @property
    def defaults(self) -> Source | None:
        """Return the user's defaults, if there are any."""
        return self._source(load.DEFAULTS)

    def _source(self, kind: str) -> Source | None:
        return next((source for source, _ in self.layers if source and source.kind == kind), None)

    def said(self, name: str) -> "tuple[Any, ...]":
        """Return what the card file and the flags say for a field, the nearest last; the defaults do not count."""
        layers = [values for source, values in self.layers if source is None or source.kind == load.CARD]
        said = [layer[name] for layer in layers if name in layer]
        return tuple(item for value in said for item in (value if _adds(name, value) else (value,)))

    @property
    def values(self) -> "dict[str, Any]":
        """Return the request's fields."""
        found: dict[str, Any] = {}
        for _, layer in self.layers:
            for name, value in layer.items():
                found[name] = (*found.get(name, ()), *value) if _adds(name, value) else value
        return found

    @property
    def profile(self) -> Profile | None:
        """Return the access profile that the card file states."""
        card = self.card
        if card is None or card.access is None:
            return None
        return parse(paths.access(card.access, card.base), base=card.base)


def _adds(name: str, value: object) -> bool:
    return isinstance(value, tuple) and name != "command"


def merge(flags: "dict[str, Any]", *, card: str | None, defaults: str | None) -> Merged:
    """Return flags (by the request's fields) laid over a card file and a file of defaults, both by path or None.

    Raises Refused with everything that is wrong with either file.
    """
    refusals: list[Refusal] = []
    sources: list[Source] = []
    for read, path in ((load.defaults, defaults), (load.card, card)):
        try:
            found = read(path) if path is not None else None
            sources += [found] if found else []
        except Refused as error:
            refusals += error.refusals
    if refusals:
        raise Refused(refusals)
    layers = [(source, _own(source)) for source in sources]
    return _settle([*layers, (None, flags)])


def alone(source: Source) -> Merged:
    """Return what a card file says by itself, without flags and without a user's defaults."""
    return _settle([(source, _own(source))])


def _own(source: Source) -> "dict[str, Any]":
    if source.kind != load.CARD:
        return source.values
    name = os.path.basename(source.path).removesuffix(".toml")
    # Beside the work it is one of many of that name, and the directory tells them apart.
    return {"card_name": name if name != "card" else os.path.basename(source.base) or name, **source.values}


def _settle(layers: "list[tuple[Source | None, dict[str, Any]]]") -> Merged:
    """Leave out of each layer what a nearer one has decided otherwise."""
    notes: list[str] = []
    settled: list[tuple[Source | None, dict[str, Any]]] = []
    for index, (source, values) in enumerate(layers):
        nearer = [other for _, other in layers[index + 1 :]]
        kept, left_out = _without_hosts(_without_roots(values, nearer), nearer)
        if left_out and source is not None and source.kind == load.CARD:
            notes.append(f"--net none leaves out the card file's {' '.join(left_out)}")
        settled.append((source, kept))
    return Merged(layers=tuple(settled), notes=tuple(notes))


def _without_roots(values: "dict[str, Any]", nearer: "list[dict[str, Any]]") -> "dict[str, Any]":
    """Take out the paths that a nearer layer names, and what was protected in those that it makes read-only."""
    taken = {os.path.realpath(path): name for other in nearer for name in _ROOTS for path in other.get(name, ())}
    kept = {
        name: tuple(path for path in value if os.path.realpath(path) not in taken) if name in _ROOTS else value
        for name, value in values.items()
    }
    if "protect" in kept:
        narrowed = [path for path, name in taken.items() if name != "write"]
        writable = [path for path, name in taken.items() if name == "write"]
        writable += [os.path.realpath(path) for path in kept.get("write", ())]
        kept["protect"] = tuple(
            path for path in kept["protect"] if _within(path, writable) or not _within(path, narrowed)
        )
    return kept


def _within(path: str, tops: list[str]) -> bool:
    return any(below(os.path.realpath(path), top) for top in tops)


def _without_hosts(values: "dict[str, Any]", nearer: "list[dict[str, Any]]") -> "tuple[dict[str, Any], list[str]]":
    said = [other["net"] for other in nearer if "net" in other]
    if not said or said[-1] != "none":
        return values, []
    named = [values[name] for name in _HOSTS if name in values]
    left_out = [host for value in named for host in ((value,) if isinstance(value, str) else value)]
    return {name: value for name, value in values.items() if name not in _HOSTS}, left_out
