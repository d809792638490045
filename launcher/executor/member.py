"""What an executor owns, and a set: cards, grants, directories; and in what order that ends. Shared by both callers.

Several threads may use both. The rules: nothing is started or granted once closing has begun, so that nothing comes to
be that closing does not see; and what cannot be closed keeps nothing else open, and is left for closing once more.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Sequence
from typing import Generic, TypeVar

from launcher.access.profile import Profile
from launcher.executor import scratch, tree
from launcher.executor.forked import Owner
from launcher.executor.prepared import Command, Identity, IssuedGrant, merged, revoke
from launcher.executor.result import CardLostError, ClosedError, Result, TooManyExecutorsError
from launcher.executor.running import Running
from launcher.executor.settings import CommandOptions, Settings
from launcher.executor.steps import Steps, Wait
from oci.refusal import Refused

E = TypeVar("E")
_POLL_SECONDS = 0.02


class Member:
    """One executor's own: its identity, the cards that run for it, the grants that were issued for it."""

    def __init__(self, key: str, identity: Identity, forget: Callable[["Member"], None]) -> None:
        self.key = key
        self.identity = identity
        self.closed = False
        self.removed = False
        self._forget = forget
        self._owner = Owner()
        self._lock = threading.Lock()  # held for as long as something is started or granted: each happens or is refused
        self._closing = threading.Lock()
        self._running: set[Running] = set()
        self._grants: list[IssuedGrant] = []

    def command(self, argv: Sequence[str], options: CommandOptions) -> Command:
        """Return a command of this executor; raises ClosedError."""
        self._open()
        return Command(self.identity, argv, merged(options))

    def issue(
        self, command: Command, cls: str, target: str, *, seconds: int | None, required: Sequence[str]
    ) -> IssuedGrant:
        """Issue a grant for a command's run, to be taken back when the executor closes; raises Refused, ClosedError."""
        with self._starting():
            grant = command.issue(cls, target, seconds=seconds, required=required)
            self._grants.append(grant)
        return grant

    def start(self, command: Command, grants: Sequence["IssuedGrant | str"], *, stdin: bool) -> Steps[Running]:
        """Start a command and wait until it runs; raises Refused, CardLostError, ClosedError."""
        tokens = [grant if isinstance(grant, str) else grant.token for grant in grants]
        with self._starting():
            running = command.start(grants=tokens, stdin=stdin)
            self._running = {one for one in self._running if not one.over()} | {running}
        try:
            yield from running.until_started()
        except (CardLostError, Refused) as error:
            if self.closed:  # what is ended in the middle of its start is lost, or refused as what did not come about
                raise ClosedError(f"the executor {self.key!r} was closed before the command started") from error
            raise
        return running

    def carry_out(self, command: Command, grants: Sequence["IssuedGrant | str"], data: bytes | None) -> Steps[Result]:
        """Run a command to its end; raises Refused, CardLostError, ClosedError."""
        running = yield from self.start(command, grants, stdin=data is not None)
        return (yield from running.communicate(data or b""))

    def close(self) -> Steps[None]:
        """Take its grants back, end its cards, and remove its directory; harmless when said twice, by anybody.

        What fails is raised when all else is done, several failures as one ExceptionGroup; closing once more goes on
        with what is left. An exception while waiting cuts its cards off, and leaves the directory.
        """
        if not self._owner.here:
            self.drop()
            return
        failed = self.shut()
        _told([*failed, *(yield from self.finish())])

    def drop(self) -> None:
        """Let go of all that a process that was forked from its own has of it, and of nothing that is not here."""
        self.closed = True
        for running in self._running:
            running.drop()

    def shut(self) -> list[Exception]:
        """Let nothing be started or granted from now on, and take its grants back; return what failed."""
        failed: list[Exception] = []
        with self._lock:
            self.closed = True
            for grant in tuple(self._grants):
                with _later(failed):
                    revoke(grant)
                    self._grants.remove(grant)
        return failed

    def warn(self) -> None:
        """Ask all its cards to end, and wait for none."""
        for running in self._cards():
            running.child.send_signal(signal.SIGTERM)

    def cut(self) -> None:
        """End all its cards at once, and wait for none."""
        for running in self._cards():
            running.child.let_go()

    def finish(self) -> Steps[list[Exception]]:
        """Once it is shut, end its cards, and remove its directory when all have ended; return what failed."""
        yield from _taken(self._closing)
        failed: list[Exception] = []
        try:
            for running in self._cards():
                with _later(failed):
                    yield from running.end()
                    self._running.discard(running)
            if not self._running and not self.removed:
                with _later(failed):
                    self._remove()
            if self.removed and not self._grants:
                self._forget(self)
        except BaseException:
            self.cut()
            raise
        finally:
            self._closing.release()
        return failed

    def _remove(self) -> None:
        if os.path.lexists(self.identity.keep):
            tree.remove(self.identity.keep)
        self.removed = True

    def _cards(self) -> tuple[Running, ...]:
        with self._lock:
            return tuple(self._running)

    @contextlib.contextmanager
    def _starting(self) -> Generator[None]:
        """Have it open meanwhile; raises ClosedError. First without the lock, which in a forked process stays held."""
        self._open()
        with self._lock:
            self._open()
            yield

    def _open(self) -> None:
        self._owner.check(f"the executor {self.key!r}")
        if self.closed:
            raise ClosedError(f"the executor {self.key!r} is closed")


