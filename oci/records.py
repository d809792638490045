r"""Records: NUL-terminated `key=value` items, the format of what crosses into the container.

The same shape as /proc/PID/environ (proc(5)): readable with `tr '\0' '\n'`, parsed without json's import cost, and
safe for every path and environment value, none of which can hold a NUL. A repeated key is a list; order is kept.
Stage 2 and the hooks both use it, so it imports nothing.
"""


def dump(items: "list[tuple[str, str]]") -> bytes:
    """Return the items as bytes; raises ValueError for a key with `=` in it, an empty key, or a NUL anywhere."""
    out: list[bytes] = []
    for key, value in items:
        if not key or "=" in key or "\0" in key or "\0" in value:
            raise ValueError(f"not a record: {key!r}={value!r}")
        out.append(f"{key}={value}\0".encode("utf-8", "surrogateescape"))
    return b"".join(out)


def load(data: bytes) -> "dict[str, list[str]]":
    """Return the values of each key in order; raises ValueError when an item has no key or the last is cut short."""
    if data and not data.endswith(b"\0"):
        raise ValueError("records end in the middle of an item")
    records: dict[str, list[str]] = {}
    for item in data.split(b"\0")[:-1]:
        key, equals, value = item.decode("utf-8", "surrogateescape").partition("=")
        if not key or not equals:
            raise ValueError(f"not a record: {item!r}")
        records.setdefault(key, []).append(value)
    return records
