"""What a value of a card file may look like: each kind once, for the validator and for the JSON Schema alike.

A kind is a JSON Schema fragment (draft 7) and words for a person; `fits` reads the few keywords that the kinds use, so
that an editor and card-run cannot differ. What a value means (is there such a path, is that name in the policy file)
is no kind's to say.
"""

import re

from launcher.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_PRINTABLE = r"[^\u0000-\u001f\u007f]"
_BIGGEST = (1 << 63) - 1


class Kind(Value):
    """One kind of value: its schema, what a person calls it, and how it is said on the command line.

    `many` is a list that flags add to; `path` is text that names a place on the bench.
    """

    schema: "dict[str, Any]"
    called: str
    many: bool = False
    path: bool = False


def _whole(pattern: str) -> str:
    r"""Return the pattern of a whole text: in Python `$` also matches before a last \n, in ECMA-262 it does not."""
    return f"^{pattern}$(?!\\n)"


def _text(pattern: str, called: str, *, longest: int = 4096, path: bool = False) -> Kind:
    return Kind(schema={"type": "string", "pattern": _whole(pattern), "maxLength": longest}, called=called, path=path)


def _list(item: Kind, called: str, *, least: int = 0) -> Kind:
    schema = {"type": "array", "items": item.schema, **({"minItems": least} if least else {})}
    return Kind(schema=schema, called=called, many=True, path=item.path)


def choice(*words: str) -> Kind:
    """Return the kind of a word out of a few."""
    return Kind(schema={"type": "string", "enum": list(words)}, called=f"{', '.join(words[:-1])} or {words[-1]}")


NAME = _text(f"{_PRINTABLE}+", "one line of text", longest=64)
LINE = _text(f"{_PRINTABLE}+", "one line of text", longest=500)
IMAGE = _text(
    r"(?=[A-Za-z0-9])(?:localhost|[A-Za-z0-9_@-]*[.:][A-Za-z0-9._:@-]*)/[A-Za-z0-9._/:@-]+",
    "a full image reference, REGISTRY/NAME:TAG",
)
PATH = _text(
    rf"(?:~(?:/{_PRINTABLE}*)?|[^~\u0000-\u001f\u007f]{_PRINTABLE}*)",
    "a path: absolute, from ~ (your HOME), or from this file's directory",
    path=True,
)
PATHS = _list(PATH, "a list of paths")
HOST = _text(r"[^\u0000-\u0020\u007f]+", "a hostname", longest=253)
ADDRESS = _text(r"[^\u0000-\u0020\u007f]+", "the address of a DNS server", longest=64)
HOSTS = _list(HOST, "a list of hostnames")
ENV = _list(_text(r"[!-<>-~]+(?:=[^\u0000]*)?", "NAME or NAME=VALUE", longest=131072), "a list of NAME or NAME=VALUE")
COMMAND = _list(
    _text(r"[^\u0000]*", "a word of the command", longest=131072), "a list of the command and its arguments", least=1
)
FLAG = Kind(schema={"type": "boolean"}, called="true or false")
SIZE = Kind(
    schema={
        "anyOf": [
            {"type": "integer", "minimum": 1, "maximum": _BIGGEST},
            {"type": "string", "pattern": _whole("0*[1-9][0-9]*[bkmgBKMG]?"), "maxLength": 20},
        ]
    },
    called="a size: bytes, or text such as '512m' or '2g'",
)
COUNT = Kind(schema={"type": "integer", "minimum": 1, "maximum": _BIGGEST}, called="a whole number above zero")
AMOUNT = Kind(schema={"type": "number", "minimum": 0.001, "maximum": 999_999_999}, called="a number above zero")


def fits(value: object, schema: "dict[str, Any]") -> bool:
    """Return whether a value is what a schema of this module says (JSON Schema draft 7, the keywords used here)."""
    if "anyOf" in schema:
        return any(fits(value, one) for one in schema["anyOf"])
    return _TYPES[schema["type"]](value) and all(
        _KEYWORDS[word](value, bound) for word, bound in schema.items() if word in _KEYWORDS
    )


def wrong_items(value: object, schema: "dict[str, Any]") -> list[int]:
    """Return the indexes of what does not fit in a list; empty for what is no list."""
    if "items" not in schema or not isinstance(value, list):
        return []
    items: list[object] = value  # pyright: ignore[reportUnknownVariableType]
    return [index for index, item in enumerate(items) if not fits(item, schema["items"])]


_TYPES: "dict[str, Callable[[Any], bool]]" = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    # NaN and the infinities are TOML's and not JSON's
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300,
    "array": lambda value: isinstance(value, list),
}
_KEYWORDS: "dict[str, Callable[[Any, Any], bool]]" = {
    "enum": lambda value, words: value in words,
    "pattern": lambda value, pattern: re.fullmatch(pattern, value) is not None,
    "maxLength": lambda value, most: len(value) <= most,
    "minimum": lambda value, least: value >= least,
    "maximum": lambda value, most: value <= most,
    "minItems": lambda value, least: len(value) >= least,
    "items": lambda value, schema: all(fits(item, schema) for item in value),
}
