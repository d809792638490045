"""A hostname as the nft expressions that match a DNS question for exactly that name (RFC 1035 sections 4.1 and 4.2.1).

Owns the packet's layout on the renderer's side; the auditor decodes it again by itself. Pure. Everything after the
UDP checksum is matched except the bits listed here, and the datagram's length is exact, so nothing can ride behind
the question. nft compares at most 128 bits of raw payload at a time (`@th,offset,length`, in bits from the UDP header).

Free bits are set by `|` before comparing (a letter with 0x20 set is its lower case, whatever it was). The other way
round, clearing them with `&`, cannot be read back: nft from 1.1.2 lists such a match without its mask.

What stays open, for a worker that wants to carry data out to the card's DNS server and to whoever that one asks:
the transaction id (16 bits), the source port (16), the case of each letter (resolvers randomise it on purpose), AD and
CD, and with EDNS the sender's payload size (16) and DO. Also the order and timing of questions, and DSCP, TTL and flow
label as on any packet. Closed are other opcodes, RD=0 (probing a cache), Z, a second question, other records, and any
EDNS option: a cookie or padding option is up to tens of bytes of free payload in every question. A client that insists
on one is denied (`dig +nocookie` is not).
"""

NAME_AT = 160
"""Bits from the UDP header to the QNAME."""
RUN = 128
"""nft's limit for one raw comparison; longer ones fail in the kernel or abort nft 1.0.6."""

_CASE = 0x20
# Flags (RD set; AD and CD free), QDCOUNT 1, ANCOUNT 0, NSCOUNT 0, ARCOUNT 0 or 1: one 80-bit comparison.
_HEADER_AT = 80
_HEADER_BITS = 80
_HEADER = 0x0100_0001_0000_0000_0000
_HEADER_FREE = 0x0030_0000_0000_0000_0000
# QTYPE A or AAAA, QCLASS IN.
_TYPES = (0x00010001, 0x001C0001)
_TYPES_BITS = 32
# The OPT pseudo-record with no options (RFC 6891 section 6.1.2): root name, type 41, class = payload size (free),
# extended rcode 0, version 0, DO free and Z zero, RDLEN 0.
_OPT = 0x00_0029_0000_00_00_0000_0000
_OPT_FREE = 0x00_0000_FFFF_00_00_8000_0000
_OPT_BITS = 88


def encode(name: str) -> "tuple[bytes, bytes]":
    """Return the name as a QNAME in lower case, and the bits of it that are free: the case of its letters."""
    value = bytearray()
    free = bytearray()
    for label in name.split("."):
        value += bytes((len(label), *label.encode("ascii")))
        free += bytes((0, *(_CASE if character.isalpha() else 0 for character in label)))
    return bytes(value + b"\0"), bytes(free + b"\0")


def matches(name: str) -> "tuple[str, str]":
    """Return the two matches of a question for the name: without and with an empty EDNS record.

    Each is what stands after `udp dport 53` in a rule.
    """
    value, free = encode(name)
    end = NAME_AT + len(value) * 8
    types = ", ".join(f"{kind:#x}" for kind in _TYPES)
    question = f"{_name_match(value, free)} @th,{end},{_TYPES_BITS} {{ {types} }}"
    bare = (end + _TYPES_BITS) // 8
    opt = _compare(end + _TYPES_BITS, _OPT_BITS, _OPT, _OPT_FREE)
    return (
        f"udp length {bare} {_header(additional=0)} {question}",
        f"udp length {bare + _OPT_BITS // 8} {_header(additional=1)} {question} {opt}",
    )


def _header(*, additional: int) -> str:
    return _compare(_HEADER_AT, _HEADER_BITS, _HEADER + additional, _HEADER_FREE)


def _name_match(value: bytes, free: bytes) -> str:
    step = RUN // 8
    runs: "list[str]" = []
    for start in range(0, len(value), step):
        part, part_free = value[start : start + step], free[start : start + step]
        number, number_free = int.from_bytes(part, "big"), int.from_bytes(part_free, "big")
        runs.append(_compare(NAME_AT + start * 8, len(part) * 8, number, number_free))
    return " ".join(runs)


def _compare(offset: int, bits: int, value: int, free: int) -> str:
    if free == 0:
        return f"@th,{offset},{bits} {value:#x}"
    return f"@th,{offset},{bits} | {free:#x} == {value | free:#x}"
