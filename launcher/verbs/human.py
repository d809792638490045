"""How a person reads it: spans of time, sizes of lists, and tables whose columns stand under each other."""

import shutil
import sys
import time

_UNITS = ((86400, "d"), (3600, "h"), (60, "m"))


def span(seconds: float) -> str:
    """Return a span of time in its largest whole unit: 12s, 5m, 3h, 2d."""
    whole = max(0, int(seconds))
    return next((f"{whole // size}{unit}" for size, unit in _UNITS if whole >= size), f"{whole}s")


def moment(epoch: float) -> str:
    """Return a time of day as the bench's clock has it, to the second, and how long ago it was."""
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(epoch))} ({span(time.time() - epoch)} ago)"


def table(rows: list[tuple[str, ...]]) -> str:
    """Return rows under each other in columns; in a terminal no line is wider than it, the last column is cut."""
    if not rows:
        return ""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    if sys.stdout.isatty():
        most = shutil.get_terminal_size().columns
        lines = [line if len(line) <= most else f"{line[: most - 1]}…" for line in lines]
    return "".join(f"{line}\n" for line in lines)


def fields(pairs: list[tuple[str, str]]) -> str:
    """Return names and values, one pair a line, the values under each other; a pair without a value is left out."""
    told = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in told), default=0)
    return "".join(f"{name.ljust(width)}  {value}\n" for name, value in told)
