"""The world's name server, byte for byte, read by another implementation (dnspython)."""

import asyncio
import struct

import dns.flags
import dns.message
import dns.rcode
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.bench.link import parse_seen
from infra.bench.nameserver import Nameserver, parse_question
from infra.bench.zone import parse_zone

ZONE, PROBLEMS = parse_zone(
    {
        "a.example": ["203.0.113.1", "2001:db8::1"],
        "alias.example": "CNAME a.example",
        "chain.example": "CNAME alias.example",
        "loop.example": "CNAME pool.example",
        "pool.example": "CNAME loop.example",
        "dangling.example": "CNAME nowhere.example",
        "toservfail.example": "CNAME servfail.example",
        "servfail.example": "SERVFAIL",
        "silent.example": "SILENT",
        "garbage.example": "GARBAGE",
        "many.example": "203.0.113.100+60",
        "short.example": {"answer": "203.0.113.1", "truncate": True},
        "turns.example": {"turns": ["203.0.113.1", "203.0.113.2"]},
        "*.wild.example": "TXT any",
    }
)


def raw(name: str, kind: str = "A", *, udp: bool = True, edns: int | bool = False) -> bytes | None:
    """Ask one question of a fresh name server."""
    query = dns.message.make_query(name, kind, use_edns=edns, payload=4096 if edns is not False else None)
    return asyncio.run(Nameserver(ZONE).answer(query.to_wire(), udp=udp))


def ask(name: str, kind: str = "A", *, udp: bool = True, edns: int | bool = False) -> dns.message.Message:
    """Ask one question and read the reply."""
    reply = raw(name, kind, udp=udp, edns=edns)
    assert reply is not None
    return dns.message.from_wire(reply)


def texts(message: dns.message.Message) -> list[str]:
    """Return the answer section, one text for each record."""
    return [item.to_text() for answer in message.answer for item in answer]


def test_zone_of_these_tests() -> None:
    """The zone that these tests use is good."""
    assert PROBLEMS == []


@pytest.mark.parametrize(
    ("name", "kind", "answers"),
    [
        ("a.example", "A", ["203.0.113.1"]),
        ("A.Example", "AAAA", ["2001:db8::1"]),
        ("a.example", "MX", []),
        ("alias.example", "A", ["a.example.", "203.0.113.1"]),
        ("chain.example", "AAAA", ["alias.example.", "a.example.", "2001:db8::1"]),
        ("alias.example", "CNAME", ["a.example."]),
        ("loop.example", "A", ["pool.example.", "loop.example."]),
        ("x.y.wild.example", "TXT", ['"any"']),
    ],
)
def test_answers(name: str, kind: str, answers: list[str]) -> None:
    """A question is answered with the records of its type and the aliases on the way."""
    reply = ask(name, kind)
    assert reply.rcode() == dns.rcode.NOERROR
    assert texts(reply) == answers


@pytest.mark.parametrize(
    ("name", "rcode"),
    [
        ("nowhere.example", dns.rcode.NXDOMAIN),
        ("wild.example", dns.rcode.NXDOMAIN),
        ("dangling.example", dns.rcode.NXDOMAIN),
        ("servfail.example", dns.rcode.SERVFAIL),
        ("toservfail.example", dns.rcode.SERVFAIL),
    ],
)
def test_response_codes(name: str, rcode: dns.rcode.Rcode) -> None:
    """A name that is not there, and one that fails, say so, also at the end of an alias."""
    assert ask(name).rcode() == rcode


def test_case_of_the_question_is_kept() -> None:
    """The question comes back as it was written (resolvers check that)."""
    assert b"\x01A\x07ExAmPlE" in (raw("A.ExAmPlE") or b"")


def test_silent_and_garbage() -> None:
    """A silent name has no reply; a garbage one has bytes that are no message."""
    assert raw("silent.example") is None
    reply = raw("garbage.example")
    assert reply is not None
    with pytest.raises(dns.exception.DNSException):
        dns.message.from_wire(reply)


def test_truncation() -> None:
    """What does not fit in a datagram is truncated; with EDNS it fits; over TCP it always does."""
    assert ask("many.example").flags & dns.flags.TC
    assert texts(ask("many.example")) == []
    assert len(texts(ask("many.example", edns=0))) == 60
    assert len(texts(ask("many.example", udp=False))) == 60


def test_truncation_on_demand() -> None:
    """A name that is to be truncated is, although it would fit, and is whole over TCP."""
    assert ask("short.example", edns=0).flags & dns.flags.TC
    assert texts(ask("short.example", udp=False)) == ["203.0.113.1"]


def test_turns_count_for_each_type() -> None:
    """Answers that take turns do so by question type, so that an AAAA question between does not count."""

    async def thrice() -> list[str]:
        server = Nameserver(ZONE)
        found: list[str] = []
        for kind in ("A", "AAAA", "A", "A"):
            reply = await server.answer(dns.message.make_query("turns.example", kind).to_wire(), udp=True)
            found += texts(dns.message.from_wire(reply or b""))
        return found

    assert asyncio.run(thrice()) == ["203.0.113.1", "203.0.113.2", "203.0.113.1"]


def test_two_questions_are_a_format_error() -> None:
    """A query with two questions is no question of ours: FORMERR, as real servers say."""
    query = bytearray(dns.message.make_query("a.example", "A").to_wire())
    struct.pack_into("!H", query, 4, 2)
    reply = asyncio.run(Nameserver(ZONE).answer(bytes(query), udp=True))
    assert dns.message.from_wire(reply or b"").rcode() == dns.rcode.FORMERR


@given(st.binary(max_size=80))
def test_no_bytes_break_it(query: bytes) -> None:
    """Whatever arrives, the server answers with a message or nothing."""
    parse_question(query)
    reply = asyncio.run(Nameserver({}).answer(query, udp=True))
    assert reply is None or dns.message.from_wire(reply, ignore_trailing=True).flags & dns.flags.QR


def test_what_the_world_saw() -> None:
    """The world's list is read from nft's listing with its protocols by name or number, sorted."""
    listing = """elements = { 203.0.113.1 . 6 . 443 counter packets 2 bytes 120,
        2001:db8::1 . udp . 9 counter packets 1 bytes 40, 203.0.113.1 . 132 . 5 counter packets 1 bytes 1 }"""
    assert parse_seen(listing) == "tcp 203.0.113.1 443 2\nudp 2001:db8::1 9 1\n"
