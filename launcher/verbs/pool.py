"""`card pool`: warm cards, made ahead of the runs that take them."""

import fcntl
import gc
import json
import os
import socket
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from launcher.pool import place, wire
from launcher.run import output
from launcher.verbs import takes
from oci.refusal import Refusal, Refused

app = typer.Typer(help="Warm cards: started ahead, taken by card-run.", no_args_is_help=True)
if TYPE_CHECKING:
    import _socket
_BACKLOG = 64
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
    listener = _listen()
    ours, theirs = wire.pair()
    if os.fork() == 0:
        _become(listener, theirs, context.args, size)
    listener.close()
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
    if found["refusals"]:
        sys.stdout.write(f"failing   {found['failures']} times, next try in {found['retry_seconds']:g} s\n")
        output.refusals(wire.refused(found["refusals"]).refusals)


@app.command()
def stop() -> None:
    """End the pool and every card that nobody took. Cards that run are their card-run's. Exits 1 when there is none.

    Example: card pool stop
    """
    if ask("stop", seconds=_STOP_SECONDS) is None:
        sys.stderr.write("no pool\n")
        raise typer.Exit(1)


def ask(order: str, *, seconds: float = 5) -> dict[str, Any] | None:
    """Return what the pool answers to an order, or None when there is no pool."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(seconds)
        try:
            connection.connect(place.socket())
            wire.send(connection, wire.dump({"order": order}))
        except OSError:
            return None
        got = wire.receive(connection)
    return None if got is None else wire.look(got[0])


def _listen() -> socket.socket:
    """Return the pool's socket; raises Refused when there is a pool. One that is dead is cleared away."""
    folder = place.folder()
    os.makedirs(folder, mode=0o700, exist_ok=True)
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        if ask("status") is not None:
            raise Refused([Refusal("pool-exists", "there is a pool already", "card pool stop")])
        if os.path.lexists(place.socket()):
            os.unlink(place.socket())
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(place.socket())
        listener.listen(_BACKLOG)
        return listener
    finally:
        os.close(held)


def _become(listener: socket.socket, starter: "_socket.socket", words: list[str], size: int) -> NoReturn:
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
        pool = Pool(Declared(words), size, listener)
        wire.send(starter, wire.dump({"refusals": []}))
        starter.close()
        _leave()
        pool.serve()
    except Refused as error:
        wire.send(starter, wire.dump({"refusals": wire.refusals(error)}))
    finally:
        os.unlink(place.socket())
        os.rmdir(place.folder())
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
    while time.monotonic() < deadline:
        found = ask("status")
        if found is None:
            break
        if len(found["ready"]) == size or found["refusals"]:
            return found
        time.sleep(_STEP)
    raise Refused([Refusal("pool-late", "the pool did not become ready", "card pool status")])
