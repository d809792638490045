"""The world's name server: questions and answers as bytes (RFC 1035, RFC 6891), and the asyncio ends of UDP and TCP.

It behaves as a resolver does: it follows aliases inside its zone, and truncates what does not fit. Written by hand so
that card-run's own resolver library meets another implementation. Imports the standard library and siblings.
"""

import asyncio
import struct
from collections import Counter
from dataclasses import dataclass
from ipaddress import ip_address
from typing import cast

from infra.bench.zone import CNAME, GARBAGE, RCODES, SILENT, TXT, Entry, Record

FLAG_RESPONSE = 0x8000
FLAG_TRUNCATED = 0x0200
FLAG_RECURSION = 0x0180  # desired and available
QUESTION_AT = 12
POINTER_TO_QUESTION = b"\xc0\x0c"
PLAIN_UDP = 512
CLASS_IN = 1
OPT = b"\0\0\x29"  # root name, type 41
GARBAGE_BYTES = b"\xff" * 24
NXDOMAIN, FORMERR = RCODES["NXDOMAIN"], RCODES["FORMERR"]


@dataclass(frozen=True, slots=True)
class Question:
    """What was asked: the name in lower case, the type, and what the reply needs of the query."""

    identity: int
    flags: int
    name: str
    kind: int
    text: bytes
    limit: int


def parse_question(query: bytes) -> Question | None:
    """Return the question of a query that has exactly one; None for anything else."""
    try:
        identity, flags, questions = struct.unpack_from("!HHH", query)
        labels: list[str] = []
        at = QUESTION_AT
        while query[at]:
            length = query[at]
            labels.append(query[at + 1 : at + 1 + length].decode("latin-1").lower())
            at += 1 + length
        kind, _ = struct.unpack_from("!HH", query, at + 1)
    except (IndexError, struct.error):
        return None
    if questions != 1 or flags & FLAG_RESPONSE:
        return None
    end = at + 5
    limit = PLAIN_UDP
    if query[end : end + 3] == OPT:
        limit = max(PLAIN_UDP, int.from_bytes(query[end + 3 : end + 5], "big"))
    return Question(identity, flags, ".".join(labels), kind, query[QUESTION_AT:end], limit)


class Nameserver:
    """Answers questions from a zone, and counts them: a name can have answers that take turns."""

    def __init__(self, zone: dict[str, Entry]) -> None:
        self.zone = zone
        self.asked: Counter[tuple[str, int]] = Counter()

    def find(self, name: str) -> Entry | None:
        """Return the entry for a name, its own or a wildcard above it."""
        if name in self.zone:
            return self.zone[name]
        parts = name.split(".")
        wildcards = (".".join(("*", *parts[index:])) for index in range(1, len(parts)))
        return next((self.zone[wildcard] for wildcard in wildcards if wildcard in self.zone), None)

    async def answer(self, query: bytes, *, udp: bool) -> bytes | None:
        """Return the reply to a query, after the delay that its entry asks for; None to stay silent."""
        question = parse_question(query)
        if question is None:
            return query[:2] + struct.pack("!HHHHH", FLAG_RESPONSE | FORMERR, 0, 0, 0, 0) if len(query) > 2 else None
        entry = self.find(question.name)
        if entry is None:
            return _message(question, NXDOMAIN, [], udp=udp)
        await asyncio.sleep(entry.delay)
        turn = self.asked[question.name, question.kind]
        self.asked[question.name, question.kind] += 1
        reply = entry.reply(question.kind, turn)
        if reply.fault:
            return {SILENT: None, GARBAGE: query[:2] + GARBAGE_BYTES}[reply.fault]
        rcode, records = self._chase(question, list(reply.records), reply.rcode, entry.ttl)
        return _message(question, rcode, records, udp=udp, truncate=entry.truncate)

    def _chase(self, question: Question, records: list[Record], rcode: int, ttl: int) -> tuple[int, list[bytes]]:
        """Return the answer section with the aliases followed, as a resolver gives it; a loop ends where it closes."""
        section: list[bytes] = []
        owner, seen = POINTER_TO_QUESTION, {question.name}
        while True:
            section += [_record(owner, record, ttl) for record in records]
            alias = next((record.data for record in records if record.kind == CNAME), None)
            if alias is None or alias in seen or question.kind == CNAME:
                return rcode, section
            seen.add(alias)
            entry = self.find(alias)
            if entry is None:
                return NXDOMAIN, section
            reply = entry.reply(question.kind, 0)
            owner, records, rcode = encode_name(alias), list(reply.records), reply.rcode


def encode_name(name: str) -> bytes:
    """Return a name as labels, without compression."""
    return b"".join(bytes([len(label)]) + label.encode("latin-1") for label in name.split(".")) + b"\0"


def _record(owner: bytes, record: Record, ttl: int) -> bytes:
    """Return one resource record as bytes."""
    if record.kind == CNAME:
        data = encode_name(record.data)
    elif record.kind == TXT:
        text = record.data.encode("utf-8")[:255]
        data = bytes([len(text)]) + text
    else:
        data = ip_address(record.data).packed
    return owner + struct.pack("!HHIH", record.kind, CLASS_IN, ttl, len(data)) + data


def _message(question: Question, rcode: int, section: list[bytes], *, udp: bool, truncate: bool = False) -> bytes:
    """Return a whole reply; over UDP, one that is too long (or is told to be) has no answers and the TC flag."""
    flags = FLAG_RESPONSE | FLAG_RECURSION & (question.flags | 0x80) | rcode
    body = question.text + b"".join(section)
    if udp and (truncate or QUESTION_AT + len(body) > question.limit):
        flags, body, section = flags | FLAG_TRUNCATED, question.text, []
    return struct.pack("!HHHHHH", question.identity, flags, 1, len(section), 0, 0) + body


class UdpServer(asyncio.DatagramProtocol):
    """The UDP end."""

    def __init__(self, server: Nameserver, *, silent: bool) -> None:
        self.server = server
        self.silent = silent
        self.tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport: replies go out by it."""
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Answer one datagram, in its own time."""
        if not self.silent:
            task = asyncio.get_running_loop().create_task(self._reply(data, addr))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _reply(self, data: bytes, addr: tuple[str, int]) -> None:
        reply = await self.server.answer(data, udp=True)
        if reply is not None:
            self.transport.sendto(reply, addr)


async def serve_tcp(
    server: Nameserver, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, silent: bool
) -> None:
    """Answer the questions of one TCP connection, each with its length in front (RFC 1035 section 4.2.2)."""
    while True:
        length = int.from_bytes(await reader.readexactly(2), "big")
        query = await reader.readexactly(length)
        reply = None if silent else await server.answer(query, udp=False)
        if reply is not None:
            writer.write(len(reply).to_bytes(2, "big") + reply)
            await writer.drain()
