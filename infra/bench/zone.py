"""What the world's name server says: the zone of a world file, read into values.

One name is one line of the file, faults included (README.md has the grammar). Pure; imports siblings.
"""

import ipaddress
import re
from dataclasses import dataclass, replace

from infra.bench.shape import list_of, strings_of, table_of

RCODES = {"NXDOMAIN": 3, "SERVFAIL": 2, "REFUSED": 5, "FORMERR": 1, "NOTIMP": 4, "EMPTY": 0}
SILENT = "SILENT"
GARBAGE = "GARBAGE"
A, CNAME, TXT, AAAA = 1, 5, 16, 28  # RFC 1035, RFC 3596
MAX_RANGE = 4096
DEFAULT_TTL = 60
NAME = re.compile(r"(?:\*\.)?(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
MAX_NAME = 253


@dataclass(frozen=True, slots=True)
class Record:
    """One resource record's type and data: an address, a target name, or a text."""

    kind: int
    data: str


@dataclass(frozen=True, slots=True)
class Reply:
    """One way to answer: a response code with records, or a fault (SILENT, GARBAGE)."""

    rcode: int = 0
    records: tuple[Record, ...] = ()
    fault: str = ""

    def of_kind(self, kind: int) -> "Reply":
        """Return the reply to a question of that type: its records, and aliases, which answer every type."""
        return replace(self, records=tuple(record for record in self.records if record.kind in {kind, CNAME}))


@dataclass(frozen=True, slots=True)
class Entry:
    """How one name is answered: replies taken in turn (by question type), after a delay, truncated over UDP or not."""

    turns: tuple[Reply, ...]
    by_kind: tuple[tuple[int, Reply], ...] = ()
    delay: float = 0.0
    truncate: bool = False
    ttl: int = DEFAULT_TTL

    def reply(self, kind: int, turn: int) -> Reply:
        """Return the reply to a question of this type, the `turn`-th time it is asked."""
        own = dict(self.by_kind)
        if kind in own:
            return own[kind].of_kind(kind)
        return self.turns[turn % len(self.turns)].of_kind(kind) if self.turns else Reply()


def valid_name(name: str) -> bool:
    """Say whether the name is written as the zone wants it: lower case, no final dot, `*.` in front at most."""
    return len(name) <= MAX_NAME and NAME.fullmatch(name) is not None


def parse_zone(table: dict[str, object]) -> tuple[dict[str, Entry], list[str]]:
    """Return the entries, and the problems found: a name that is not one, an answer that cannot be read."""
    entries: dict[str, Entry] = {}
    problems: list[str] = []
    for name, value in table.items():
        try:
            entries[name] = _named(name, value)
        except ValueError as error:
            problems.append(f"zone: {name!r}: {error}")
    return entries, problems


def from_addresses(addresses: tuple[str, ...]) -> Entry:
    """Return the entry of a host that has these addresses and no fault."""
    return Entry(turns=(_reply(list(addresses)),))


def _named(name: str, value: object) -> Entry:
    """Read one line of the zone; raises ValueError with what is wrong with it."""
    if not valid_name(name):
        raise ValueError("not a lower-case name without a final dot")
    table = table_of(value)
    return Entry(turns=(_reply(value),)) if table is None else _entry(dict(table))


def _entry(table: dict[str, object]) -> Entry:
    """Read a line that is a table: answers and how they are given."""
    delay, truncate, ttl = table.pop("delay", 0.0), table.pop("truncate", False), table.pop("ttl", DEFAULT_TTL)
    if not isinstance(delay, int | float) or not isinstance(truncate, bool) or not isinstance(ttl, int):
        raise ValueError(  # noqa: TRY004 - a problem of the file, like the others
            "delay is a number of seconds, truncate true or false, ttl a whole number"
        )
    by_kind = tuple((kind, _reply(table.pop(key))) for key, kind in (("a", A), ("aaaa", AAAA)) if key in table)
    turns = list_of(table.pop("turns", []))
    answer = table.pop("answer", None)
    if table:
        raise ValueError(f"unknown key {', '.join(sorted(table))}")
    if turns is None:
        raise ValueError("turns is a list of answers")
    if bool(turns) + (answer is not None) + bool(by_kind) != 1:
        raise ValueError("give one of answer, turns, or a and aaaa")
    replies = tuple(_reply(reply) for reply in [*turns, answer] if reply is not None)
    return Entry(turns=replies, by_kind=by_kind, delay=float(delay), truncate=truncate, ttl=ttl)


def _reply(value: object) -> Reply:
    """Read one answer: a word, a record, or a list of records."""
    if isinstance(value, str):
        if value in RCODES:
            return Reply(rcode=RCODES[value])
        if value in {SILENT, GARBAGE}:
            return Reply(fault=value)
        return Reply(records=_records(value))
    items = strings_of(value)
    if items is None:
        raise ValueError(f"{value!r} is not an answer")
    return Reply(records=tuple(record for item in items for record in _records(item)))


def _records(text: str) -> tuple[Record, ...]:
    """Read `ADDRESS`, `ADDRESS+COUNT`, `CNAME NAME` or `TXT TEXT`."""
    word, _, rest = text.partition(" ")
    if word == "CNAME":
        if not valid_name(rest):
            raise ValueError(f"{rest!r} is not a name")
        return (Record(CNAME, rest),)
    if word == "TXT":
        return (Record(TXT, rest),)
    first, _, count = text.partition("+")
    number = int(count or "1")
    if not 1 <= number <= MAX_RANGE:
        raise ValueError(f"{text!r}: a range has 1 to {MAX_RANGE} addresses")
    start = ipaddress.ip_address(first)  # a word that is no fault and no record ends here, as a ValueError
    kind = A if start.version == 4 else AAAA
    return tuple(Record(kind, str(start + offset)) for offset in range(number))
