"""Where each key and value of a TOML text stands, which `tomllib` does not say.

Reads only text that `tomllib` has accepted, so it judges nothing: it finds its way by the grammar's marks (toml.io
v1.0) and takes every value for what lies between them. Lines and columns count from 1, columns in characters.
"""

from launcher.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

Where = tuple[str | int, ...]

MOST_PARTS = 100
_SPACE = " \t"
_GAP = " \t\r\n"
_BARE_ENDS = ",]}#\r\n"
_BARE_KEY = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


class Mark(Value):
    """One key's place and its value's, each as (line, column); the two are the same for an element of an array."""

    key: tuple[int, int]
    value: tuple[int, int]


def marks(text: str) -> dict[Where, Mark]:
    """Return the place of every key and element by the keys and indexes that lead to it (`("limits", "memory")`)."""
    found: dict[Where, tuple[int, int]] = {}
    try:
        for where, places in _Scanner(text).document():
            found.setdefault(where, places)
    except RecursionError:
        pass  # nested past what anybody reads; tomllib's own limit is near
    lines = _Lines(text)
    return {where: Mark(key=lines.place(key), value=lines.place(value)) for where, (key, value) in found.items()}


def nearest(marks: dict[Where, Mark], where: Where) -> Mark:
    """Return the mark of a place, or of the nearest one around it that the text has; the first line at last."""
    while where:
        if where in marks:
            return marks[where]
        where = where[:-1]
    return Mark(key=(1, 1), value=(1, 1))


def long_key(text: str) -> int:
    """Return the line of the first key of too many parts, or 0: such a one costs tomllib the square of its length.

    Judges no more than that, and so any text: strings and comments are passed over by their marks.
    """
    at, dots, line = 0, 0, 1
    while at < len(text):
        character = text[at]
        if character in "\"'#":
            end = _behind(text, at)
            line += text.count("\n", at, end)
            at = end
            continue
        line += character == "\n"
        dots = dots + 1 if character == "." else 0 if character in "=,[]{}\n" else dots
        if dots >= MOST_PARTS:
            return line
        at += 1
    return 0


def _behind(text: str, at: int) -> int:
    """Return where a comment or string that starts at an offset ends; an open one ends with its line, or the text."""
    mark = text[at]
    fence = mark * 3 if mark != "#" and text.startswith(mark * 3, at) else mark
    close, at = "\n" if mark == "#" else fence, at + len(fence)
    while at < len(text) and not text.startswith(close, at):
        if text[at] == "\n" and len(fence) == 1:
            return at
        at += 2 if mark == '"' and text[at] == "\\" else 1
    return at if mark == "#" else min(at + len(close), len(text))


class _Lines:
    """From an offset to line and column."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(index + 1 for index, character in enumerate(text) if character == "\n")]

    def place(self, offset: int) -> tuple[int, int]:
        import bisect

        line = bisect.bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1


class _Scanner:
    """Walks one text; each method starts at `self.at` and leaves it behind what it read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.arrays: dict[Where, int] = {}

    def document(self) -> "Iterator[tuple[Where, tuple[int, int]]]":
        top: Where = ()
        while self._skip_gap():
            if self.text[self.at] == "[":
                start = self.at
                top = self._header()
                yield from ((top[: count + 1], (start, start)) for count in range(len(top)))
            else:
                yield from self._pair(top)

    def _header(self) -> Where:
        double = self.text.startswith("[[", self.at)
        self.at += 2 if double else 1
        parts = [part for part, _ in self._keys()]
        self.at += 2 if double else 1
        where: Where = ()
        for part in parts[:-1]:
            where = self._last((*where, part))
        where = (*where, parts[-1])
        if not double:
            return self._last(where)
        self.arrays[where] = self.arrays.get(where, -1) + 1
        return self._last(where)

    def _last(self, where: Where) -> Where:
        """Return the last element of an array of tables, or the place itself when it is none."""
        return (*where, self.arrays[where]) if where in self.arrays else where

    def _pair(self, top: Where) -> "Iterator[tuple[Where, tuple[int, int]]]":
        keys = list(self._keys())
        self.at += 1  # the equals sign
        self._skip_space()
        value, where = self.at, top
        for part, start in keys:
            where = (*where, part)
            yield where, (start, value)
        yield from self._value(where)

    def _keys(self) -> "Iterator[tuple[str, int]]":
        """Yield each part of a dotted key with its offset; ends before what follows the key."""
        while True:
            self._skip_space()
            start = self.at
            if self.text[start] in "\"'":
                self._string()
                yield _unquoted(self.text[start : self.at]), start
            else:
                while self.at < len(self.text) and self.text[self.at] in _BARE_KEY:
                    self.at += 1
                yield self.text[start : self.at], start
            self._skip_space()
            if self.text[self.at : self.at + 1] != ".":
                return
            self.at += 1

    def _value(self, where: Where) -> "Iterator[tuple[Where, tuple[int, int]]]":
        character = self.text[self.at]
        if character in "\"'":
            self._string()
        elif character == "[":
            yield from self._array(where)
        elif character == "{":
            yield from self._inline(where)
        else:
            while self.at < len(self.text) and self.text[self.at] not in _BARE_ENDS:
                self.at += 1

    def _array(self, where: Where) -> "Iterator[tuple[Where, tuple[int, int]]]":
        self.at += 1
        index = 0
        while self._skip_gap() and self.text[self.at] != "]":
            yield (*where, index), (self.at, self.at)
            yield from self._value((*where, index))
            index += 1
            self._skip_gap()
            self.at += self.text[self.at : self.at + 1] == ","
        self.at += 1

    def _inline(self, where: Where) -> "Iterator[tuple[Where, tuple[int, int]]]":
        self.at += 1
        while self._skip_gap() and self.text[self.at] != "}":
            yield from self._pair(where)
            self._skip_gap()
            self.at += self.text[self.at : self.at + 1] == ","
        self.at += 1

    def _string(self) -> None:
        quote = self.text[self.at]
        fence = quote * 3 if self.text.startswith(quote * 3, self.at) else quote
        self.at += len(fence)
        while not self.text.startswith(fence, self.at):
            self.at += 2 if quote == '"' and self.text[self.at] == "\\" else 1
        self.at += len(fence)
        while len(fence) == 3 and self.text[self.at : self.at + 1] == quote:
            self.at += 1  # up to two quotes may stand before the closing three

    def _skip_space(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in _SPACE:
            self.at += 1

    def _skip_gap(self) -> bool:
        """Pass over blanks, line ends and comments; returns whether anything follows."""
        while self.at < len(self.text):
            if self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif self.text[self.at] in _GAP:
                self.at += 1
            else:
                return True
        return False


def _unquoted(key: str) -> str:
    import tomllib

    return str(tomllib.loads(f"key = {key}")["key"])
