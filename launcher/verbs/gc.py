"""`card gc`: undo the runs that nobody answers for any more."""

import json
import sys
from typing import Annotated

import typer

from launcher.life import gc as life
from launcher.life import runs


def gc(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be undone, and undo nothing")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the findings as JSON, one object per line")] = False,
) -> None:
    """Clean up after runs whose card-run is gone: container, namespaces, tables, directory; the receipt is kept.

    Example: card gc --dry-run
    """
    findings = life.collect(dry=dry_run)
    for one in findings:
        sys.stdout.write((json.dumps(one.as_dict()) if as_json else _line(one, dry=dry_run)) + "\n")
    if not as_json:
        sys.stderr.write(_waiting() or ("" if findings else "nothing is left of any run\n"))
    raise typer.Exit(1 if any(one.left for one in findings) else 0)


def _waiting() -> str:
    """Return what is said of cards that are prepared: they are nobody's yet, and may still be started."""
    waiting = [one.run for one in runs.living() if one.state == runs.PREPARED]
    if not waiting:
        return ""
    return f"prepared, and may be started for a day: {len(waiting)} (card stop {' '.join(waiting)} discards)\n"


def _line(one: life.Finding, *, dry: bool) -> str:
    if dry:
        return f"{one.run}: would be undone: {one.why}"
    if one.undone:
        return f"{one.run}: undone: {one.why}"
    return f"{one.run}: not undone ({one.why}); left: {'; '.join(one.left)}"