class Members(Generic[E]):
    """A set's own: its profile and settings, its scratch directory, its executors by key."""

    def __init__(
        self,
        make: Callable[[Member], E],
        *,
        profile: Profile,
        scratch_root: str,
        max_executors: int,
        settings: Settings,
    ) -> None:
        if max_executors < 1:
            raise ValueError("max_executors is at least 1")
        self._make = make
        self._profile = profile
        self._settings = settings
        self._most = max_executors
        self._made = 0
        self._owner = Owner()
        self._lock = threading.Lock()
        self._removing = threading.Lock()
        self._executors: dict[str, tuple[Member, E]] = {}
        self._closed = False
        self._scratch = scratch.take(scratch_root)

    def get(self, key: str) -> E:
        """Return the executor of a key, a new one where there is none; raises TooManyExecutorsError, ClosedError."""
        self._owner.check("the executor set")
        with self._lock:
            if self._closed:
                raise ClosedError("the executor set is closed")
            if key not in self._executors:
                if len(self._executors) >= self._most:
                    raise TooManyExecutorsError(
                        f"there are {self._most} executors already, and {key!r} is none of them"
                    )
                self._executors[key] = self._new(key)
            return self._executors[key][1]

    def keys(self) -> tuple[str, ...]:
        """Return the keys of the executors that are open; raises ClosedError in a process forked from its own."""
        self._owner.check("the executor set")
        with self._lock:
            return tuple(key for key, (member, _) in self._executors.items() if not member.closed)

    def _new(self, key: str) -> tuple[Member, E]:
        self._made += 1
        keep = self._scratch.room(f"{self._made:04}")
        name = f"{self._scratch.name}-{self._made}"
        identity = Identity(profile=self._profile, settings=self._settings, keep=keep, name=name, key=key)
        member = Member(key, identity, self._forget)
        return member, self._make(member)

    def _forget(self, member: Member) -> None:
        with self._lock:
            # The key may be another one's by now.
            if self._executors.get(member.key, (None,))[0] is member:
                del self._executors[member.key]

    def close(self) -> Steps[None]:
        """Close every executor, all grants first, and remove the set's directory; failures as with `Member.close`."""
        if not self._owner.here:
            for member, _ in self._executors.values():
                member.drop()
            self._scratch.drop()
            return
        with self._lock:
            self._closed = True
            members = [member for member, _ in self._executors.values()]
        try:
            failed = [error for member in members for error in member.shut()]
            for member in members:
                member.warn()
            for member in members:
                failed += yield from member.finish()
        except BaseException:
            for member in members:
                member.cut()
            raise
        if all(member.removed for member in members):
            with _later(failed), self._removing:
                self._scratch.remove()
        _told(failed)


def _taken(lock: threading.Lock) -> Steps[None]:
    """Take a lock, and hold up no event loop meanwhile."""
    while not lock.acquire(blocking=False):
        yield Wait(until=time.monotonic() + _POLL_SECONDS)


@contextlib.contextmanager
def _later(failed: list[Exception]) -> Generator[None]:
    """Keep an exception for when all else is done."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and the rest has to be closed before
        failed.append(error)


def _told(failed: Sequence[Exception]) -> None:
    """Raise what failed, if anything did."""
    if len(failed) == 1:
        raise failed[0]
    if failed:
        raise ExceptionGroup("not everything could be closed", failed)
