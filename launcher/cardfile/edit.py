"""Changing keys of a card file, their comments and order kept (tomlkit), and writing it back whole or not at all.

The rule: a change never makes a card worse. What it came to is judged like any card before it is written, and what was
wrong before and still is does not stand in the way of mending the rest.
"""

import contextlib
import difflib
import os
import re
import shlex
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tomlkit
import tomlkit.exceptions
from tomlkit.items import Array

from launcher.access import judge
from launcher.cardfile import keys, kinds, load
from launcher.cardfile.keys import ACCESS, Key
from launcher.cardfile.kinds import Kind
from oci.refusal import Refusal, Refused

_BAD_KEY = "bad-key"


def find(dotted: str) -> Key:
    """Return the key of that name, of `[access]` too; raises Refused (`bad-key`) with the nearest known one."""
    found = keys.find(dotted) or next((key for key in _ACCESS_KEYS if key.dotted == dotted), None)
    if found is not None:
        return found
    known = [key.dotted for key in (*keys.of(defaults=False), *_ACCESS_KEYS)]
    twin = [name for name in known if name.rpartition(".")[2] == dotted.rpartition(".")[2]]
    hint = f"did you mean {twin[0]!r}?" if twin else judge.nearest(dotted, known)
    raise Refused([Refusal(_BAD_KEY, f"{dotted!r} is no key of a card file", hint)])


def _access_key(name: str, kind: Kind) -> Key:
    return Key(table=ACCESS, name=name, kind=kind, field="", help="")


_ACCESS_KEYS = (
    _access_key("workspace", kinds.PATH),
    *(_access_key(name, kinds.choice(*words)) for name, words in judge.WORDS.items()),
    _access_key("ack_unconfined", kinds.FLAG),
)


def read(path: str) -> str:
    """Return a card file's text; raises Refused when it cannot be read or is no TOML."""
    data = load.text(path, hint=shlex.join(("card", "new", path)))
    _, problem = load.parsed(data)
    if problem is not None:
        raise Refused([load.refusal(path, problem)])
    return data.decode()


