"""A hostname as the nft expressions that match a DNS question for exactly that name (RFC 1035 sections 4.1 and 4.2.1).

Owns the packet's layout on the renderer's side; the auditor decodes it again by itself. Pure. Everything after the
UDP checksum is matched except the bits listed here, and the datagram's length is exact, so nothing can ride behind
the question. nft compares at most 128 bits of raw payload at a time (`@th,offset,length`, in bits from the UDP header).

What stays open, for a worker that wants to carry data out to the card's DNS server and to whoever that one asks:
the transaction id (16 bits), the source port (16), the case of each letter (resolvers randomise it on purpose), AD and
CD, and with EDNS the sender's payload size (16) and DO. Also the order and timing of questions, and DSCP, TTL and flow
label as on any packet. Closed are other opcodes, RD=0 (probing a cache), Z, a second question, other records, and any
EDNS option: a cookie or padding option is up to tens of bytes of free payload in every question. A client that insists
on one is denied (`dig +nocookie` is not).
"""

DNS_AT = 64
"""Bits from the UDP header to the DNS message."""
COUNTS_AT = DNS_AT + 16
NAME_AT = DNS_AT + 96
RUN = 128
"""nft's limit for one raw comparison; longer ones fail in the kernel or abort nft 1.0.6."""

_CASE = 0xDF
_EXACT = 0xFF

# Flags (RD set; AD and CD free), QDCOUNT 1, ANCOUNT 0, NSCOUNT 0, ARCOUNT 0 or 1: one 80-bit comparison.
_FLAGS = 0x0100
_FLAGS_MASK = 0xFFCF
# QTYPE A or AAAA, QCLASS IN.
_QUESTION_TYPES = (0x00010001, 0x001C0001)
_QUESTION_BITS = 32
# The OPT pseudo-record with no options (RFC 6891 section 6.1.2): root name, type 41, class = payload size (free),
# extended rcode 0, version 0, DO free and Z zero, RDLEN 0.
_OPT = 0x0000290000000000000000
_OPT_MASK = 0xFFFFFF0000FFFF7FFFFFFF
_OPT_BITS = 88
_UDP_HEADER = 8
_DNS_HEADER = 12


def encode(name: str) -> "tuple[bytes, bytes]":
    """Return the name as a QNAME, and the mask that hides the case of its letters and nothing else."""
    value = bytearray()
    mask = bytearray()
    for label in name.split("."):
        value.append(len(label))
        mask.append(_EXACT)
        for byte in label.encode("ascii"):
            bits = _CASE if 0x61 <= byte <= 0x7A else _EXACT
            mask.append(bits)
            value.append(byte & bits)
    return bytes(value + b"\0"), bytes(mask + b"\xff")


def matches(name: str) -> "tuple[str, str]":
    """Return the two matches of a question for the name: without and with an empty EDNS record.

    Each is what stands after `udp dport 53` in a rule.
    """
    value, mask = encode(name)
    end = NAME_AT + len(value) * 8
    types = ", ".join(f"{kind:#x}" for kind in _QUESTION_TYPES)
    question = f"{_name_match(value, mask)} @th,{end},{_QUESTION_BITS} {{ {types} }}"
    bare = _UDP_HEADER + _DNS_HEADER + len(value) + _QUESTION_BITS // 8
    opt = _compare(end + _QUESTION_BITS, _OPT_BITS, _OPT, _OPT_MASK)
    return (
        f"udp length {bare} {_header(additional=0)} {question}",
        f"udp length {bare + _OPT_BITS // 8} {_header(additional=1)} {question} {opt}",
    )


def _header(*, additional: int) -> str:
    value = _FLAGS << 64 | 1 << 48 | additional
    mask = _FLAGS_MASK << 64 | (1 << 64) - 1
    return _compare(COUNTS_AT, 80, value, mask)


def _name_match(value: bytes, mask: bytes) -> str:
    step = RUN // 8
    runs: "list[str]" = []
    for start in range(0, len(value), step):
        part = value[start : start + step]
        part_mask = mask[start : start + step]
        bits = len(part) * 8
        number, number_mask = int.from_bytes(part, "big"), int.from_bytes(part_mask, "big")
        runs.append(_compare(NAME_AT + start * 8, bits, number, number_mask))
    return " ".join(runs)


def _compare(offset: int, bits: int, value: int, mask: int) -> str:
    if mask == (1 << bits) - 1:
        return f"@th,{offset},{bits} {value:#x}"
    return f"@th,{offset},{bits} & {mask:#x} == {value:#x}"
