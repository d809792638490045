"""Typed views of what tomllib returns. Pure; imports the standard library only."""

from typing import cast


def table_of(value: object) -> dict[str, object] | None:
    """Return the value if it is a table (its keys are strings, by TOML's grammar), else None."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else None


def list_of(value: object) -> list[object] | None:
    """Return the value if it is an array, else None."""
    return cast("list[object]", value) if isinstance(value, list) else None


def strings_of(value: object) -> list[str] | None:
    """Return the value if it is an array of strings, else None."""
    items = list_of(value)
    if items is None or not all(isinstance(item, str) for item in items):
        return None
    return cast("list[str]", items)