def lookup(text: str, key: Key) -> Any:
    """Return what a text says for a key, or None."""
    table = load.parsed(text.encode())[0]
    inner = table.get(key.table, {}) if key.table else table
    return inner.get(key.name) if isinstance(inner, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def value(key: Key, words: list[str]) -> Any:
    """Return what words on a command line mean as this key's value; raises Refused (`bad-value`)."""
    if key.kind is kinds.COMMAND and len(words) == 1 and len(words[0].split()) > 1 and not words[0].startswith("["):
        hint = f"card set command -- {words[0]}"
        raise Refused([Refusal("bad-value", f"command takes each word by itself, and {words[0]!r} is one", hint)])
    if key.kind.many:
        return _toml(key, words[0]) if len(words) == 1 and words[0].lstrip().startswith("[") else words
    if len(words) != 1:
        raise Refused([_bad_value(key, f"takes one value, and these are {len(words)}")])
    text = words[0]
    if key.kind in (kinds.FLAG, kinds.COUNT, kinds.AMOUNT) or (key.kind is kinds.SIZE and text.isdigit()):
        return _toml(key, text)
    return text


def _toml(key: Key, text: str) -> Any:
    try:
        return tomlkit.value(text).unwrap()
    except (tomlkit.exceptions.TOMLKitError, ValueError):
        raise Refused([_bad_value(key, f"is {key.kind.called}, not {text!r}")]) from None


def _bad_value(key: Key, text: str) -> Refusal:
    return Refusal("bad-value", f"{key.dotted} {text}")


def changed(text: str, changes: Iterable[Callable[[str], str]], *, base: str) -> str:
    """Return the text after every change; raises Refused when it is worse then, whatever it was in between.

    Where every line ends in CRLF, every line still does.
    """
    ends = "\r\n" if 0 < text.count("\n") == text.count("\r\n") else "\n"
    before = after = text.replace(ends, "\n")
    for change in changes:
        after = change(after)
    known = _problems(before, base)
    worse = [one for one in _problems(after, base).items() if one[0] not in known]
    if worse:
        raise Refused([Refusal("bad-value", _worse(where, said), hint) for (where, said), hint in worse])
    return after.replace("\n", ends)


def assign(text: str, key: Key, new: Any) -> str:
    """Return the text with a key set, below a comment that shows it if there is one."""
    plain = _edited(text, key, lambda table: _put(table, key.name, new))
    if lookup(text, key) is None:
        wanted = load.parsed(plain.encode())[0]
        for candidate in _below(text, key, new):
            if load.parsed(candidate.encode()) == (wanted, None):
                return candidate
    return plain


def _put(table: Any, name: str, new: Any) -> None:
    """Set a key; in a list that stands on several lines only what differs moves, so what stays keeps its comments."""
    old = table.get(name)
    if (
        not isinstance(old, Array)
        or "\n" not in old.as_string()
        or not all(isinstance(one, str) for one in old.unwrap())
    ):
        table[name] = new
        return
    steps = difflib.SequenceMatcher(a=old.unwrap(), b=new, autojunk=False).get_opcodes()
    for kind, start, end, first, last in reversed(steps):
        if kind == "equal":
            continue
        for index in reversed(range(start, end)):
            del old[index]
        for index, item in enumerate(new[first:last], start):
            old.insert(index, item)


def _below(text: str, key: Key, new: Any) -> Iterator[str]:
    """Yield the text with the key below each comment that shows it (`# KEY = ...`), which stays as an example."""
    lines = text.split("\n")
    for index, line in enumerate(lines):
        if re.match(rf"#\s*{re.escape(key.name)}\s*=", line):
            said = str(tomlkit.item(new).as_string())  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
            yield "\n".join([*lines[: index + 1], f"{key.name} = {said}", *lines[index + 1 :]])


def extend(text: str, key: Key, new: list[str]) -> str:
    """Return the text with elements added to a list, those it has already left out; raises Refused for no list."""
    if not key.kind.many:
        raise Refused([_bad_value(key, "is no list")])

    def change(table: Any) -> None:
        there = table.setdefault(key.name, tomlkit.array())
        for item in new:
            if item not in there.unwrap():
                there.append(item)

    return _edited(text, key, change)


def remove(text: str, key: Key) -> str:
    """Return the text without a key; one that is not there is no mistake."""
    return _edited(text, key, lambda table: table.pop(key.name, None))


def _edited(text: str, key: Key, change: Callable[[Any], object]) -> str:
    document = tomlkit.parse(text)
    table: Any = document
    if key.table:
        if key.table not in document:
            document.add(key.table, tomlkit.table())
        table = document[key.table]
    change(table)
    return tomlkit.dumps(document).rstrip("\n") + "\n"  # pyright: ignore[reportUnknownMemberType]


def _worse(where: str, said: str) -> str:
    """Return what would be wrong, with the key where the words do not start with it themselves."""
    return said if said.startswith(where.rpartition(".")[2]) else f"{where}: {said}"


def _problems(text: str, base: str) -> dict[tuple[str, str], str]:
    """Return each problem's hint by its key and text: where in the file it stands may change."""
    return {(one.key, one.text): one.hint for one in load.judged(text.encode(), base=base)[1]}


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def write(path: str, text: str, *, fresh: bool = False) -> None:
    """Put a card file in place, whole: made beside it, then renamed over it, with the old one's mode.

    With `fresh` it must not be there yet: raises FileExistsError. A link stays, and what it leads to is replaced.
    """
    place = os.path.realpath(path)
    try:
        mode = os.stat(place).st_mode & 0o777
    except FileNotFoundError:
        mode = 0o644 & ~_umask()  # a card that others can write is refused
    fd, made = tempfile.mkstemp(prefix=".card-", dir=os.path.dirname(place))
    try:
        with os.fdopen(fd, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fchmod(fd, mode)
            os.fsync(fd)
        if fresh:
            os.link(made, place)
        else:
            os.rename(made, place)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(made)
