"""`card ps`: the cards of this user, and what each was denied so far, from the kernel's own record."""

import contextlib
import json
import sys
import time
from typing import Annotated, Any

import typer

from hooks.ledger import Ledger
from launcher import live
from launcher.life import runs
from launcher.life.runs import Ended, Run
from launcher.run import output
from launcher.verbs import human
from oci.refusal import Refused

_EVERY_SECONDS = 2.0
_HEAD = ("RUN", "CARD", "STATE", "AGE", "IMAGE", "DENIED", "NAMES")
_CLEAR = "\x1b[H\x1b[2J"  # ECMA-48: home, erase the display; what was scrolled out of it is the user's


def ps(
    *,
    every: Annotated[
        bool, typer.Option("--all", "-a", help="those that ended too, while their receipts are kept")
    ] = False,
    last: Annotated[int, typer.Option("--last", "-n", help="those that live and the last N that ended", min=0)] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="print run ids only")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="go on, every 2 seconds, until interrupted")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object per line")] = False,
) -> None:
    """List the cards that run: run, card, state, age, image, packets denied so far, allowed names.

    Example: card ps --all --json | jq -r 'select(.exit_status != 0) | .run'
    """

    def text() -> str:
        if quiet:
            return "".join(f"{one.run}\n" for one in chosen(every=every, last=last) if not _warm(one))
        return _listed(every=every, last=last, as_json=as_json)

    if not watch:
        sys.stdout.write(text())
        return
    clear = _CLEAR if sys.stdout.isatty() and not as_json else ""
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            sys.stdout.write(clear + text())
            sys.stdout.flush()
            time.sleep(_EVERY_SECONDS)


def chosen(*, every: bool, last: int) -> list[Run | Ended]:
    """Return the runs to list, the newest first, each once.

    Those that ended are the last N of them, or every one; with both, the last N. The living are read first: one that
    ends meanwhile is seen as living, then as ended, and is told as the former.
    """
    alive = runs.living()
    began = {one.run: one.record.started if one.record else 0.0 for one in alive}
    # A receipt from before a living run began is that of an earlier run of its id.
    over = [one for one in runs.ended() if one.run not in began or one.kept < began[one.run]]
    return [*reversed(alive), *(over if every and not last else over[:last])]


def _warm(one: Run | Ended) -> bool:
    """Return whether a card waits in a pool for its run: it is nobody's yet."""
    return isinstance(one, Run) and one.state == runs.WARM


def _listed(*, every: bool, last: int, as_json: bool) -> str:
    listed = chosen(every=every, last=last)
    alive = [one for one in listed if isinstance(one, Run)]
    ledgers, states = _ledgers(alive), _states(alive)
    rows = [_living(one, ledgers.get(one.run), states) for one in alive]
    rows += [row for one in listed if isinstance(one, Ended) and (row := _ended(one))]
    if as_json:
        return "".join(json.dumps(row) + "\n" for row in rows)
    return human.table([_HEAD, *map(_cells, rows)])


def _ledgers(alive: list[Run]) -> dict[str, Ledger]:
    with_table = [one for one in alive if one.state in {runs.RUNNING, runs.UNATTENDED}]
    try:
        return live.read_all(with_table)
    except Refused as error:
        output.say(f"NOTE what was denied is not known: {error.refusals[0].text}")
        return {}


def _states(alive: list[Run]) -> dict[str, str]:
    """Return podman's word for each container by id: it alone knows which are paused."""
    if not any(one.state == runs.RUNNING for one in alive):
        return {}
    from launcher import service  # 150 ms to import, which a bench without cards does not pay

    try:
        with service.connected() as podman:
            return podman.states()
    except Refused as error:
        output.say(f"NOTE podman was not asked which cards are paused: {error.refusals[0].text}")
        return {}


def _living(one: Run, ledger: Ledger | None, states: dict[str, str]) -> dict[str, Any]:
    record = one.record
    frozen = one.state == runs.RUNNING and states.get(one.container or "") == "paused"
    row: dict[str, Any] = {"run": one.run, "state": "paused" if frozen else one.state}
    if record is not None:
        known = ("card", "started", "image", "command", "net", "names", "detached")
        row |= {name: getattr(record, name) for name in known}
    return {**row, "denied": None if ledger is None else _packets(ledger.to_json()), "exit_status": None, "ended": None}


def _ended(one: Ended) -> dict[str, Any] | None:
    receipt = one.receipt()
    if receipt is None:
        return None
    row: dict[str, Any] = {
        name: receipt.get(name)
        for name in ("card", "started", "image", "command", "net", "detached", "exit_status", "oom")
    }
    names = receipt.get("names") or list(receipt.get("pins") or ())
    return {
        "run": one.run,
        "state": "ended",
        **row,
        "names": names,
        "denied": _packets(receipt["ledger"]) if receipt.get("ledger") else None,
        "ended": receipt.get("ended", one.kept),
        "how": receipt.get("how"),
    }


def _packets(ledger: dict[str, Any]) -> int:
    return sum(int(row["packets"]) for row in ledger["denied"]) + int(ledger["other"])


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["run"],
        row.get("card") or "-",
        state(row),
        human.span(time.time() - row["started"]) if row.get("started") else "-",
        row.get("image") or "-",
        "-" if row["denied"] is None else str(row["denied"]),
        " ".join(row.get("names") or ()) or "-",
    )


def state(row: dict[str, Any]) -> str:
    """Return a run's state as a person reads it: an ended one's with its status and how long ago."""
    if row["state"] != "ended":
        return str(row["state"])
    ago = f"{human.span(time.time() - row['ended'])} ago"
    if row["exit_status"] is None:
        return f"{row.get('how') or 'ended'}, {ago}"
    return f"ended {row['exit_status']}{' out of memory' if row.get('oom') else ''}, {ago}"
