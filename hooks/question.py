"""The raw payload matches of a DNS rule, decoded back to the one question they let through.

The auditor's own reading of RFC 1035 section 4 and RFC 6891 section 6.1.2; it shares nothing with `dnsname`. The rule:
every bit of the datagram behind the UDP header is either compared or on the short list of free ones, so whatever a rule
leaves open shows. Pure. A match that is not exactly one question raises ValueError and says why.
"""

_UDP_HEADER = 8
_BASE = _UDP_HEADER * 8
_NAME = 12
_TYPES = {0x00010001, 0x001C0001}
_LETTERS = range(0x61, 0x7B)
_CASE = 0x20
_PLAIN = frozenset(b"0123456789-")


class Question:
    """What a DNS rule lets through: a name, with an empty EDNS record behind it or without."""

    __slots__ = ("edns", "name")

    def __init__(self, *, name: str, edns: bool) -> None:
        self.name = name
        self.edns = edns


class _Message:
    """What a match compares, per byte: the value it must have, its free bits, and where the set of types stands."""

    __slots__ = ("free", "types_at", "value")

    def __init__(self, size: int) -> None:
        self.value = bytearray(size)
        self.free = bytearray(b"\xff" * size)
        self.types_at = -1


def decode(words: "list[str]") -> Question:
    """Return the question of a rule's words after `udp dport 53` and before the verdict; raises ValueError."""
    if words[:2] != ["udp", "length"] or not words[2:3] or not _is_number(words[2]):
        raise ValueError("the datagram's length is not bounded")
    size = int(words[2]) - _UDP_HEADER
    message = _Message(max(size, 0))
    rest = words[3:]
    while rest:
        rest = _comparison(message, rest)
    return _question(message)


def _comparison(message: _Message, words: "list[str]") -> "list[str]":
    """Read one comparison from the front of the words; return the rest."""
    at, size = _place(words[0], len(message.value))
    if words[1:2] == ["{"] and "}" in words:
        end = words.index("}")
        _types(message, at, size, " ".join(words[2:end]).split(", "))
        return words[end + 1 :]
    if words[1:2] == ["|"] and words[3:4] == ["=="] and len(words) >= 5:
        free, value, used = _hex(words[2]), _hex(words[4]), 5
    else:
        free, value, used = 0, _hex("".join(words[1:2])), 2
    if value >= 1 << size * 8 or free & ~value:
        raise ValueError("a comparison that can never be true")
    _compare(message, at, value.to_bytes(size, "big"), free.to_bytes(size, "big"))
    return words[used:]


def _place(word: str, limit: int) -> "tuple[int, int]":
    """Return byte offset in the DNS message and size in bytes of `@th,BITS,BITS`."""
    parts = word.split(",")
    if len(parts) != 3 or parts[0] != "@th" or not all(_is_number(part) for part in parts[1:]):
        raise ValueError(f"{word} is not a comparison of the payload")
    offset, bits = int(parts[1]) - _BASE, int(parts[2])
    if offset % 8 or bits % 8 or offset < 0 or bits == 0 or (offset + bits) // 8 > limit:
        raise ValueError(f"{word} is not whole bytes of the message")
    return offset // 8, bits // 8


def _is_number(word: str) -> bool:
    return word.isdigit() and len(word) <= 5 and str(int(word)) == word


def _hex(word: str) -> int:
    """Read a number as nft prints it: lower case, no leading zeros, at most 128 bits."""
    digits = word[2:]
    if word[:2] != "0x" or not digits or len(digits) > 32 or not set(digits) <= set("0123456789abcdef"):
        raise ValueError(f"{word!r} is not a number in hex")
    if digits[0] == "0" and digits != "0":
        raise ValueError(f"{word!r} is not a number in hex")
    return int(digits, 16)


def _types(message: _Message, at: int, size: int, values: "list[str]") -> None:
    if message.types_at >= 0 or size != 4 or len(values) != 2 or {_hex(value) for value in values} != _TYPES:
        raise ValueError("the question's type and class are not exactly A or AAAA, IN")
    message.types_at = at
    _compare(message, at, bytes(size), bytes(size))


def _compare(message: _Message, at: int, value: bytes, free: bytes) -> None:
    end = at + len(value)
    if any(bits != 0xFF for bits in message.free[at:end]):
        raise ValueError("the same byte is compared twice")
    message.value[at:end] = value
    message.free[at:end] = free


def _question(message: _Message) -> Question:
    edns = _header(message)
    name, at = _qname(message)
    if message.types_at != at:
        raise ValueError("the type does not follow the name")
    at += 4
    if edns:
        at = _opt(message, at)
    if at != len(message.value):
        raise ValueError("the datagram may be longer or shorter than the question")
    return Question(name=name, edns=edns)


def _header(message: _Message) -> bool:
    """Check id to ARCOUNT; return whether one additional record follows."""
    if len(message.value) < _NAME:
        raise ValueError("the datagram is shorter than a DNS header")
    # The id is free; of the flags only AD and CD; every count is compared whole.
    if bytes(message.free[:_NAME]) != b"\xff\xff\0\x30" + bytes(8):
        raise ValueError("the header is not compared whole")
    header = bytes(message.value[2:_NAME])
    if header[:-1] != b"\x01\x30\0\x01\0\0\0\0\0" or header[-1] > 1:
        raise ValueError("the header is not that of one plain query")
    return header[-1] == 1


def _qname(message: _Message) -> "tuple[str, int]":
    labels: "list[str]" = []
    at = _NAME
    while True:
        size = _exact(message, at)
        at += 1
        if size == 0:
            break
        if size > 63:
            raise ValueError("a compressed or overlong label")
        labels.append("".join(_letter(message, at + index) for index in range(size)))
        at += size
    return ".".join(labels), at


def _exact(message: _Message, at: int) -> int:
    if at >= len(message.free) or message.free[at]:
        raise ValueError(f"byte {at} of the question is not compared")
    return message.value[at]


def _letter(message: _Message, at: int) -> str:
    if at < len(message.free) and message.free[at] == _CASE and message.value[at] in _LETTERS:
        return chr(message.value[at])
    byte = _exact(message, at)
    if byte not in _PLAIN:
        raise ValueError(f"byte {at} of the question is not one of a hostname")
    return chr(byte)


def _opt(message: _Message, at: int) -> int:
    """Check an OPT record without options whose payload size and DO bit alone are free; return where it ends."""
    end = at + 11
    if bytes(message.free[at:end]) != b"\0\0\0\xff\xff\0\0\x80\0\0\0":
        raise ValueError("the EDNS record is not compared whole")
    if bytes(message.value[at:end]) != b"\0\0\x29\xff\xff\0\0\x80\0\0\0":
        raise ValueError("the additional record is not an empty EDNS record")
    return end
