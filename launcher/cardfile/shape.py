"""Whether a parsed table is a card file (or a user's defaults): every problem, with the keys that lead to it.

The rule: closed. A key that is not in the table of keys is a problem, whatever its value, and it is told where what
was meant belongs. Agrees with the JSON Schema, which is made of the same keys (`launcher.cardfile.schema`). Looks at
no file but for `[access]`, whose paths are resolved.
"""

from launcher.access import table as access
from launcher.access.judge import Problem, nearest
from launcher.cardfile import keys, kinds, paths
from launcher.cardfile.keys import ACCESS, Key
from launcher.cardfile.position import Where
from launcher.egress.names import BadNameError, normalise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Table = dict[str, Any]
# What such a problem says, here and in launcher.access.judge: it is the key that is wrong, not its value.
NO_KEY = "is not a key"


def problems(table: "Table", *, base: str, defaults: bool = False) -> list[Problem]:
    """Return everything that is wrong with the table of a file in the directory `base`; empty when it is good."""
    known = {key.where: key for key in keys.of(defaults=defaults)}
    found: list[Problem] = []
    for name, value in table.items():
        if name == ACCESS and not defaults:
            found += _access(value, base)
        elif any(where[0] == name and len(where) > 1 for where in known):
            found += _table(name, value, known)
        else:
            found += _entry((name,), value, known)
    return found


def _table(name: str, value: object, known: dict[tuple[str, ...], Key]) -> list[Problem]:
    if not isinstance(value, dict):
        return [Problem(where=(name,), text=f"{name} is a table, not {said(value)}", hint=f"write [{name}] above")]
    entries: Table = value  # pyright: ignore[reportUnknownVariableType]
    return [one for key, item in entries.items() for one in _entry((name, key), item, known)]


def _entry(where: tuple[str, ...], value: object, known: dict[tuple[str, ...], Key]) -> list[Problem]:
    key = known.get(where)
    if key is None:
        return [Problem(where=where, text=f"{_quoted(where[-1])} {NO_KEY} {_place(where)}", hint=_meant(where, known))]
    if kinds.fits(value, key.kind.schema):
        return _names(key, value)
    wrong = kinds.wrong_items(value, key.kind.schema)
    if not wrong:
        return [
            Problem(where=where, text=f"{key.name} is {key.kind.called}, not {said(value)}", hint=_form(key, value))
        ]
    items: list[object] = value  # type: ignore[assignment] # what has items is a list
    text = f"{key.name} is {key.kind.called}, and this is {{}}"
    return [Problem(where=(*where, index), text=text.format(said(items[index]))) for index in wrong]


def _place(where: tuple[str, ...]) -> str:
    return f"of [{where[0]}]" if len(where) > 1 else "of a card file"


def _meant(where: tuple[str, ...], known: dict[tuple[str, ...], Key]) -> str:
    """Return what to do about a key that is not known: where it belongs, what it is called, or why it is none."""
    name = where[-1]
    renamed = keys.RENAMED.get(name.replace("-", "_"))
    twins = [key for key in known.values() if key.name == name.replace("-", "_")]
    siblings = [key.name for key in known.values() if key.where[:-1] == where[:-1]]
    if name.replace("-", "_") in siblings:
        return f"it is written with _: {name.replace('-', '_')}"
    if twins:
        place = f"in [{twins[0].table}]" if twins[0].table else "at the top of the file, before the first [table]"
        return f"{twins[0].name} belongs {place}"
    if renamed and keys.find(renamed):
        return f"write {renamed.rpartition('.')[2]}" + (" in [worker]" if renamed.startswith("worker.") else "")
    if name in keys.ELSEWHERE and len(where) == 1:
        return keys.ELSEWHERE[name]
    tables = [] if len(where) > 1 else [*keys.TABLES, ACCESS]
    return nearest(name, [*siblings, *tables])


def _form(key: Key, value: object) -> str:
    """Return how to write what was probably meant."""
    if key.kind is kinds.COMMAND and isinstance(value, str):
        import json
        import shlex

        try:
            return f"write command = {json.dumps(shlex.split(value), ensure_ascii=False)}"
        except ValueError:
            return ""
    if key.kind.many and isinstance(value, str):
        return f"write {key.name} = [{_quoted(value)}]"
    if isinstance(value, str) and "enum" in key.kind.schema:
        return nearest(value, key.kind.schema["enum"])
    if key.kind is kinds.FLAG and isinstance(value, str) and value.lower() in {"true", "false", "yes", "no"}:
        return "without quotes"
    return ""


def said(value: object) -> str:
    """Return a value as a short text for a sentence."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "an empty list" if not value else "a list"
    if isinstance(value, bool):
        return str(value).lower()
    return _quoted(value) if isinstance(value, str) else str(value)[:60]


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def _names(key: Key, value: "Any") -> list[Problem]:
    """Judge hostnames as a run would: the schema cannot say what a hostname is."""
    if key.kind not in (kinds.HOST, kinds.HOSTS):
        return []
    named: list[tuple[Where, str]] = [(key.where, value)]
    if key.kind.many:
        named = [((*key.where, index), name) for index, name in enumerate(value)]
    found: list[Problem] = []
    for where, name in named:
        try:
            normalise(name)
        except BadNameError as error:
            found.append(Problem(where=where, text=f"{_quoted(name)} {error}"))
    return found


def _access(value: object, base: str) -> list[Problem]:
    if not isinstance(value, dict):
        return [Problem(where=(ACCESS,), text=f"access is a table, not {said(value)}", hint="write [access] above")]
    table: Table = value  # pyright: ignore[reportUnknownVariableType]
    odd = [where for where, path in _paths(table) if isinstance(path, str) and not kinds.fits(path, kinds.PATH.schema)]
    found = [Problem(where=where, text=f"this is {kinds.PATH.called}") for where in odd]
    found += [one for one in access.problems(paths.access(table, base), base=base) if one.where not in odd]
    return [problem.replace(where=(ACCESS, *problem.where)) for problem in found]


def _paths(table: "Table") -> list[tuple[Where, object]]:
    """Return what stands where `[access]` has its paths."""
    roots: Any = table.get("roots")
    items: list[Any] = [*roots] if isinstance(roots, list) else []
    tables: dict[int, Table] = {index: root for index, root in enumerate(items) if isinstance(root, dict)}
    found: list[tuple[Where, object]] = [(("workspace",), table.get("workspace"))]
    found += [(("roots", index, "path"), root.get("path")) for index, root in tables.items()]
    return found
