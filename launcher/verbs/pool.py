"""`card pool`: warm cards, made ahead of the runs that take them."""

import contextlib
import fcntl
import gc
import json
import os
import socket
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from launcher import launch
from launcher.life import exposed
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
# Nobody listens there (connect(2), unix(7)), or whoever did has ended. Anything else is a pool.
_GONE = (ConnectionRefusedError, FileNotFoundError, ConnectionResetError, BrokenPipeError)
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
    seat = _Seat()
    ours, theirs = wire.pair()
    if os.fork() == 0:
        _become(seat, theirs, context.args, size)
    seat.close()
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
    """Return what the pool answers to an order, or None when there is no pool; raises Refused when it is silent."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(seconds)
        try:
            connection.connect(place.socket())
            wire.send(connection, wire.dump({"order": order}))
            said = connection.recv(wire.MOST)
        except _GONE:
            return None
        except OSError as error:
            text = f"there is a pool, and it does not answer: {error}"
            raise Refused([Refusal("pool-silent", text, "it may be busy: try again, or end its process")]) from None
    found = wire.look(said) if said else None
    if found is not None and "cold" in found:
        raise Refused([Refusal("pool-silent", f"the pool does not answer: {found['cold']}")])
    return found


class _Seat:
    """The one place of a user's pool: its directory, locked as long as the pool lives, and its socket in there."""

    def __init__(self) -> None:
        """Take it; raises Refused when there is a pool, whether it answers or not. What a dead one left is cleared."""
        self._held = _lock(place.folder())
        self._made: os.stat_result | None = None
        try:
            self.listener = self._listen()
        except BaseException:
            self.leave()
            raise

    def _listen(self) -> socket.socket:
        exposed.refuse(place.folder(), "pool-exposed", "the pool's socket")
        if _listens(place.socket()):
            raise _exists()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(place.socket())
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(place.socket())
        self._made = os.lstat(place.socket())
        listener.listen(_BACKLOG)
        return listener

    def close(self) -> None:
        """Let another process have it that was forked meanwhile: the lock is held as long as one of both has it."""
        self.listener.close()
        os.close(self._held)

    def leave(self) -> None:
        """Take away what is ours, and let go. Harmless when said twice."""
        if self._held < 0:
            return
        with contextlib.suppress(OSError):
            if self._made and os.path.samestat(self._made, os.lstat(place.socket())):
                os.unlink(place.socket())
        with contextlib.suppress(OSError):  # somebody else's socket is in it
            os.rmdir(place.folder())
        os.close(self._held)
        self._held = -1


def _listens(path: str) -> bool:
    """Return whether somebody listens on a socket, however busy."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
        other.setblocking(False)
        try:
            other.connect(path)
        except BlockingIOError:
            return True  # its queue is full (unix(7))
        except _GONE:
            return False
    return True


def _lock(folder: str) -> int:
    """Return the pool's directory, made if need be and locked; raises Refused when another holds it."""
    while True:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever had it may have removed it.
            if os.path.samestat(os.fstat(held), os.lstat(folder)):
                return held
        except BlockingIOError:
            os.close(held)
            raise _exists() from None
        except FileNotFoundError:
            pass
        os.close(held)


def _exists() -> Refused:
    return Refused([Refusal("pool-exists", "there is a pool already", "card pool stop")])


def _become(seat: _Seat, starter: "_socket.socket", words: list[str], size: int) -> NoReturn:
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
        pool = Pool(Declared(words), size, seat.listener)
        wire.send(starter, wire.dump({"refusals": []}))
        starter.close()
        _leave()
        pool.serve()
        seat.leave()  # before the stopping is told: another pool can be started then
        pool.farewell()
    except Refused as error:
        wire.send(starter, wire.dump({"refusals": wire.refusals(error)}))
    finally:
        seat.leave()
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
