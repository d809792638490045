"""JSON for hot paths: one strict value in, canonical text out, without the 7 ms that importing `json` costs.

`json` spends its import on `re` and `enum`, which its C scanner does not need. Owns nothing of the domain: what a
value must look like is decided where it is read. Needs CPython's `_json`.
"""

import _json

from oci.refusal import CardRunBug

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_WHITESPACE = " \t\n\r"


def _unique(pairs: "list[tuple[str, object]]") -> "dict[str, object]":
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("an object names the same key twice")
    return value


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


class _Strict:
    """What the C scanner asks of its context (Modules/_json.c, `scanner_new`)."""

    strict = True
    object_hook = None
    object_pairs_hook = staticmethod(_unique)
    parse_float = float
    parse_int = int
    parse_constant = staticmethod(_no_constant)
    memo: "dict[str, str]" = {}  # noqa: RUF012 - the attribute's name and type are the C scanner's


_scan: "Callable[[str, int], tuple[object, int]]" = _json.make_scanner(_Strict)  # type: ignore[arg-type]


def parse(data: bytes) -> object:
    """Return the one JSON value that `data` holds.

    Raises ValueError for anything else: bad UTF-8, a key given twice, NaN, text after the value, nothing at all.
    """
    text = data.decode("utf-8")
    start = len(text) - len(text.lstrip(_WHITESPACE))
    try:
        value, end = _scan(text, start)
    except (StopIteration, SystemError, RecursionError):
        # The scanner names what is wrong by way of json.decoder, and fails with SystemError when that is not imported.
        raise ValueError(_explain(text)) from None
    if text[end:].strip(_WHITESPACE):
        raise ValueError("text after the JSON value")
    return value


def _explain(text: str) -> str:
    """Return why the text is not JSON; only a failure pays for the import."""
    import json

    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        return str(error)
    raise CardRunBug(f"json accepts what its scanner does not: {text[:80]!r}")


def dump(value: object) -> str:
    """Return the value as canonical JSON text: keys sorted, no spaces, ASCII; raises TypeError for what is not JSON."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _json.encode_basestring_ascii(value)
    return _dump_container(value)


def _dump_container(value: object) -> str:
    if isinstance(value, dict):
        items: "dict[str, object]" = value  # pyright: ignore[reportUnknownVariableType]
        return "{" + ",".join(f"{_key(key)}:{dump(items[key])}" for key in sorted(items)) + "}"
    if isinstance(value, list | tuple):
        values: "list[object]" = list(value)  # pyright: ignore[reportUnknownArgumentType]
        return "[" + ",".join(map(dump, values)) + "]"
    raise TypeError(f"{type(value).__name__} is not JSON")


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError("an object's keys are strings")
    return _json.encode_basestring_ascii(key)
