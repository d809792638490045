"""DNS by question: A and AAAA of each allowed name pass, and every other packet to port 53 is refused in the call."""

import struct
from collections.abc import Iterator

import dns.edns
import dns.flags
import dns.message
import dns.opcode
import dns.rdatatype
import dns.rrset
import pytest

from tests.kernel.wire import DNS4, DNS6, OTHER_DNS4, Wire, egress, query, walled, wire

LONG = ".".join(("a" * 63, "b-1" * 21, "c" * 63, "d" * 53, "org"))
NUMERIC = "0-1.2345678901234567890.com"
NAMED = ("github.com", "api.github.com", "xn--mnchen-3ya.example", NUMERIC, LONG, "a.io")
NAMES: "dict[str, tuple[str, ...]]" = dict.fromkeys(NAMED, ())


@pytest.fixture(scope="module", params=[DNS4, DNS6])
def asked(request: pytest.FixtureRequest) -> Iterator["tuple[Wire, str]"]:
    """Yield a walled wire and its card's DNS server, v4 and v6."""
    with walled(egress(pins=NAMES, dns=request.param)) as made:
        yield made, request.param


@pytest.fixture(scope="module")
def open_wire() -> Iterator[Wire]:
    """Yield a wire with no table: the control."""
    with wire() as made:
        yield made


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["A", "AAAA"])
@pytest.mark.parametrize("edns", [False, True])
@pytest.mark.parametrize("case", [str.lower, str.upper, str.swapcase, str.title])
def test_allowed_names_are_answered(asked: "tuple[Wire, str]", name: str, kind: str, edns: bool, case: object) -> None:  # noqa: FBT001
    """A and AAAA of every allowed name pass in any case, with EDNS and without, up to 250 characters."""
    made, server = asked
    assert callable(case)
    assert made.ask(query(str(case(name)), kind, edns=edns), server) == "answered"


def test_the_free_bits_are_free(asked: "tuple[Wire, str]") -> None:
    """AD, CD, DO and the EDNS payload size are the sender's to choose."""
    made, server = asked
    message = dns.message.make_query("github.com", "A", use_edns=0, want_dnssec=True, payload=512)
    message.flags |= dns.flags.AD | dns.flags.CD
    assert made.ask(message.to_wire(), server) == "answered"


def _flags(add: int, remove: int = 0) -> bytes:
    message = dns.message.make_query("github.com", "A")
    message.flags = dns.flags.Flag((message.flags | add) & ~remove)
    return message.to_wire()


def _section(position: int) -> bytes:
    """Return a query with one more record in a section: 1 answer, 2 authority, 3 additional."""
    message = dns.message.make_query("github.com", "A")
    message.sections[position].append(dns.rrset.from_text("github.com.", 1, "IN", "A", "192.0.2.1"))
    return message.to_wire()


def _edns(*options: "tuple[int, bytes]") -> bytes:
    made: list[dns.edns.Option] = [dns.edns.GenericOption(dns.edns.OptionType(code), data) for code, data in options]
    return dns.message.make_query("github.com", "A", use_edns=0, options=made).to_wire()


def _raw(name: bytes, tail: bytes = b"\0\x01\0\x01", counts: "tuple[int, ...]" = (1, 0, 0, 0)) -> bytes:
    return struct.pack("!HHHHHH", 7, 0x0100, *counts) + name + tail


