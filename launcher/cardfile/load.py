"""Reading a card file, or a user's defaults: bytes, owner, TOML, shape, and at last the request's own values.

The rule: the text may be a stranger's. It is bounded, read once from the descriptor whose owner was looked at, judged
whole, and every problem is told with line and column. Paths come out absolute (`launcher.cardfile.paths`).
"""

import os

from launcher import plaintoml, trust
from launcher.access.judge import Problem
from launcher.cardfile import keys, kinds, paths, position, shape
from launcher.cardfile.keys import ACCESS, Key
from launcher.value import Value
from oci.refusal import CardRunBug, Refusal, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CARD, DEFAULTS = "card file", "your defaults"
# tomllib's own words for where it stopped; from Python 3.14 on they are attributes too
_AT = r" \(at (?:line (\d+), column (\d+)|end of document)\)$"


class Source(Value):
    """A file that was read and is good: `values` by the request's fields, and `access` as it is written or None."""

    kind: str
    path: str
    data: bytes
    values: "dict[str, Any]"
    access: "dict[str, Any] | None"

    @property
    def base(self) -> str:
        """Return the directory that its relative paths start from."""
        return os.path.dirname(self.path)

    def line(self, where: position.Where) -> int:
        """Return the line that a value stands in."""
        return position.nearest(position.marks(self.data.decode()), where).value[0]


_NO_STREAM = "card files are not read from standard input: save it, and name the file"


def card(path: str) -> Source:
    """Return a card file; raises Refused (`card-file`) with everything that is wrong with it."""
    place = _place(path)
    found = trust.read(place, (os.getuid(), 0))
    if found.data is None and not found.faults:
        hint = _NO_STREAM if path == "-" else f"card new {path} writes one" if path else "name a file"
        raise Refused([Refusal("card-missing", f"there is no card file {place}", hint)])
    return _source(CARD, found)


def text(path: str, *, hint: str) -> bytes:
    """Return the bytes of a file to be edited or linted; `hint` is for one that is not there.

    Raises Refused (`card-missing`, or `card-file` with each fault), and the path as it was given.
    """
    found = trust.read(_place(path), (os.getuid(), 0))
    if found.data is not None:
        return found.data
    if not found.faults:
        hint = _NO_STREAM if path == "-" else hint
        raise Refused([Refusal("card-missing", f"{path}: there is no such file", hint)])
    raise Refused([Refusal(_REASONS[CARD], f"{path}: {fault}", _mend(path, (fault,))) for fault in found.faults])


def defaults(path: str) -> Source | None:
    """Return a user's defaults, or None when there is no such file; raises Refused (`user-config`) otherwise."""
    found = trust.read(path, (os.getuid(), 0))
    return None if found.data is None and not found.faults else _source(DEFAULTS, found)


def _place(path: str) -> str:
    try:
        return os.path.abspath(path)
    except OSError as error:  # our own directory is gone
        raise Refused([Refusal("card-file", f"--card {path!r}: {os.strerror(error.errno or 0)}")]) from None


def _source(kind: str, file: trust.File) -> Source:
    reason = _REASONS[kind]
    if file.data is None:
        hint = _mend(file.path, file.faults)
        raise Refused([Refusal(reason, f"{file.path}: {fault}", hint) for fault in file.faults])
    table, problems = judged(file.data, base=os.path.dirname(file.path), defaults=kind == DEFAULTS)
    if problems:
        raise Refused([refusal(file.path, problem, reason=reason) for problem in problems])
    return good(kind, file.path, file.data, table)


def good(kind: str, path: str, data: bytes, table: "dict[str, Any]") -> Source:
    """Return a file as a source, its table judged and nothing wrong with it."""
    values = _values(table, os.path.dirname(path), keys.of(defaults=kind == DEFAULTS))
    return Source(kind=kind, path=path, data=data, values=values, access=table.get(ACCESS))


def _mend(path: str, faults: tuple[str, ...]) -> str:
    return f"chmod go-w {path}" if any("others can write" in fault for fault in faults) else ""


_REASONS = {CARD: "card-file", DEFAULTS: "user-config"}


class Located(Value):
    """One problem and where it is, line and column from 1."""

    line: int
    column: int
    key: str
    text: str
    hint: str


