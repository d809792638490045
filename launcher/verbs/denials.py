"""`card denials`: what a running card was denied so far, from the kernel's own record."""

import json
import sys
import time
from typing import Annotated

import typer

from hooks.ledger import Denied
from launcher import live
from launcher.life import runs
from launcher.verbs import named
from oci.refusal import Refused

_EVERY_SECONDS = 0.5


def denials(
    run: Annotated[str, typer.Argument(help="the run's id", autocompletion=named.complete_living)],
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on until the run ends")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object per line")] = False,
) -> None:
    """Print what a running card was denied: destination, protocol, port, packets, and the name if its plan knows it.

    Example: card denials c2b5b8c82de --follow
    """
    named.refuse(named.living([run]), (runs.PREPARED,))
    egress = live.plan_of(run)
    told: dict[tuple[str, str, int], int] = {}
    while True:
        try:
            rows = live.read(egress).denied
        except Refused:
            # The run may end between two looks: what is gone with its directory is no failure.
            if told or not live.alive(run):
                return
            raise
        for row in rows:
            _tell(row, told, as_json=as_json, name=egress.names_of(row.address))
        if not follow or not live.alive(run):
            return
        time.sleep(_EVERY_SECONDS)


def _tell(row: Denied, told: dict[tuple[str, str, int], int], *, as_json: bool, name: str) -> None:
    """Print a row that is new, or whose count has grown."""
    key = (row.address, row.protocol, row.port)
    if told.get(key) == row.packets:
        return
    told[key] = row.packets
    if as_json:
        line = json.dumps({**row.to_json(), "name": name})
    else:
        line = f"{row.address:39}  {row.protocol:5}  {row.port:<5}  {row.packets:<7}  {name}".rstrip()
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
