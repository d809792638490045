"""`card pool`: warm cards, made ahead of the runs that take them."""

import contextlib
import gc
import json
import os
import socket
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from launcher import launch
from launcher.pool import place, seat, wire
from launcher.pool.seat import GONE, Seat
from launcher.run import output
from launcher.verbs import takes
from oci.refusal import Refusal, Refused

app = typer.Typer(help="Warm cards: started ahead, taken by card-run.", no_args_is_help=True)
if TYPE_CHECKING:
    import _socket
_STOP_SECONDS = 60
_START_SECONDS = 150
_MOST = 64
_STEP = 0.02
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]


@app.command(**takes.A_CARD)
def start(
    context: typer.Context,
    *,
    size: Annotated[int, typer.Option("--size", help="how many cards to keep ready", min=1, max=_MOST)] = 1,
) -> None:
    """Keep warm cards of what card-run's own options declare; return when they are ready.

    Example: card pool start --size 2 --write ~/work
    """
    refusals = launch.rootless()
    if refusals:
        raise Refused(refusals)
    taken = Seat()
    ours, theirs = wire.pair()
    if os.fork() == 0:
        _become(taken, theirs, context.args, size)
    taken.close()
    theirs.close()
    _hear(ours)
    status = _until_ready(size)
    if status["refusals"]:
        ask("stop", seconds=_STOP_SECONDS)
        raise wire.refused(status["refusals"])
    sys.stdout.write(f"{len(status['ready'])} ready\n")


@app.command()
def status(*, as_json: AsJson = False) -> None:
    """Say how the pool is. Exits 1 when there is none.

    Example: card pool status --json
    """
    found = ask("status")
    if found is None:
        sys.stderr.write("no pool\n")
        raise typer.Exit(1)
    if as_json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
        return
    rows = [("ready", f"{len(found['ready'])} of {found['size']}"), ("starting", found["starting"])]
    rows += [("given", found["given"]), ("image", found["image"]), ("pid", found["pid"])]
    sys.stdout.writelines(f"{name:9} {value}\n" for name, value in rows)
    if found["trouble"]:
        sys.stdout.write(f"trouble   {found['trouble']}\n")
    if found["refusals"]:
        sys.stdout.write(f"failing   {found['failures']} times, next try in {found['retry_seconds']:g} s\n")
        for one in wire.refused(found["refusals"]).refusals:
            output.say(f"NOTE no card can be made: reason={one.reason} {one.text}")


@app.command()
def stop() -> None:
    """End the pool and every card that nobody took. Cards that run are their card-run's. Exits 1 when there is none.

    What a pool left that was killed is taken away.

    Example: card pool stop
    """
    if ask("stop", seconds=_STOP_SECONDS) is None:
        seat.clear()
        sys.stderr.write("no pool\n")
        raise typer.Exit(1)


def ask(order: str, *, seconds: float = 5) -> dict[str, Any] | None:
    """Return what the pool answers to an order, or None when there is no pool; raises Refused when it is silent."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(seconds)
        try:
            connection.connect(place.socket())
            wire.send(connection, wire.dump({"order": order}))
            said = connection.recv(wire.MOST)
        except GONE:
            return None
        except OSError as error:
            text = f"there is a pool, and it does not answer: {error}"
            raise Refused([Refusal("pool-silent", text, "it may be busy: try again, or end its process")]) from None
    found = wire.look(said) if said else None
    if found is not None and "cold" in found:
        raise Refused([Refusal("pool-silent", f"the pool does not answer: {found['cold']}")])
    return found


def _become(taken: Seat, starter: "_socket.socket", words: list[str], size: int) -> NoReturn:
    """Be the pool, of no session and no terminal, until it is stopped. The starter hears why it cannot be.

    It stays in the starter's directory, which a card file may be named from.
    """
    try:
        os.setsid()
        # With all that attendants use, which are forked from here.
        from launcher import pins
        from launcher.egress import resolver
        from launcher.pool.daemon import Pool
        from launcher.pool.declared import Declared

        del pins, resolver
        pool = Pool(Declared(words), size, taken.listener)
        wire.send(starter, wire.dump({"refusals": []}))
        starter.close()
        _leave()
        pool.serve()
        taken.leave()  # before the stopping is told: another pool can be started then
        pool.farewell()
    except Refused as error:
        wire.send(starter, wire.dump({"refusals": wire.refusals(error)}))
    finally:
        taken.leave()
        os._exit(0)


def _leave() -> None:
    """Let go of the starter's streams, and keep what is loaded now shared with every attendant."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    os.close(null)
    gc.freeze()


def _hear(pool: "_socket.socket") -> None:
    """Wait until the pool listens; raises Refused with its reasons why it does not."""
    got = wire.receive(pool)
    if got is None:
        raise Refused([Refusal("pool-failed", "the pool ended before it listened")])
    told = wire.look(got[0])["refusals"]
    if told:
        raise wire.refused(told)


def _until_ready(size: int) -> dict[str, Any]:
    """Return the pool's status once all its cards are ready, or the first could not be made."""
    deadline = time.monotonic() + _START_SECONDS
    found: dict[str, Any] | None = {}
    while found is not None and time.monotonic() < deadline:
        with contextlib.suppress(Refused):  # busy
            found = ask("status")
            if found and (len(found["ready"]) == size or found["refusals"]):
                return found
        time.sleep(_STEP)
    raise Refused([Refusal("pool-late", "the pool did not become ready", "card pool status")])
