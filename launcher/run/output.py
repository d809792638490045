"""What a person reads on stderr: the OK line, notes, refusals, and the table of what was denied.

stdout is the worker's alone. The reader is often a coding agent, so a denial says that it is policy, that retrying or
routing round it will not help, and what a person can do about it.
"""

import sys

from launcher.plan import Plan
from launcher.run import events
from launcher.run.receipt import Measured, enforced
from launcher.suppress import suppress
from oci.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any
else:
    Any = object

_ADVICE = """\
These denials are this card's policy, not a fault: retrying, another port or another route will not help.
To allow a host: have its name reviewed into {policy}, then pass --allow-host NAME.
"""


def refusals(many: tuple[Refusal, ...]) -> None:
    """Print each refusal on a line of its own."""
    if events.heard():
        events.send("refused", refusals=[refusal.to_json() for refusal in many])
        return
    for refusal in many:
        say(str(refusal))


def say(line: str) -> None:
    """Print one line on stderr, or tell it to who listens; a stderr that is full or gone costs the line only.

    podman may have made the terminal raw already (termios(3)): there a line needs a return of its own.
    """
    if events.heard():
        events.send("note", text=line)
        return
    with suppress(OSError):
        sys.stderr.write(printable(line) + ("\r\n" if sys.stderr.isatty() else "\n"))
        sys.stderr.flush()


def printable(line: str) -> str:
    """Return the line without control characters: a path or a name must not drive the terminal."""
    return "".join(c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode() for c in line)


def ok(plan: Plan, measured: Measured) -> None:
    """Print the one line that says what is enforced, every number of it measured on this run."""
    facts, inside = measured.hook["facts"], measured.stage2
    words = [
        f"run={plan.launch.run}",
        f"backend={inside['backend']}",
        f"abi={inside['abi']}" + (f" used={inside['used']}" if inside["used"] != inside["abi"] else ""),
        f"seccomp={inside['seccomp']}",
        f"egress={facts['table']}",
        f"allow={facts['allow']}",
        f"deny={facts['deny']}",
        f"names={facts['names']}",
        f"net={plan.launch.net}",
        f"level={enforced(plan, measured)['level']}",
    ]
    say("SANDBOX OK " + " ".join(words))


def started(plan: Plan, measured: Measured) -> None:
    """Tell who listens that the worker starts now, and what was measured of its walls."""
    lifeline = measured.stage2.get("lifeline") == "armed"
    events.send("started", run=plan.launch.run, **enforced(plan, measured), lifeline=lifeline)


def notes(plan: Plan) -> None:
    """Print what was dropped or is unusual about this bench."""
    for note in plan.launch.notes:
        say(f"NOTE {note}")
    if plan.bench.documentation_ranges:
        say("NOTE documentation ranges count as internet on this bench (a test setting)")


def unread(why: tuple[Refusal, ...]) -> None:
    """Say that there is no ledger, and why as far as that is known."""
    reasons = "".join(f"; {str(one).removeprefix('SANDBOX REFUSED ')}" for one in why)
    say(f"NOTE the ledger could not be read: what was denied is not known{reasons}")


def denials(plan: Plan, ledger: dict[str, Any]) -> None:
    """Print the table of denied destinations, with the name where the plan knows it; nothing when there were none."""
    rows = [
        (row["address"], row["protocol"], str(row["port"]), str(row["packets"]), plan.egress.names_of(row["address"]))
        for row in ledger["denied"]
    ]
    if ledger["other"]:
        rows.append(("(any)", "other", "-", str(ledger["other"]), ""))
    if not rows:
        return
    table = [("DENIED", "PROTO", "PORT", "PACKETS", "NAME"), *rows]
    widths = [max(len(row[column]) for row in table) for column in range(5)]
    for row in table:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    if ledger["full"]:
        say("NOTE the ledger was full: more was denied than is listed")
    for line in _ADVICE.format(policy=plan.launch.policy_path).splitlines():
        say(line)
