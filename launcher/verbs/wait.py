"""`card wait`: until cards have ended, and with what."""

import sys
from typing import Annotated

import typer

from launcher.life import runs
from launcher.run import output
from launcher.verbs import ending, named


def wait(
    run: Annotated[list[str], typer.Argument(help="run ids", autocompletion=named.complete_any)],
) -> None:
    """Wait until the runs have ended; print each worker's status and exit with the first that is not 0.

    Example: card wait $run && echo fine
    """
    found = named.any_of(run)
    named.refuse(found, (runs.PREPARED, runs.UNATTENDED, runs.WARM))
    code = 0
    for one in found:
        end = ending.of(one)
        if end.status is None:
            output.say(f"NOTE {end.run} was {end.how}: the worker's status is not known")
        sys.stdout.write(f"{end.code}\n")
        sys.stdout.flush()
        code = code or end.code
    raise typer.Exit(code)
