"""Addresses and ranges as integers, for the auditor: what a set's element spans, and whether spans cover another.

Pure; inet_pton(3) instead of `ipaddress`, whose import costs a hook 4 ms.
"""

import _socket

_SIZES = {4: 32, 6: 128}


def span(text: str) -> "tuple[int, int, int] | None":
    """Return the span of `A`, `A/PREFIX` or `A-B` as nft prints them, or None when the text is none of them."""
    first, dash, last = text.partition("-")
    if not dash:
        return _prefix(text)
    low, high = _address(first), _address(last)
    if low is None or high is None or low[0] != high[0] or low[1] > high[1]:
        return None
    return low[0], low[1], high[1]


def _prefix(text: str) -> "tuple[int, int, int] | None":
    address, slash, prefix = text.partition("/")
    found = _address(address)
    if found is None or (slash and not (prefix.isdigit() and len(prefix) <= 3 and str(int(prefix)) == prefix)):
        return None
    version, start = found
    host_bits = _SIZES[version] - int(prefix) if slash else 0
    if host_bits < 0 or start % (1 << host_bits):
        return None
    return version, start, start + (1 << host_bits) - 1


def _address(text: str) -> "tuple[int, int] | None":
    version, family = (6, _socket.AF_INET6) if ":" in text else (4, _socket.AF_INET)
    try:
        packed = _socket.inet_pton(family, text)
    except (OSError, ValueError):
        return None
    return (version, int.from_bytes(packed, "big")) if _socket.inet_ntop(family, packed) == text else None


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