def refusal(path: str, problem: Located, *, reason: str = _REASONS[CARD]) -> Refusal:
    """Return a problem as the refusal that a run would be given."""
    return Refusal(reason, f"{path}:{problem.line}:{problem.column}: {problem.text}", problem.hint)


def judged(data: bytes, *, base: str, defaults: bool = False) -> "tuple[dict[str, Any], list[Located]]":
    """Return the table of a file's bytes, and every problem in the order of the lines; without one it is good."""
    table, problem = parsed(data)
    if problem is not None:
        return {}, [problem]
    return table, located(shape.problems(table, base=base, defaults=defaults), data)


def located(problems: list[Problem], data: bytes) -> list[Located]:
    """Return the problems of a file's bytes with their places, in the order of the lines."""
    marks = position.marks(data.decode()) if problems else {}
    return sorted((_located(one, marks) for one in problems), key=lambda one: (one.line, one.column))


def _located(problem: Problem, marks: dict[position.Where, position.Mark]) -> Located:
    mark = position.nearest(marks, problem.where)
    line, column = mark.key if shape.NO_KEY in problem.text else mark.value
    return Located(line=line, column=column, key=problem.key, text=problem.text, hint=problem.hint)


def parsed(data: bytes) -> "tuple[dict[str, Any], Located | None]":
    """Return the table of a TOML text, or the first thing that makes it none."""
    try:
        text = data.decode()
        plain = plaintoml.read(text)
        if plain is not None:
            return plain, None
        line = position.long_key(text)
        if line:
            return {}, _syntax(line, 1, f"a key has more than {position.MOST_PARTS} parts", "")
        import tomllib  # 12 ms that a card in plain TOML does not pay

        return tomllib.loads(text), None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return {}, _syntax(line, 1, "this is not UTF-8", "save the file as UTF-8")
    except RecursionError:
        return {}, _syntax(1, 1, "it is nested too deeply", "")
    except ValueError as error:  # TOMLDecodeError, and int()'s own limit of digits
        return {}, _stopped(str(error), data)


def _stopped(said: str, data: bytes) -> Located:
    if data.startswith(b"\xef\xbb\xbf"):
        return _syntax(1, 1, "the file starts with a byte order mark", "save it as UTF-8 without one")
    import re

    found = re.search(_AT, said)
    text = f"this is not TOML: {re.sub(_AT, '', said)[:200]}"
    if found is None:
        return _syntax(1, 1, text, "")
    if found[1] is None:
        return _syntax(data.count(b"\n") + 1, 1, f"{text}, at the end of the file", "")
    line, column = int(found[1]), int(found[2])
    return _syntax(line, column, text, _usual(data.decode().split("\n")[line - 1]))


def _usual(line: str) -> str:
    """Return what is usually meant by a line that is no TOML."""
    name, equals, value = (part.strip() for part in line.partition("="))
    if not equals and ":" in line and not line.lstrip().startswith(("[", '"')):
        return "TOML is written KEY = VALUE"
    if equals and value and value[0].isalpha() and value.split("#")[0].strip() not in {"true", "false"}:
        return f'text stands in quotes: {name} = "{value}"'
    return ""


def _syntax(line: int, column: int, text: str, hint: str) -> Located:
    return Located(line=line, column=column, key="", text=text, hint=hint)


def _values(table: "dict[str, Any]", base: str, known: tuple[Key, ...]) -> "dict[str, Any]":
    found: "dict[str, Any]" = {}
    for key in known:
        value = (table.get(key.table, {}) if key.table else table).get(key.name)
        if value is not None and key.field:
            found[key.field] = _value(key, value, base)
    return found


def _value(key: Key, value: "Any", base: str) -> "Any":
    """Return a value as the command line would have said it."""
    if key.kind.path:
        return tuple(paths.absolute(one, base) for one in value) if key.kind.many else paths.absolute(value, base)
    if key.kind.many:
        return tuple(value)
    if key.kind is kinds.AMOUNT:
        return f"{value:.3f}".rstrip("0").rstrip(".")
    if isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return str(value)
    raise CardRunBug(f"{key.dotted} has a kind that no value is made of")
