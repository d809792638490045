"""The attendant: a process of the pool that makes one warm card, waits for one taker, and answers for that run.

It has imported everything that a run needs before anybody waits for it. Once taken it is what card-run is for a cold
run, but for what must end with card-run itself: card-run holds the lifeline and passes the worker's output on, and its
stderr and receipt are ours to write to. The rule: one connection in one life. Whoever comes or goes, the card that was
handed out is never handed out again, and a card that was not ends when the pool does.
"""

import _socket
import os
import select
import threading
import time
from typing import TYPE_CHECKING, Any, NoReturn

from launcher.launch import Launch
from launcher.pool import fits, wire
from launcher.pool.declared import Card, Declared
from launcher.pool.hand import Hand
from launcher.pool.slot import Slot
from launcher.pool.stale import Stale
from launcher.run import directory, events, output, perform, spawn
from launcher.run.perform import Started
from oci.refusal import Refused

if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

_NAME = b"card-warm"


def attend(pool: "_socket.socket", declared: Declared) -> NoReturn:
    """Serve one card from its making to its end, and end this process. The pool hears `ready`, or why not."""
    try:
        _settle()
        _attend(pool, declared)
    except Refused as error:
        _tell(pool, failed=wire.refusals(error))
    except Exception as error:  # noqa: BLE001 - main of this process: the pool is told, and backs off
        _tell(pool, failed=[{"reason": "attendant-bug", "text": f"{type(error).__name__}: {error}", "hint": ""}])
    finally:
        os._exit(0)


def _settle() -> None:
    """Be of no session, and hear every signal: what the pool's starter ignores says nothing of who takes the card.

    What a taker ignores it does not pass on.
    """
    os.setsid()
    for number in spawn.HEARD:
        _signal.signal(number, _signal.SIG_DFL)
    with open("/proc/self/comm", "wb") as file:
        file.write(_NAME)


def _attend(pool: "_socket.socket", declared: Declared) -> None:
    at = Hand()
    spawn.hold_signals()
    marks = declared.marks()
    card = declared.judge()
    run = directory.create(card.launch.run)
    begun: Started | None = None
    try:
        begun = perform.start(card.launch, run, card.built, card.program)
        # The plan of a card that nobody has taken: no name, and no DNS, though pasta is told where DNS would be.
        closed = card.launch.replace(dns=None)
        slot = begun.session(Slot, closed, run, card.built, started=time.monotonic())
        slot.warm(at)
        _tell(pool, ready=card.launch.run, key=card.key, marks=marks)
        taker = _await(pool, slot)
        if taker is None:
            slot.end()
        else:
            _serve(slot, begun, card, *taker)
            slot.gone()
    finally:
        perform.remove(run)
        if begun is not None:
            begun.held.let_go()
        at.end()


def _await(pool: "_socket.socket", slot: Slot) -> "tuple[bytes, list[int]] | None":
    """Wait for a taker; return its message and descriptors, or None when the pool or the card is gone first."""
    waiter = select.poll()
    for fd in (pool.fileno(), slot.client):
        waiter.register(fd, select.POLLIN)
    if any(fd == slot.client for fd, _ in waiter.poll()):
        return None
    return wire.receive(pool)


class _Taker:
    """Who took the card: its connection, and what it asked for."""

    def __init__(self, data: bytes, descriptors: list[int]) -> None:
        """Take over the connection."""
        self.connection = _socket.socket(fileno=descriptors[0])
        self.connection.setblocking(True)  # the pool, whose socket it was, waited for nobody
        self.asked = wire.load(data)
        self.receipt: int | None = None

    def accepts(self) -> bool:
        """Wait for card-run's word that it has the card, and take over what we may write to; False at its end.

        Only with that word it starts no card of its own; and what is its caller's is given to none but who answered.
        """
        got = wire.receive(self.connection)
        if got is None:
            return False
        stderr, *rest = got[1]
        os.dup2(stderr, 2)
        os.close(stderr)
        self.receipt = rest.pop(0) if self.asked["receipt"] else None
        events.adopt(rest.pop(0) if self.asked["events"] else -1)
        return True

    def tell(self, *descriptors: int, **content: Any) -> None:
        """Say something to card-run; whether it is there to hear shows elsewhere."""
        try:
            wire.send(self.connection, wire.dump(content), descriptors)
        except OSError:
            return

    def waits(self) -> bool:
        """Return whether card-run still waits for us: one that did not hear us in time starts cold."""
        waiter = select.poll()
        waiter.register(self.connection, 0)
        return not waiter.poll(0)

    def leave(self, **content: Any) -> None:
        """Say the last thing with nothing of card-run's open any more: its stderr's readers wait for its end."""
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        os.close(null)
        if events.heard():
            os.close(events.sink())
            events.adopt(-1)
        self.tell(**content)


def _serve(slot: Slot, begun: Started, card: Card, data: bytes, descriptors: list[int]) -> None:
    """Carry the taker's run through and tell it the status; a card that does not fit any more is told as `cold`."""
    try:
        taker = _Taker(data, descriptors)
        why = _take(taker, slot, card)
    except BaseException:
        slot.end()
        raise
    if why:
        taker.leave(cold=why)
        slot.end()
        return
    lifeline = begun.lifeline.hand_over()
    taker.tell(lifeline, *slot.pipes.taker, taken=True)
    for fd in (lifeline, *slot.pipes.taker):
        os.close(fd)
    if not taker.accepts():
        slot.end()
        return
    threading.Thread(target=_listen, args=(taker.connection, slot), daemon=True).start()
    try:
        status = slot.carry_through(quiet=taker.asked["quiet"], receipt=taker.receipt)
    except Stale as error:
        taker.leave(cold=str(error))
        return
    except Refused as error:
        if taker.waits():
            output.refusals(error.refusals)
        status = error.status
    taker.leave(status=status)


def _take(taker: _Taker, slot: Slot, card: Card) -> str:
    """Have the card become the taker's run; return why it cannot, or ""."""
    launch: Launch = taker.asked["launch"]
    try:
        fits.look(launch, card, policy_path=taker.asked["policy"])
        slot.take(launch, perform.record_of(launch), started=taker.asked["started"], tell=taker.tell)
    except (Stale, Refused) as error:
        return str(error)
    return ""


def _listen(connection: "_socket.socket", slot: Slot) -> None:
    """Do what card-run passes on: signals, and that all output is out. Its end counts as the latter."""
    while (got := wire.receive(connection)) is not None:
        word = wire.look(got[0])
        if word.get("signal") in spawn.FORWARDED:
            os.kill(os.getpid(), word["signal"])
        if "frozen" in word:
            slot.freeze(frozen=word["frozen"])
        if "drained" in word:
            slot.drained()
    slot.drained()


def _tell(pool: "_socket.socket", **content: Any) -> None:
    try:
        wire.send(pool, wire.dump(content))
    except OSError:
        return  # the pool is gone, and with it everybody who would care
