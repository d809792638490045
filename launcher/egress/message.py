"""DNS messages, as much of them as asking for a name's addresses takes (RFC 1035, RFC 3596, the OPT of RFC 6891).

Written here because a library's import is 35 ms of every card's start, for one question of two types. Pure. The rule:
what a server sends is read strictly, to its last byte, or is ValueError; names are compared whole and in lower case.
Imports `_socket` for inet_ntop(3).
"""

import _socket

from launcher.value import Value

A, CNAME, AAAA, OPT = 1, 5, 28, 41
KINDS = {"A": A, "AAAA": AAAA}
NOERROR, SERVFAIL, NXDOMAIN, REFUSED = 0, 2, 3, 5
PAYLOAD = 1232
_IN = 1
_RESPONSE, _OPCODE, _TRUNCATED, _RECURSE = 0x8000, 0x7800, 0x0200, 0x0100
_NAME_LIMIT = 255
_CHAIN_LIMIT = 16
_FAMILIES = {A: (_socket.AF_INET, 4), AAAA: (_socket.AF_INET6, 16)}

Name = tuple[bytes, ...]


class Record(Value):
    """One record of the answer: its owner, its kind (A, AAAA or CNAME), and what it says: an address, or a name."""

    owner: Name
    kind: int
    address: str = ""
    target: Name = ()


class Response(Value):
    """A server's whole answer. `question` is None where it repeats none."""

    ident: int
    rcode: int
    truncated: bool
    question: tuple[Name, int] | None
    records: tuple[Record, ...]

    def answers(self, query: bytes) -> bool:
        """Return whether it is an answer to this query, which `query` made.

        An error may leave the question out, and of a truncated one nothing else is known.
        """
        asked = _Reader(query, 12)
        question = asked.name(), asked.number(2)
        same = self.question == question or (self.question is None and (self.truncated or self.rcode != NOERROR))
        return same and self.ident == int.from_bytes(query[:2], "big")


class Endless(Exception):
    """A name's CNAMEs form a loop, or a chain longer than any honest one."""


def query(name: str, kind: int, ident: int) -> bytes:
    """Return the question for one name (A-labels, no final dot), with recursion desired and room for a long answer."""
    labels = name.encode("ascii").split(b".")
    if not all(0 < len(label) < 64 for label in labels) or sum(map(len, labels)) + len(labels) >= _NAME_LIMIT:
        raise ValueError(f"{name!r} is no name")
    header = _numbers(ident, _RECURSE, 1, 0, 0, 1)
    question = b"".join(bytes((len(label),)) + label for label in labels) + b"\0" + _numbers(kind, _IN)
    return header + question + b"\0" + _numbers(OPT, PAYLOAD, 0, 0, 0)


def _numbers(*values: int) -> bytes:
    return b"".join(value.to_bytes(2, "big") for value in values)


def text(name: Name) -> str:
    """Return a name as text, with every byte that no hostname has escaped (RFC 1035, 5.1)."""
    return ".".join("".join(chr(c) if c in _PLAIN else f"\\{c:03}" for c in label) for label in name)


_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_")


def parse(data: bytes) -> Response:
    """Return the response in `data`; raises ValueError when it is none. A truncated one is not read further."""
    reader = _Reader(data, 0)
    ident, flags, questions, answers, authorities, additional = (reader.number(2) for _ in range(6))
    if not flags & _RESPONSE or flags & _OPCODE:
        raise ValueError("not an answer to a query")
    if flags & _TRUNCATED:
        return Response(ident=ident, rcode=flags & 15, truncated=True, question=None, records=())
    if questions > 1:
        raise ValueError(f"{questions} questions in one message")
    question = (reader.name(), reader.number(2)) if questions else None
    if question and reader.number(2) != _IN:
        raise ValueError("a question of another class")
    records: list[Record] = []
    for _ in range(answers):
        reader.record(records)
    extended = 0
    for _ in range(authorities + additional):
        extended |= reader.record([])
    reader.end()
    return Response(
        ident=ident, rcode=extended << 4 | flags & 15, truncated=False, question=question, records=tuple(records)
    )


class _Reader:
    """A message being read from some place on; every method raises ValueError past its end."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        found = self._data[self._at : self._at + size]
        if len(found) != size:
            raise ValueError("the message is cut short")
        self._at += size
        return found

    def number(self, size: int) -> int:
        """Return the next number."""
        return int.from_bytes(self.take(size), "big")

    def end(self) -> None:
        """Raise ValueError unless all was read."""
        if self._at != len(self._data):
            raise ValueError("there is something after the message")

    def name(self) -> Name:
        """Return the next name in lower case; a pointer may only lead backwards, so that no name is endless."""
        labels: list[bytes] = []
        resume, before, length = -1, self._at, 1
        while size := self.number(1):
            if size >= 0xC0:
                place = (size & 0x3F) << 8 | self.number(1)
                if place >= before:
                    raise ValueError("a name's pointer does not lead back")
                resume = self._at if resume < 0 else resume
                self._at = before = place
                continue
            if size > 63:
                raise ValueError("a label of an unknown kind")
            labels.append(self.take(size).lower())
            length += 1 + size
            if length > _NAME_LIMIT:
                raise ValueError("a name that is too long")
        if resume >= 0:
            self._at = resume
        return tuple(labels)

    def record(self, into: list[Record]) -> int:
        """Read one record, and keep it if it is one of ours; return the upper bits of the status that an OPT has."""
        owner = self.name()
        kind, group, ttl, size = self.number(2), self.number(2), self.number(4), self.number(2)
        end = self._at + size
        if kind in _FAMILIES and group == _IN:
            family, length = _FAMILIES[kind]
            if size != length:
                raise ValueError(f"an address of {size} bytes")
            into.append(Record(owner=owner, kind=kind, address=_socket.inet_ntop(family, self.take(size))))
        elif kind == CNAME and group == _IN:
            into.append(Record(owner=owner, kind=kind, target=self.name()))
        else:
            self.take(size)
        if self._at != end:
            raise ValueError("a record that is longer or shorter than it says")
        return ttl >> 24 if kind == OPT else 0


def follow(response: Response, name: str, kind: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the addresses that a name has in the response, and the names that its CNAMEs led through.

    Raises Endless.
    """
    owner: Name = tuple(label.lower() for label in name.encode("ascii").split(b"."))
    chain: list[str] = []
    while True:
        mine = [record for record in response.records if record.owner == owner]
        addresses = [record.address for record in mine if record.kind == kind]
        aliases = [record.target for record in mine if record.kind == CNAME]
        if addresses or not aliases:
            return tuple(dict.fromkeys(addresses)), tuple(chain)
        if len(chain) == _CHAIN_LIMIT:
            raise Endless
        owner = aliases[0]
        chain.append(text(owner))
