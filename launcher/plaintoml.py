"""The plain part of TOML, read without `tomllib`: importing that takes 10 ms, most of it for what no setting needs.

Tables by `[name]` and `[[name.name]]`, bare keys, one-line strings without escapes, whole numbers, true, false, and
arrays of those. The rule: whatever else there is, a mistake above all, it is not ours: None, and `tomllib` reads the
text. What is read here `tomllib` reads the same (a property test). Imports nothing.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
_DIGITS_LIMIT = 15
_WORDS = {"true": True, "false": False}


class _NotPlainError(Exception):
    """Something that is for tomllib to read or to complain about."""


def read(text: str) -> "dict[str, Any] | None":
    """Return the table of a text that is plain throughout, else None."""
    if any(character < " " and character not in "\t\n" for character in text) or "\x7f" in text:
        return None
    try:
        return _Reader(text).document()
    except (_NotPlainError, IndexError):
        return None


class _Reader:
    """Walks one text; each method starts at `self.at` and leaves it behind what it read."""

    def __init__(self, text: str) -> None:
        self.text = text + "\n"
        self.at = 0
        self.top: "dict[str, Any]" = {}
        self.arrays: "dict[tuple[str, str], list[dict[str, Any]]]" = {}

    def document(self) -> "dict[str, Any]":
        table = self.top
        while self._gap():
            if self.text[self.at] == "[":
                table = self._header()
            else:
                name = self._name()
                self._space()
                self._expect("=")
                self._space()
                _put(table, name, self._value())
            self._line_end()
        return self.top

    def _header(self) -> "dict[str, Any]":
        if not self.text.startswith("[[", self.at):
            self.at += 1
            table: "dict[str, Any]" = {}
            _put(self.top, self._name(), table)
            self._expect("]")
            return table
        self.at += 2
        outer = self._name()
        self._expect(".")
        inner = self._name()
        self._expect("]]")
        return self._element(outer, inner)

    def _element(self, outer: str, inner: str) -> "dict[str, Any]":
        """Return a new element of an array of tables, whose own table must have been opened by its header."""
        if (outer, inner) not in self.arrays:
            if not isinstance(self.top.get(outer), dict):
                raise _NotPlainError
            self.arrays[outer, inner] = []
            _put(self.top[outer], inner, self.arrays[outer, inner])
        self.arrays[outer, inner].append({})
        return self.arrays[outer, inner][-1]

    def _name(self) -> str:
        start = self.at
        while self.text[self.at] in _BARE:
            self.at += 1
        if self.at == start:
            raise _NotPlainError
        return self.text[start : self.at]

    def _value(self) -> "Any":
        character = self.text[self.at]
        if character in "\"'":
            return self._string(character)
        if character == "[":
            return self._array()
        word = self._name()
        if word in _WORDS:
            return _WORDS[word]
        number = word.isdigit() and len(word) <= _DIGITS_LIMIT and (word == "0" or word[0] != "0")
        if not number or self.text[self.at] in ".:":
            raise _NotPlainError
        return int(word)

    def _string(self, quote: str) -> str:
        end = self.text.find(quote, self.at + 1)
        inside = self.text[self.at + 1 : end]
        if end < 0 or "\n" in inside or (quote == '"' and "\\" in inside) or self.text[end + 1] == quote:
            raise _NotPlainError
        self.at = end + 1
        return inside

    def _array(self) -> "list[Any]":
        self.at += 1
        found: "list[Any]" = []
        while self._gap() and self.text[self.at] != "]":
            if self.text[self.at] == "[":
                raise _NotPlainError
            found.append(self._value())
            self._gap()
            if self.text[self.at] != "]":
                self._expect(",")
        self._expect("]")
        return found

    def _expect(self, mark: str) -> None:
        if not self.text.startswith(mark, self.at):
            raise _NotPlainError
        self.at += len(mark)

    def _space(self) -> None:
        while self.text[self.at] in " \t":
            self.at += 1

    def _line_end(self) -> None:
        """Pass over what may follow on a line: blanks and a comment."""
        self._space()
        if self.text[self.at] not in "#\n":
            raise _NotPlainError

    def _gap(self) -> bool:
        """Pass over blanks, line ends and comments; returns whether anything follows."""
        while self.at < len(self.text):
            if self.text[self.at] == "#":
                self.at = self.text.index("\n", self.at)
            elif self.text[self.at] in " \t\n":
                self.at += 1
            else:
                return True
        return False


def _put(table: "dict[str, Any]", name: str, value: "Any") -> None:
    if name in table:
        raise _NotPlainError
    table[name] = value
