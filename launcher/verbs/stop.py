"""`card stop`: end cards, the worker asked first."""

import sys
import time
from typing import Annotated

import typer

from launcher.life import identity, runs
from launcher.life.runs import Ended, Run
from launcher.run import output
from launcher.verbs import ending, named

_SIGTERM = 15
# From the container's end until its launcher has accounted for the run and let go of everything.
_ACCOUNT_SECONDS = 15


def stop(
    run: Annotated[
        list[str] | None, typer.Argument(help="run ids", autocompletion=named.complete_living, show_default=False)
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", "-a", help="every card that runs")] = False,
    seconds: Annotated[
        float | None, typer.Option("--time", "-t", help="kill after so many (default: --stop-timeout's)", min=0)
    ] = None,
) -> None:
    """Send the workers SIGTERM, kill the cards that have not ended in time, and wait until nothing of them is left.

    Example: card stop --all --time 2
    """
    if not run and not every:
        raise typer.BadParameter("name a run, or --all")
    found = [*named.any_of(run or []), *(runs.living() if every else ())]
    found = [one for one in found if not (isinstance(one, Run) and one.state == runs.WARM)]  # the pool's own
    chosen = [one for one in found if isinstance(one, Run)]
    for one in found:
        if isinstance(one, Ended):
            sys.stdout.write(f"{one.run}\n")  # what was asked for is so
    chosen, podmans = _answered_for(chosen)
    asked = time.monotonic()
    for one in chosen:
        if one.record is not None and one.record.launcher is not None:
            identity.send(one.record.launcher, _SIGTERM)
    for name in podmans:
        output.say(f"NOTE {name} was started by podman, which ends it: podman stop card-{name}")
    left = [one.run for one in chosen if not _ended(one, asked, seconds)]
    for name in left:
        output.say(f"NOTE {name} could not be ended: card gc")
    raise typer.Exit(1 if left or podmans else 0)


def _answered_for(chosen: list[Run]) -> tuple[list[Run], list[str]]:
    """Return the runs without those that were prepared, and the ids of the prepared ones that run."""
    prepared = [one for one in chosen if one.record is not None and one.record.launcher is None]
    return [one for one in chosen if one not in prepared], [one.run for one in prepared if one.state == runs.UNATTENDED]


def _ended(one: Run, asked: float, seconds: float | None) -> bool:
    """Wait for a card's end, kill it when its time is over, and print its id once it is gone."""
    patience = seconds if seconds is not None else one.record.stop_timeout if one.record else 0
    over = ending.gone(one, seconds=asked + patience - time.monotonic())
    if not over and seconds is not None:
        _kill(one)
    over = over or ending.gone(one, seconds=_ACCOUNT_SECONDS)
    if not over and seconds is None:
        _kill(one)  # its launcher should have, and cannot
        over = ending.gone(one, seconds=_ACCOUNT_SECONDS)
    if over:
        sys.stdout.write(f"{one.run}\n")
        sys.stdout.flush()
    return over


def _kill(one: Run) -> None:
    container = one.container  # read anew each time: the directory may go while we look
    if container is None:
        return
    from launcher import service  # 150 ms to import, which a card that ends when asked does not pay

    with service.connected() as podman:
        podman.kill(container)
