"""The pool: a process that keeps a number of warm cards of one declared card, and hands each to one run.

One thread, one loop. Each card is an attendant, forked from here with everything imported; the pool decides which
connection gets which, and forgets a card the moment it is given away. The rules: a card is given only to a run of the
same user whose key is the same to the letter, on a bench that is still as it was; a connection that is not served is
told why, at once; whatever is not right ends the cards, never bends them.
"""

import _socket
import os
import select
import socket
import sys
import time
from typing import Any

from launcher.pool import attendant, declared, key, peers, wire
from launcher.pool.declared import Declared
from oci.refusal import Refused

STARTING, READY = "starting", "ready"
_AT_ONCE = 2  # cards being started side by side
# After a card was taken: its run is not to share the machine with the start of the next one.
_BREATH_SECONDS = 0.25
_MOST_SECONDS = 60.0
_HEAR_SECONDS = 1.0
_JUDGE_SECONDS = 1.0
_LAST_FD = (1 << 31) - 1


def _unexpected(error: Exception) -> dict[str, str]:
    return {"reason": "pool-failed", "text": f"{type(error).__name__}: {error}", "hint": ""}


class _Card:
    """An attendant as the pool sees it."""

    __slots__ = ("key", "marks", "pid", "run", "socket", "state")

    def __init__(self, pid: int, end: "_socket.socket") -> None:
        self.pid = pid
        self.socket = end
        self.state = STARTING
        self.run = ""
        self.key: dict[str, list[str]] = {}
        self.marks: dict[str, str] = {}


