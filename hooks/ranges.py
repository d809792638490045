"""Addresses and ranges as integers, for the auditor: what a set's element spans, and whether spans cover another.

Pure; inet_pton(3) instead of `ipaddress`, whose import costs a hook 4 ms.
"""

import _socket


def span(text: str) -> "tuple[int, int, int] | None":
    """Return the span of `A`, `A/PREFIX` (host bits zero) or `A-B`, or None when the text is none of them."""
    first, dash, last = text.partition("-")
    if dash:
        low, high = span(first), span(last)
        if low is None or high is None or low[0] != high[0] or low[1] > high[2] or "/" in text:
            return None
        return low[0], low[1], high[2]
    address, slash, prefix = text.partition("/")
    version, size = (6, 128) if ":" in address else (4, 32)
    try:
        packed = _socket.inet_pton(_socket.AF_INET6 if version == 6 else _socket.AF_INET, address)
    except (OSError, ValueError):
        return None
    if slash and not (prefix.isdigit() and len(prefix) <= 3 and str(int(prefix)) == prefix and int(prefix) <= size):
        return None
    low_bits = size - int(prefix) if slash else 0
    start = int.from_bytes(packed, "big")
    if start % (1 << low_bits):
        return None
    return version, start, start + (1 << low_bits) - 1


def inside(inner: "tuple[int, int, int]", spans: "list[tuple[int, int, int]]") -> bool:
    """Whether one of the spans, or several that touch, cover the inner one."""
    family, at, last = inner
    for other, low, high in sorted(spans):
        if other == family and low <= at <= high:
            at = high + 1
    return at > last


def covered(text: str, spans: "list[tuple[int, int, int]]") -> bool:
    """Whether the spans cover the address or range that the text names."""
    found = span(text)
    return found is not None and inside(found, spans)


def show(found: "tuple[int, int, int]") -> str:
    """Return the span as text."""
    family, size = (_socket.AF_INET6, 16) if found[0] == 6 else (_socket.AF_INET, 4)
    low, high = (_socket.inet_ntop(family, value.to_bytes(size, "big")) for value in found[1:])
    return low if low == high else f"{low}-{high}"