GITHUB = b"\x06github\x03com\x00"
OPT = b"\0\0\x29\x04\xd0\0\0\0\0\0\0"
REFUSED = {
    "TXT": query("github.com", "TXT"),
    "ANY": query("github.com", "ANY"),
    "MX": query("github.com", "MX"),
    "HTTPS": query("github.com", "HTTPS"),
    "class CH": dns.message.make_query("github.com", "A", "CH").to_wire(),
    "unlisted name": query("example.org"),
    "listed name as a suffix": query("evil.github.com"),
    "listed name as a prefix": query("github.com.evil.com"),
    "prefix of a listed name": query("github.co"),
    "parent of a listed name": query("com"),
    "the root": query("."),
    "one letter more": query("ggithub.com"),
    "another letter": query("gitlub.com"),
    "digit for its shifted byte": _raw(b"\x03\x10-1" + b"\x132345678901234567890\x03com\0"),
    "letter for its other column": _raw(b"\x06'ithub\x03com\0"),
    "dot inside a label": _raw(b"\x0agithub.com\0"),
    "two questions": _raw(GITHUB, b"\0\x01\0\x01" + GITHUB + b"\0\x01\0\x01", (2, 0, 0, 0)),
    "a second question uncounted": _raw(GITHUB, b"\0\x01\0\x01" + GITHUB + b"\0\x01\0\x01"),
    "no question counted": _raw(GITHUB, counts=(0, 0, 0, 0)),
    "compressed name": _raw(b"\x06github\xc0\x0c"),
    "bytes behind the question": query("github.com") + b"x",
    "half a name behind the question": query("github.com") + b"secret",
    "cut short": query("github.com")[:-1],
    "header only": query("github.com")[:12],
    "an answer record": _section(1),
    "an authority record": _section(2),
    "an additional record": _section(3),
    "OPT uncounted": _raw(GITHUB, b"\0\x01\0\x01" + OPT),
    "OPT counted and missing": _raw(GITHUB, counts=(1, 0, 0, 1)),
    "OPT counted twice": _raw(GITHUB, b"\0\x01\0\x01" + OPT, (1, 0, 0, 2)),
    "bytes behind OPT": _raw(GITHUB, b"\0\x01\0\x01" + OPT + b"secret", (1, 0, 0, 1)),
    "EDNS version 1": _raw(GITHUB, b"\0\x01\0\x01" + OPT[:6] + b"\x01" + OPT[7:], (1, 0, 0, 1)),
    "EDNS Z bits": _raw(GITHUB, b"\0\x01\0\x01" + OPT[:8] + b"\x7f" + OPT[9:], (1, 0, 0, 1)),
    "EDNS named": _raw(GITHUB, b"\0\x01\0\x01\x01a" + OPT, (1, 0, 0, 1)),
    "an EDNS cookie": _edns((10, b"8 octets")),
    "EDNS padding": _edns((12, b"x" * 100)),
    "EDNS client subnet": _edns((8, b"\0\x01\x18\0\xc0\0\x02")),
    "a response": _flags(dns.flags.QR),
    "opcode UPDATE": _flags(dns.opcode.to_flags(dns.opcode.UPDATE)),
    "opcode NOTIFY": _flags(dns.opcode.to_flags(dns.opcode.NOTIFY)),
    "AA": _flags(dns.flags.AA),
    "TC": _flags(dns.flags.TC),
    "RA": _flags(dns.flags.RA),
    "Z": _flags(0x0040),
    "RCODE": _flags(0x0005),
    "RD off": _flags(0, dns.flags.RD),
    "not DNS": b"x" * 28,
    "nothing": b"",
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
def test_everything_else_is_refused(asked: "tuple[Wire, str]", data: bytes) -> None:
    """Any other datagram to the card's own DNS server fails in the call with EPERM."""
    made, server = asked
    assert made.send(server, 53, data) == "EPERM"


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
def test_control_sends_everything(data: bytes) -> None:
    """Without a table each of those datagrams can be sent."""
    with wire(serving=False) as made:
        assert made.send(DNS4, 53, data) == "ok"


@pytest.mark.parametrize("server", [DNS4, DNS6, OTHER_DNS4])
def test_other_servers_are_refused(asked: "tuple[Wire, str]", open_wire: Wire, server: str) -> None:
    """The very question that passes to the card's DNS is refused to any other server."""
    made, own = asked
    assert open_wire.ask(query("github.com"), server) == "answered"
    assert made.ask(query("github.com"), server) == ("answered" if server == own else "EPERM")


@pytest.mark.parametrize("port", [52, 54, 443, 853, 5353])
def test_other_ports_are_refused(asked: "tuple[Wire, str]", port: int) -> None:
    """The very question that passes to port 53 is refused to another port of the same server."""
    made, server = asked
    assert made.send(server, 53, query("github.com")) == "ok"
    assert made.send(server, port, query("github.com")) == "EPERM"


def test_dns_over_tcp_is_refused(asked: "tuple[Wire, str]") -> None:
    """A stream cannot be matched by question, so TCP 53 is closed, to the card's DNS as well."""
    made, server = asked
    assert made.connect(server, 53) == "ECONNREFUSED"


def test_closed_dns() -> None:
    """With DNS closed not even an allowed name can be asked."""
    with walled(egress(dns=None)) as made:
        assert made.ask(query("github.com")) == "EPERM"
        assert made.connect("203.0.113.10") == "ok"


def test_segmented_datagrams_carry_nothing(asked: "tuple[Wire, str]") -> None:
    """UDP_SEGMENT, which has the kernel cut one datagram in several after the table, adds no free byte."""
    made, server = asked
    assert made.send(server, 53, query("github.com") * 2, segment=28) == "EPERM"


def test_control_segmented_datagrams(open_wire: Wire) -> None:
    """Without a table the kernel sends the segments."""
    assert open_wire.send(DNS4, 53, query("github.com") * 2, segment=28) == "ok"