class Pool:
    """The pool's state: its cards, and when it may start another."""

    def __init__(self, card: Declared, size: int, listener: socket.socket) -> None:
        self._declared = card
        self._size = size
        self._listener = listener
        self._cards: list[_Card] = []
        self._ending: set[int] = set()
        self._taken: set[int] = set()
        self._code = declared.code_marks()
        self._next = 0.0
        self._failures = 0
        self._judged = 0.0
        self._said: list[dict[str, str]] = []
        self._trouble = ""
        self._doubted: list[_Card] = []
        self._given = 0
        self._stopping: socket.socket | None = None

    def serve(self) -> None:
        """Keep the pool until it is told to stop, and everything it made is gone."""
        while self._stopping is None:
            self._fill()
            self._turn(self._listener)
        self._drop(self._cards)
        self._await_end()

    def farewell(self) -> None:
        """Tell whoever stopped the pool that it is gone."""
        if self._stopping is not None:
            self._answer(self._stopping, stopped=True)

    def _turn(self, listener: socket.socket) -> None:
        waiter = select.poll()
        sockets = {listener.fileno(): None, **{card.socket.fileno(): card for card in self._cards}}
        for fd in sockets:
            waiter.register(fd, select.POLLIN)
        for fd, _ in waiter.poll(self._patience()):
            card = sockets[fd]
            if card is None:
                self._meet()
            elif card in self._cards:
                self._hear(card)
        self._reap(os.WNOHANG)

    def _patience(self) -> int:
        """Return how many milliseconds to wait for somebody: until a card may be started, or an ended one is gone."""
        if self._ending or self._taken:
            return 100
        missing = len(self._cards) < self._size and self._starting() < _AT_ONCE
        return max(0, int((self._next - time.monotonic()) * 1000) + 1) if missing else 60_000

    # Cards.

    def _fill(self) -> None:
        if len(self._cards) >= self._size or self._starting() >= _AT_ONCE or time.monotonic() < self._next:
            return
        if declared.changed(self._code):
            self._renew()
        try:
            self._start()
        except OSError as error:
            self._failed([_unexpected(error)])

    def _starting(self) -> int:
        return sum(card.state == STARTING for card in self._cards)

    def _start(self) -> None:
        """Fork an attendant; raises OSError when there can be none now."""
        ours, theirs = wire.pair()
        pid = os.fork()
        if pid == 0:
            fd = os.dup2(theirs.fileno(), 3)
            os.closerange(4, _LAST_FD)
            attendant.attend(_socket.socket(fileno=fd), self._declared)
        theirs.close()
        self._cards.append(_Card(pid, ours))

    def _hear(self, card: _Card) -> None:
        """Hear an attendant: its card is ready, or could not be made, or is gone."""
        got = wire.receive(card.socket)
        said = wire.look(got[0]) if got is not None else {}
        if "ready" in said:
            card.state, card.run, card.key, card.marks = READY, said["ready"], said["key"], said["marks"]
            self._failures = 0
            self._said = []
            return
        if card.state == STARTING:
            self._failed(said.get("failed", self._said))
        self._forget(card)

    def _failed(self, refusals: list[dict[str, str]]) -> None:
        """Note that a card could not be made, and wait longer each time."""
        self._said = refusals
        self._failures += 1
        self._next = time.monotonic() + min(_MOST_SECONDS, 2.0**self._failures)

    def _forget(self, card: _Card) -> None:
        """Let go of a card: nobody took it, so it ends."""
        self._cards.remove(card)
        card.socket.close()
        self._ending.add(card.pid)

    def _drop(self, cards: list[_Card]) -> None:
        for card in list(cards):
            self._forget(card)

    def _await_end(self) -> None:
        """Wait until every card is gone that nobody took; those that were taken are their takers'."""
        while self._ending:
            self._reap(0)

    def _reap(self, options: int) -> None:
        while self._ending or self._taken:
            pid, _ = os.waitpid(-1, options)
            self._ending.discard(pid)
            self._taken.discard(pid)
            if not pid or not (options or self._ending):
                return

    # Those who come.

    def _meet(self) -> None:
        """Serve one connection: it says one thing, and at once. What is wrong with one is no other's matter."""
        try:
            connection = self._listener.accept()[0]
        except OSError as error:
            self._trouble = f"nobody can connect: {error}"
            time.sleep(_BREATH_SECONDS)  # no descriptor is free: it would be asked again at once
            return
        try:
            self._serve(connection)
        except Exception as error:  # noqa: BLE001 - one odd message does not end a pool; the status tells of it
            self._trouble = f"a message was not understood: {type(error).__name__}: {error}"
            self._answer(connection, cold=self._trouble)

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(_HEAR_SECONDS)
        why = peers.foreign(connection)
        data, descriptors = wire.receive(connection) or (b"{}", [])
        for fd in descriptors:
            os.close(fd)
        if why:
            self._trouble = f"somebody was not heard: {why}"
            self._answer(connection, cold=why)
            return
        order = wire.look(data)
        if order.get("order") == "take":
            why = self._take(connection, order["key"], data)
            if why:
                self._answer(connection, cold=why)
            connection.close()  # whoever was not served starts cold now, whatever there is to think about
            self._doubt()
        elif order.get("order") == "status":
            self._answer(connection, **self.status())
        elif order.get("order") == "stop":
            self._stopping = connection

    def _answer(self, connection: socket.socket, **content: Any) -> None:
        try:
            wire.send(connection, wire.dump(content))
        except OSError:
            return

    def _take(self, connection: socket.socket, wanted: Any, data: bytes) -> str:
        """Give a card to the connection; return why it gets none, or "" when it has one."""
        path = declared.changed(self._code)
        if path:
            self._next = 0.0
            self._drop(self._cards)
            return f"the pool's own code changed: {path}"
        ready = [card for card in self._cards if card.state == READY]
        stale = {card: declared.changed(card.marks) for card in ready}
        self._drop([card for card in ready if stale[card]])
        fresh = [card for card in ready if not stale[card]]
        for card in fresh:
            if card.key == wanted and self._give(card, connection, data):
                return ""
        if not ready:
            return "no warm card is ready"
        if not fresh:
            return f"the bench changed: {next(iter(stale.values()))}"
        why = f"the pool's card differs: {key.differs(fresh[0].key, wanted)}"
        self._doubted = fresh
        return why

    def _give(self, card: _Card, connection: socket.socket, data: bytes) -> bool:
        """Hand connection and message to the attendant; whether it took them or not, the card is the pool's no more."""
        try:
            wire.send(card.socket, data, (connection.fileno(),))
        except OSError:
            return False
        finally:
            self._forget(card)
            self._next = max(self._next, time.monotonic() + _BREATH_SECONDS)
        self._ending.discard(card.pid)
        self._taken.add(card.pid)
        self._given += 1
        return True

    def _doubt(self) -> None:
        """End the cards that would not be made as they are any more: the declaration means another card by now."""
        doubted, self._doubted = self._doubted, []
        if not doubted or time.monotonic() < self._judged + _JUDGE_SECONDS:
            return
        now: dict[str, list[str]] = {}
        try:
            now = self._declared.judge().key
        except Refused as error:
            self._said = wire.refusals(error)
        except Exception as error:  # noqa: BLE001 - a podman that hangs, say: the next card is judged anew
            self._said = [_unexpected(error)]
        self._judged = time.monotonic()
        self._drop([card for card in doubted if card.key != now])

    def status(self) -> dict[str, Any]:
        """Return how the pool is, for people and programs."""
        return {
            "pid": os.getpid(),
            "size": self._size,
            "ready": [card.run for card in self._cards if card.state == READY],
            "starting": self._starting(),
            "given": self._given,
            "failures": self._failures,
            "retry_seconds": max(0.0, round(self._next - time.monotonic(), 1)) if self._failures else 0.0,
            "refusals": self._said,
            "trouble": self._trouble,
            "image": self._declared.image,
        }

    def _renew(self) -> None:
        """Start the pool anew, as it was started, from the code that is there now."""
        self._drop(self._cards)
        self._await_end()
        self._listener.close()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - never a shell
