"""DNS messages against another implementation (dnspython): what we ask it reads, what it writes we read alike."""

import itertools

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset
import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.egress import message
from launcher.egress.message import AAAA, A, Endless

LABEL = st.text("abcdefghijklmnopqrstuvwxyz0123456789-_", min_size=1, max_size=63)
NAMES = st.lists(LABEL, min_size=1, max_size=3).map(".".join)
KINDS = st.sampled_from([("A", A, "203.0.113.10"), ("AAAA", AAAA, "2001:db8::1")])
ASKED = message.query("a.example", A, 7)


def answer(query: bytes = ASKED, *rrsets: tuple[str, str, str]) -> dns.message.Message:
    """Return an answer to a query with (owner, type, content) in it, all records of one owner and type together."""
    response = dns.message.make_response(dns.message.from_wire(query))
    response.answer = [dns.rrset.from_text(f"{owner}.", 60, "IN", kind, content) for owner, kind, content in rrsets]
    return response


def read(response: dns.message.Message) -> message.Response:
    """Return what we read of it."""
    return message.parse(response.to_wire(want_shuffle=False))


@given(NAMES, KINDS, st.integers(0, 65535))
def test_a_query_is_what_another_reads(name: str, kind: tuple[str, int, str], ident: int) -> None:
    """One question, recursion desired, EDNS with our payload, and nothing else."""
    found = dns.message.from_wire(message.query(name, kind[1], ident))
    assert (found.id, found.flags, found.edns, found.payload) == (ident, dns.flags.RD, 0, message.PAYLOAD)
    assert [str(question) for question in found.question] == [f"{name}. IN {kind[0]}"]
    assert not found.answer


@pytest.mark.parametrize("name", ["", ".", "a..b", f"{'x' * 64}.example", ".".join(["x" * 60] * 5)])
def test_what_is_no_name_is_not_asked(name: str) -> None:
    """An empty or long label, or a name over 255 octets."""
    with pytest.raises(ValueError, match="is no name"):
        message.query(name, A, 1)


@given(NAMES, st.lists(NAMES, max_size=5, unique=True), KINDS)
def test_an_answer_is_read_as_another_reads_it(name: str, aliases: list[str], kind: tuple[str, int, str]) -> None:
    """Compressed or not, through CNAMEs or not: the address, and the names on the way."""
    path = [name, *(alias for alias in aliases if alias != name)]
    query = message.query(name, kind[1], 9)
    steps = [(owner, "CNAME", f"{target}.") for owner, target in itertools.pairwise(path)]
    wire = answer(query, *steps, (path[-1], kind[0], kind[2])).to_wire()
    response = message.parse(wire)
    assert response.answers(query)
    assert message.follow(response, name, kind[1]) == ((kind[2],), tuple(path[1:]))
    theirs = dns.message.from_wire(wire)
    assert isinstance(theirs, dns.message.QueryMessage)
    assert str(theirs.resolve_chaining().canonical_name) == f"{path[-1]}."


def test_names_are_compared_in_lower_case() -> None:
    """A server may answer in the letters that it likes."""
    response = read(answer(ASKED, ("A.eXample", "A", "203.0.113.10")))
    assert response.answers(ASKED)
    assert message.follow(response, "a.example", A) == (("203.0.113.10",), ())


def test_other_records_are_left_alone() -> None:
    """Of another owner, another type or another class nothing is taken."""
    response = read(
        answer(ASKED, ("b.example", "A", "203.0.113.66"), ("a.example", "TXT", "x"), ("a.example", "AAAA", "::1"))
    )
    assert message.follow(response, "a.example", A) == ((), ())


@pytest.mark.parametrize("links", [["a.example"], ["b.example", "a.example"], [f"n{n}.example" for n in range(30)]])
def test_a_loop_or_an_endless_chain(links: list[str]) -> None:
    """It ends, and says so."""
    path = ["a.example", *links]
    response = read(answer(ASKED, *((owner, "CNAME", f"{to}.") for owner, to in itertools.pairwise(path))))
    with pytest.raises(Endless):
        message.follow(response, "a.example", A)


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 16, 23, 4095])
def test_an_error_and_its_upper_bits(number: int) -> None:
    """The status is that of the header and of the OPT record together (RFC 6891)."""
    response = answer()
    response.set_rcode(dns.rcode.Rcode(number))
    assert read(response).rcode == number
    assert read(response).answers(ASKED)


