"""nft text as a value: one table with its sets and chains, read line by line, ours or as `nft list table` prints it.

The auditor's and the ledger's reader. Shares nothing with the renderer. Knows the shape of a table (blocks, elements,
rules as words) and not what any rule means. The rule: a line that is not understood is refused, with its number. Reads
listings of nft 1.0.6 and 1.1.x.
"""

from oci.refusal import Refusal, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_ALPHABET = frozenset(map(chr, range(0x20, 0x7F))) | {"\t", "\n"}
_FAMILIES = ("inet", "netdev")


class Element:
    """One element of a set: its key's words, its comment ("" if none), and its counter (packets, bytes)."""

    __slots__ = ("bytes", "comment", "key", "packets")

    def __init__(self, *, key: str, comment: str, packets: int, octets: int) -> None:
        self.key = key
        self.comment = comment
        self.packets = packets
        self.bytes = octets


class Set:
    """A named set: what its header lines say, in order, and its elements."""

    __slots__ = ("elements", "header", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.header: "list[str]" = []
        self.elements: "list[Element]" = []


class Chain:
    """A chain: its `type ... policy` line ("" for a regular chain), and its rules as words with their line numbers."""

    __slots__ = ("head", "name", "rules")

    def __init__(self, name: str) -> None:
        self.name = name
        self.head = ""
        self.rules: "list[tuple[int, list[str]]]" = []


class Table:
    """A table: family, name, sets and chains by name."""

    __slots__ = ("chains", "family", "name", "sets")

    def __init__(self, family: str, name: str) -> None:
        self.family = family
        self.name = name
        self.sets: "dict[str, Set]" = {}
        self.chains: "dict[str, Chain]" = {}


def parse(text: str) -> Table:
    """Return the one table of the text; raises Refused: `unknown-statement`, `second-table`, `truncated`."""
    if not set(text) <= _ALPHABET:
        _refuse(0, "the text holds bytes that are not printable ASCII")
    lines = _Lines(text)
    table = _open_table(lines)
    while (words := lines.words()) != ["}"]:
        _block(table, lines, words)
    lines.end()
    return table


def _refuse(number: int, text: str, reason: str = "unknown-statement") -> "NoReturn":
    raise Refused([Refusal(reason, f"line {number}: {text}" if number else text)])


class _Lines:
    """The lines that are not blank, one at a time."""

    __slots__ = ("_lines", "number")

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self.number = 0

    def words(self) -> "list[str]":
        """Return the next line's words; refuse when there is none."""
        words: "list[str]" = []
        while not words:
            if self.number >= len(self._lines):
                _refuse(self.number, "the text ends inside a block", "truncated")
            words = self._lines[self.number].split()
            self.number += 1
        return words

    def end(self) -> None:
        """Refuse anything that follows."""
        for number in range(self.number, len(self._lines)):
            words = self._lines[number].split()
            if words:
                second = "table" in words[:2]
                _refuse(number + 1, "something follows the table", "second-table" if second else "unknown-statement")
        if self._lines[-1]:
            _refuse(len(self._lines), "the last line is cut short", "truncated")


def _open_table(lines: _Lines) -> Table:
    """Read `table F N {`, and before it what creates the table anew or replaces whatever stands under that name."""
    words = lines.words()
    if len(words) == 4 and words[0] == "create":
        words = _expect(lines, [*words[1:], "{"])
    elif len(words) == 3 and words[0] == "table":
        _expect(lines, ["delete", *words])
        words = _expect(lines, [*words, "{"])
    if len(words) != 4 or words[0] != "table" or words[1] not in _FAMILIES or words[3] != "{":
        _refuse(lines.number, "not the beginning of a table of ours")
    return Table(words[1], words[2])


def _expect(lines: _Lines, wanted: "list[str]") -> "list[str]":
    if lines.words() != wanted:
        _refuse(lines.number, f"not `{' '.join(wanted)}`, which has to follow")
    return wanted


def _block(table: Table, lines: _Lines, words: "list[str]") -> None:
    if len(words) != 3 or words[2] != "{" or words[0] not in ("set", "chain"):
        _refuse(lines.number, f"not a set or a chain: {' '.join(words)[:80]}")
    kind, name = words[0], words[1]
    if name in table.sets or name in table.chains:
        _refuse(lines.number, f"{kind} {name} is there twice")
    if kind == "set":
        table.sets[name] = _set(name, lines)
    else:
        table.chains[name] = _chain(name, lines)


def _set(name: str, lines: _Lines) -> Set:
    found = Set(name)
    while (words := lines.words()) != ["}"]:
        if words[:3] != ["elements", "=", "{"]:
            found.header.append(" ".join(words))
            continue
        body = words[3:]
        while body[-1:] != ["}"]:
            body += lines.words()
        found.elements += _elements(lines.number, body[:-1])
    return found


def _elements(number: int, words: "list[str]") -> "list[Element]":
    return [_element(number, part.split()) for part in " ".join(words).split(",")]


def _element(number: int, words: "list[str]") -> Element:
    """Read `KEY [counter packets N bytes N] [comment "C"]`; a key is one word, or several joined by ` . `."""
    size = 1
    while words[size : size + 1] == ["."]:
        size += 2
    packets, octets, comment = 0, 0, ""
    rest = words[size:]
    if rest[:2] == ["counter", "packets"] and rest[3:4] == ["bytes"] and len(rest) >= 5:
        packets, octets = _number(number, rest[2]), _number(number, rest[4])
        rest = rest[5:]
    if len(rest) == 2 and rest[0] == "comment":
        comment = _unquote(number, rest[1])
        rest = []
    if rest or len(words) < size:
        _refuse(number, f"an element that is not understood: {' '.join(words)[:80]}")
    return Element(key=" ".join(words[:size]), comment=comment, packets=packets, octets=octets)


def _number(number: int, word: str) -> int:
    if not (word.isdigit() and len(word) <= 20):
        _refuse(number, f"{word[:40]!r} is not a number")
    return int(word)


def _unquote(number: int, word: str) -> str:
    inner = word[1:-1]
    if len(word) < 3 or word[0] != '"' or word[-1] != '"' or '"' in inner or "\\" in inner:
        _refuse(number, f"{word[:80]} is not a comment of ours")
    return inner


def _chain(name: str, lines: _Lines) -> Chain:
    found = Chain(name)
    while (words := lines.words()) != ["}"]:
        if words[0] == "type" and not found.head and not found.rules:
            found.head = " ".join(words)
        else:
            found.rules.append((lines.number, words))
    return found


def comment_of(number: int, words: "list[str]") -> "tuple[list[str], str]":
    """Return a rule's words without its comment, and the comment ("" if none)."""
    if len(words) >= 2 and words[-2] == "comment":
        return words[:-2], _unquote(number, words[-1])
    return words, ""


def without_counter(number: int, words: "list[str]") -> "tuple[list[str], int]":
    """Return a rule's words with `counter packets N bytes N` as `counter`, and the packets (0 without a counter)."""
    if "counter" not in words:
        return words, 0
    at = words.index("counter")
    if words[at + 1 : at + 2] != ["packets"]:
        return words, 0
    packets = _number(number, "".join(words[at + 2 : at + 3]))
    return [*words[: at + 1], *words[at + 5 :]], packets
