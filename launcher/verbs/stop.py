"""`card stop`: end cards, the worker asked first; discard those that are prepared and were not started."""

import sys
import time
from typing import Annotated

import typer

from launcher.life import runs
from launcher.life.runs import Ended, Run
from launcher.run import output
from launcher.verbs import ending, named
from oci.refusal import Refusal, Refused

# What does not run: nobody has started it, or it is the pool's own.
_IDLE = (runs.PREPARED, runs.WARM)
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

    A card that is prepared and was not started is discarded where it is named.

    Example: card stop --all --time 2
    """
    if not run and not every:
        raise typer.BadParameter("name a run, or --all")
    asked_for = named.any_of(run or [])
    named.refuse(asked_for, (runs.WARM,))
    found = {one.run: one for one in (*asked_for, *(runs.living() if every else ()))}.values()
    for one in found:
        if isinstance(one, Ended):
            sys.stdout.write(f"{one.run}\n")  # what was asked for is so
    living = [ending.recorded(one) for one in found if isinstance(one, Run) and one.state not in _IDLE]
    podmans = [one.run for one in living if one.state == runs.UNATTENDED]
    for name in podmans:
        output.say(f"NOTE {name} was started by podman, which ends it: podman stop card-{name}")
    over = _discarded([one for one in asked_for if isinstance(one, Run) and one.state == runs.PREPARED])
    ended, refusals = _ended([one for one in living if one.run not in podmans], seconds)
    over = over and ended
    if refusals:
        raise Refused(refusals)
    raise typer.Exit(0 if over and not podmans else 1)


def _discarded(chosen: list[Run]) -> bool:
    """Discard prepared cards, and return whether nothing is left of them."""
    over = True
    for one in chosen:
        left = ending.discarded(one)
        if left == []:
            sys.stdout.write(f"{one.run}\n")
            continue
        over = False
        why = "it was started just now" if left is None else "; ".join(left)
        output.say(f"NOTE {one.run} could not be discarded ({why})")
    return over


def _ended(chosen: list[Run], seconds: float | None) -> tuple[bool, list[Refusal]]:
    """Ask all to end, then see to it one by one; return whether all have, and what was refused for some of them."""
    refusals: list[Refusal] = []
    over = True
    asked = time.monotonic()
    for one in chosen:
        ending.ask(one)
    for one in chosen:
        try:
            left = _left(one, asked, seconds)
        except Refused as error:
            refusals += [Refusal(no.reason, f"{one.run}: {no.text}", no.hint) for no in error.refusals]
            continue
        if left:
            over = False
            output.say(f"NOTE {one.run} could not be ended ({'; '.join(left)}): card gc")
        else:
            sys.stdout.write(f"{one.run}\n")
            sys.stdout.flush()
    return over, refusals


def _left(one: Run, asked: float, seconds: float | None) -> list[str]:
    """Wait for a card's end, kill it when its time is over, and return what is left of it in words: empty when gone.

    Raises Refused when podman is needed for that and cannot be asked.
    """
    patience = seconds if seconds is not None else one.record.stop_timeout if one.record else 0
    over = ending.gone(one, seconds=asked + patience - time.monotonic())
    if not over and seconds is None:
        over = ending.gone(one, seconds=_ACCOUNT_SECONDS)  # its launcher kills it now
    if not over:
        refused = _kill(one)
        if not ending.gone(one, seconds=_ACCOUNT_SECONDS):
            if refused is not None:
                raise refused
            return ["its card-run does not end"]
    left = ending.cleared(one, seconds=_ACCOUNT_SECONDS)
    return ["it is being cleaned up still"] if left is None else left


def _kill(one: Run) -> Refused | None:
    """Kill a card; return why podman did not, which may not matter: the card may have ended by itself meanwhile."""
    container = one.container  # read anew each time: the directory may go while we look
    if container is None:
        return None
    from launcher import service  # 150 ms to import, which a card that ends when asked does not pay

    try:
        with service.connected() as podman:
            podman.kill(container)
    except Refused as error:
        return error
    return None
