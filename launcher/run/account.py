"""The account of an ended run: its receipt, kept and written where it was asked for, and what a person is told."""

import os
import time

from launcher.fs import aftermath
from launcher.life import kept
from launcher.life.record import Record
from launcher.plan import Plan
from launcher.run import events, output
from launcher.run.receipt import Measured, build
from launcher.suppress import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any
else:
    Any = object


def account(plan: Plan, measured: Measured, record: Record, *, quiet: bool, receipt: int | None) -> None:
    """Write and keep the receipt, and say on stderr what was denied. Nothing here changes the run's status."""
    before = aftermath.before(plan.launch.filesystem, before_podman=plan.launch.before_podman)
    found = aftermath.look(before) if before else []
    content = build(plan, measured, record, ended=time.time())
    content["notes"] += found
    if receipt is not None:
        _write(receipt, content)
    keep(content)
    for line in found:
        output.say(f"NOTE {line}")
    if measured.ledger is None:
        output.unread(measured.unread)
    elif not quiet:
        output.denials(plan, measured.ledger)
    if events.heard():
        events.send("ended", receipt=content)


def keep(content: dict[str, Any]) -> None:
    """Keep a receipt among those of ended runs; one that cannot be kept costs a line and nothing else."""
    try:
        kept.keep(content["run"], content)
    except OSError as error:
        output.say(f"NOTE the receipt could not be kept in {kept.directory()}: {error.strerror}")


def _write(fd: int, content: dict[str, Any]) -> None:
    """Write the receipt over what the descriptor's file held; a pipe or terminal has nothing to cut off."""
    import json  # 3 ms that a run without a receipt to write does not pay

    with suppress(OSError):
        os.ftruncate(fd, 0)
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(json.dumps(content, indent=2, sort_keys=True) + "\n")
    except OSError as error:
        output.say(f"NOTE the receipt could not be written: {os.strerror(error.errno or 0)}")
