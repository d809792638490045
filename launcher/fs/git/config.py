"""What git's configs say, as git itself reads them (git-config(1), "Syntax"). Pure reading.

The rule: what git would take is told, whatever it looks like: quoted, on several lines, behind a comment. The value of
a key alone is "". What git would not take is passed over, for it does nothing with such a file.
"""

import os

from launcher.fs.git import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Settings = list[tuple[str, str, str, str]]

_ESCAPES = {"n": "\n", "t": "\t", "b": "\b"}
_MARKS = frozenset('"\\#;')


class Configs:
    """Configs, each read once. `inside` says whether a worker may have made a path: a link there is not followed."""

    def __init__(self, inside: "Callable[[str], bool]") -> None:
        self._inside = inside
        self._read: "dict[str, Settings]" = {}

    def settings(self, config: str) -> "Settings":
        """Return (section, subsection, key, value) of each line, section and key in lower case; raises TooMuch."""
        if config not in self._read:
            link = not self._inside(config) and os.path.islink(config)
            data = files.read(os.path.realpath(config) if link else config)
            self._read[config] = list(parse(os.fsdecode(data)))
        return self._read[config]

    def values(self, config: str, section: str, key: str) -> list[str]:
        """Return every value of a key, whatever the subsection; raises TooMuch."""
        return [value for found, _, name, value in self.settings(config) if (found, name) == (section, key)]


def parse(text: str) -> "Iterator[tuple[str, str, str, str]]":
    """Yield (section, subsection, key, value) of each setting, section and key in lower case."""
    text = text.removeprefix("\ufeff") + "\n"
    at, section, subsection = 0, "", ""
    while at < len(text):
        if text[at] == "[":
            section, subsection, at = _section(text, at + 1)
            continue
        start = at
        while text[at].isalnum() or text[at] == "-":
            at += 1
        if at == start:
            at = text.index("\n", at) if text[at] in "#;" else at + 1
            continue
        key = text[start:at].lower()
        while text[at] in " \t":
            at += 1
        value, at = _value(text, at + 1) if text[at] == "=" else ("", text.index("\n", at))
        yield section, subsection, key, value


def _section(text: str, at: int) -> tuple[str, str, int]:
    """Return section, subsection, and where what follows them begins."""
    line = text.index("\n", at)
    end = text.find("]", at, line)
    quote = text.find('"', at, end)
    if end < 0 or quote < 0:
        name, _, dotted = text[at : line if end < 0 else end].strip().lower().partition(".")
        return name, dotted, line if end < 0 else end + 1
    name, subsection, at = text[at:quote].strip().lower(), "", quote + 1
    while at < line and text[at] != '"':
        at += text[at] == "\\"
        subsection += text[at]
        at += 1
    end = text.find("]", at, line)
    return name, subsection, line if end < 0 else end + 1


def _value(text: str, at: int) -> tuple[str, int]:
    """Return a value and where it ends: quotes and escapes are resolved, a comment is left out."""
    line = text.index("\n", at)
    plain = text[at:line]
    if not _MARKS.intersection(plain):
        return plain.strip(), line
    found, kept, quoted = "", 0, False
    while at < len(text) and (char := text[at]) != "\n":
        if char in "#;" and not quoted:
            at = text.index("\n", at)
            break
        at += 1
        if char == '"':
            quoted = not quoted
        elif char == "\\" and at < len(text):
            found += "" if text[at] == "\n" else _ESCAPES.get(text[at], text[at])
            at += 1
        else:
            found += char
            kept = kept if char.isspace() and not quoted else len(found)
            continue
        kept = len(found)
    return found[:kept].lstrip(), at