def test_whose_answer_it_is() -> None:
    """The same id and question, or an error without the question; anything else is somebody else's."""
    assert not read(answer(message.query("a.example", A, 8))).answers(ASKED)
    assert not read(answer(message.query("b.example", A, 7))).answers(ASKED)
    assert not read(answer(message.query("a.example", AAAA, 7))).answers(ASKED)
    bare = answer()
    bare.question = []
    assert not read(bare).answers(ASKED)
    bare.set_rcode(dns.rcode.SERVFAIL)
    assert read(bare).answers(ASKED)


def test_a_truncated_answer_is_not_read_further() -> None:
    """Whatever follows its header."""
    response = answer(ASKED, ("a.example", "A", "203.0.113.10"))
    response.flags |= dns.flags.TC
    found = message.parse(response.to_wire()[:14])
    assert (found.truncated, found.records, found.answers(ASKED)) == (True, (), True)
    assert not found.answers(message.query("a.example", A, 8))


GOOD = answer(ASKED, ("a.example", "CNAME", "b.example."), ("b.example", "A", "203.0.113.10")).to_wire()
HEADER = GOOD[:2] + b"\x81\x80"
BROKEN = {
    "a query": message.query("a.example", A, 7),
    "another opcode": GOOD[:2] + b"\xa8\x00" + GOOD[4:],
    "two questions": GOOD[:4] + b"\x00\x02" + GOOD[6:],
    "something after it": GOOD + b"\0",
    "a pointer to itself": HEADER + b"\0\0\0\1\0\0\0\0" + b"\xc0\x0c" + b"\0\1\0\1\0\0\0\0\0\4\1\2\3\4",
    "a pointer ahead": HEADER + b"\0\0\0\1\0\0\0\0" + b"\xc0\x20" + b"\0\1\0\1\0\0\0\0\0\4\1\2\3\4" + bytes(8),
    "a label of another kind": HEADER + b"\0\0\0\1\0\0\0\0" + b"\x80\0" + b"\0\1\0\1\0\0\0\0\0\4\1\2\3\4",
    "an address of 3 bytes": HEADER + b"\0\0\0\1\0\0\0\0" + b"\0" + b"\0\1\0\1\0\0\0\0\0\3\1\2\3",
    "an alias longer than it says": HEADER + b"\0\0\0\1\0\0\0\0" + b"\0" + b"\0\5\0\1\0\0\0\0\0\1\1a\0",
    "a name too long": HEADER
    + b"\0\0\0\1\0\0\0\0"
    + (b"\x3f" + b"x" * 63) * 4
    + b"\0"
    + b"\0\1\0\1\0\0\0\0\0\4\1\2\3\4",
    "a question of another class": GOOD[:23] + b"\0\1\0\3" + GOOD[27:],
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_no_answer(name: str) -> None:
    """Refused as ValueError; the control, unbroken, is read."""
    assert message.parse(GOOD).answers(ASKED)
    with pytest.raises(ValueError, match=r"."):
        message.parse(BROKEN[name])


@pytest.mark.parametrize("size", range(len(GOOD)))
def test_cut_anywhere(size: int) -> None:
    """No part of a message is a message."""
    with pytest.raises(ValueError, match="cut short"):
        message.parse(GOOD[:size])


@given(st.binary(max_size=300))
def test_anything_is_read_or_refused(noise: bytes) -> None:
    """Behind a good header, whatever comes: an answer, or ValueError."""
    for data in (noise, HEADER + b"\0\1\0\2\0\0\0\0" + noise):
        try:
            found = message.parse(data)
        except ValueError:
            continue
        message.follow(found, "a.example", A)


def test_bytes_that_no_hostname_has_are_escaped() -> None:
    """A name in a receipt cannot drive a terminal, or look like two."""
    assert message.text((b"a.b", b"\x1b[0m", b"x")) == "a\\046b.\\027\\0910m.x"
