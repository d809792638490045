"""One running card, in steps: until the worker starts, its streams, its end, and ending it. Shared by both callers.

Whoever stops waiting for it in the middle (an exception, a cancelled task) has ended the card by the time that is
known. A card that is ended is asked first (SIGTERM, then card-run's own KILL after `stop_seconds`); only a card-run
that does not answer is cut off by its lifeline.
"""

import json
import os
import signal
import threading
import time
from typing import Any

from launcher.executor.child import Child
from launcher.executor.result import CardLostError, Result, how
from launcher.executor.steps import Steps, T, Wait
from launcher.executor.streams import end_of_input
from launcher.executor.told import Told
from launcher.run import directory
from oci.refusal import Refused

_CHUNK = 65536
_SPARE_SECONDS = 15.0  # beyond stop_seconds, for podman to take the container down on a busy bench
_GONE_SECONDS = 10.0
_POLL_SECONDS = 0.02
_SAID = 2000


class Running:
    """A started card-run and what is known of it."""

    def __init__(self, child: Child, *, command: tuple[str, ...], stop_seconds: float, output_limit: int) -> None:
        self.child = child
        self.output_limit = output_limit
        self.told = Told(child.events)
        self.outcome: Result | Exception | None = None
        self._turn = threading.Lock()
        self._ending = False
        self._forsaken = False
        self._command = command
        self._stop_seconds = stop_seconds
        self._kept: dict[int, bytearray] = {fd: bytearray() for fd in child.streams[1:]}
        self._out, self._err = child.streams[1:]
        self._truncated = False

    @property
    def run(self) -> str:
        """Return the run id, "" before the worker has started."""
        return str(self.told.started["run"]) if self.told.started else ""

    @property
    def at_terminal(self) -> bool:
        """Return whether the command has a terminal."""
        return self._out == self._err

    def until_started(self) -> Steps[None]:
        """Wait until the worker starts; raises Refused with every refusal, CardLostError."""
        yield from self._or_end(self._start())

    def _start(self) -> Steps[None]:
        while self.told.started is None and not self.told.over:
            yield Wait(reads=(self.told.fd,))
            self.told.read()
        if self.told.started is None:
            yield from self._ended()

    def wait(self) -> Steps[Result]:
        """Wait for the end and return how it was; may be asked again. The caller reads the streams meanwhile."""
        return (yield from self._or_end(self._ended()))

    def communicate(self, data: bytes = b"") -> Steps[Result]:
        """Write `data` to the command, then its end of input; keep what it writes up to the limit; wait for its end."""
        data += end_of_input(data or self.child.last) if self.at_terminal else b""
        return (yield from self._or_end(self._exchange(memoryview(data))))

    def _or_end(self, steps: Steps[T]) -> Steps[T]:
        """Carry steps through, alone, and after whoever is ending it; what keeps them from their end ends the card."""
        self.child.check()
        while not self._turn.acquire(blocking=False):
            if not self._ending:
                raise RuntimeError("somebody waits for this command already")
            yield Wait(until=time.monotonic() + _POLL_SECONDS)
        try:
            return (yield from steps)
        except GeneratorExit:  # nobody will go on with these: there is no waiting any more
            self.child.let_go()
            raise
        except BaseException:
            yield from self._end()
            raise
        finally:
            self._turn.release()

    def _exchange(self, data: memoryview) -> Steps[Result]:
        """Move bytes both ways until every stream has ended, then wait for the end."""
        yield from self._streams(data)
        return (yield from self._ended())

    def _streams(self, data: memoryview) -> Steps[None]:
        child = self.child
        while any(fd >= 0 for fd in child.streams[1:]):
            writes = (child.streams.stdin,) if data and child.streams.stdin >= 0 else ()
            if not data and child.streams.stdin not in {-1, child.streams.stdout}:
                child.close_stream(child.streams.stdin)
            events = () if self.told.over else (self.told.fd,)
            yield Wait(reads=tuple({fd for fd in child.streams[1:] if fd >= 0}) + events, writes=writes)
            self.told.read()
            data = self._write(data) if writes else data
            for fd in {fd for fd in child.streams[1:] if fd >= 0}:
                self._take(fd)

    def _write(self, data: memoryview) -> memoryview:
        fd = self.child.streams.stdin
        try:
            return data[os.write(fd, data[:_CHUNK]) :]
        except BlockingIOError:
            return data
        except OSError:  # the command reads no more
            if fd != self.child.streams.stdout:
                self.child.close_stream(fd)
            return data[:0]

    def _take(self, fd: int) -> None:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return
        except OSError:  # EIO: a terminal that nobody has open any more
            data = b""
        if not data:
            self.child.close_stream(fd)
            return
        kept = self._kept[fd]
        room = self.output_limit - len(kept)
        kept += data[:room]
        self._truncated = self._truncated or len(data) > room

    def _ended(self) -> Steps[Result]:
        """Wait for card-run's end, and return the result; raises Refused, CardLostError."""
        while self.outcome is None:
            ended = self.child.ended()
            if not ended:
                events = () if self.told.over else (self.told.fd,)
                yield Wait(reads=(self.child.exit, *events))
            self.told.read()
            if ended:
                self._settle()
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def _settle(self) -> None:
        """Take in what card-run said to its end, and let go of all that there was of it."""
        self.told.read()
        self.outcome = self._judged()
        self.told.close()
        self.child.close()

    def forsake(self) -> None:
        """Know that nobody has it in hand any more; a command that runs goes on."""
        self._forsaken = True

    def over(self) -> bool:
        """Return whether it has ended and that was taken in: here, where there is nobody else to ask."""
        if self._forsaken and self.outcome is None and self.child.ended():
            self._settle()
        return self.outcome is not None

    def drop(self) -> None:
        """Let go of what a process that was forked from its own has of it."""
        self.told.close()
        self.child.close()

    def _judged(self) -> Result | Exception:
        """Return what card-run's end means."""
        told = self.told
        if told.refusals:
            return Refused(told.refusals)
        if told.started is None or (told.receipt is None and self.child.tied):
            return self._lost()
        out, err = (bytes(self._kept[fd]) for fd in (self._out, self._err))
        return Result(
            run_id=self.run,
            command=self._command,
            status=self._status(),
            stdout=out,
            stderr=b"" if self.at_terminal else err,
            truncated=self._truncated,
            how=how(told.receipt),
            notes=tuple(told.notes),
            lifetime_containment=bool(told.started["lifeline"]),
            receipt=told.receipt,
        )

    def _status(self) -> int:
        """Return the command's status: the receipt's, else what is left of a card-run that was cut off.

        By its lifeline, which is KILL, unless its own status is known.
        """
        if self.told.receipt is not None:
            return int(self.told.receipt["exit_status"])
        status = -signal.SIGKILL if self.child.status is None else self.child.status
        return status if status >= 0 else 128 - status

    def _lost(self) -> CardLostError:
        said = bytes(self._kept[self._err][-_SAID:]).decode(errors="replace")
        return CardLostError(self.run, self.child.status, said)

    def planned(self) -> Steps[dict[str, Any]]:
        """Wait for a card-run that only plans, and return what it printed; raises Refused, CardLostError."""
        return (yield from self._or_end(self._plan()))

    def _plan(self) -> Steps[dict[str, Any]]:
        yield from self._streams(memoryview(b""))
        while not self.child.ended():
            yield Wait(reads=(self.child.exit,))
        self._settle()
        if isinstance(self.outcome, Refused) or self.child.status:
            raise self.outcome if isinstance(self.outcome, Exception) else self._lost()
        try:
            return dict(json.loads(self._kept[self._out]))
        except ValueError:  # it was cut short, and nobody knows its status
            raise self._lost() from None

    def end(self) -> Steps[None]:
        """End the card if it still runs, whoever waits for it; nothing of it is left then.

        In a process that was forked from its own, let go of it and no more.
        """
        if not self.child.ours:
            self.drop()
            return
        self._ending = True
        if self._turn.acquire(blocking=False):
            try:
                yield from self._end()
            finally:
                self._turn.release()
            return
        self.child.send_signal(signal.SIGTERM)
        until = self._patience()
        while not self.child.ended() and time.monotonic() < until:
            yield Wait(until=time.monotonic() + _POLL_SECONDS)
        yield from self.kill()

    def _patience(self) -> float:
        return time.monotonic() + self._stop_seconds + _SPARE_SECONDS

    def _end(self) -> Steps[None]:
        """Ask it to end, and cut it off when it does not answer, or when we are not to wait."""
        if self.outcome is not None:
            return
        for fd in self.child.streams:  # podman must not wait for us to read
            self.child.close_stream(fd)
        self.child.send_signal(signal.SIGTERM)
        until = self._patience()
        try:
            while not self.child.ended() and time.monotonic() < until:
                events = () if self.told.over else (self.told.fd,)
                yield Wait(reads=(self.child.exit, *events), until=until)
                self.told.read()
        except BaseException:
            self.child.let_go()
            raise
        yield from self.kill()
        yield from _quietly(self._ended())

    def kill(self) -> Steps[None]:
        """End card-run at once if it still runs, and wait until what cleans up after a killed one is done."""
        if self.child.ended() and self.child.tied:
            return
        self.child.let_go()
        while not self.child.ended():
            # Not by its descriptor: whoever waits for it in another thread closes that.
            yield Wait(until=time.monotonic() + _POLL_SECONDS)
        place, until = f"{directory.parent()}/{self.run}", time.monotonic() + _GONE_SECONDS
        while self.run and os.path.exists(place) and time.monotonic() < until:
            yield Wait(until=time.monotonic() + _POLL_SECONDS)


def _quietly(steps: Steps[Result]) -> Steps[None]:
    """Carry steps through whose outcome nobody asked for; it is kept for who does."""
    try:
        yield from steps
    except (Refused, CardLostError):
        return
