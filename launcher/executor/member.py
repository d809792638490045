"""What an executor owns, and a set: cards, grants, directories; and in what order that ends. Shared by both callers."""

import signal
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from launcher.access.profile import Profile
from launcher.executor import scratch, tree
from launcher.executor.prepared import Command, Identity, IssuedGrant, merged, revoke
from launcher.executor.result import ClosedError, Result, TooManyExecutorsError
from launcher.executor.running import Running
from launcher.executor.settings import CommandOptions, Settings
from launcher.executor.steps import Steps

E = TypeVar("E")


class Member:
    """One executor's own: its identity, the cards that run for it, the grants that were issued for it."""

    def __init__(self, key: str, identity: Identity, forget: Callable[[str], None]) -> None:
        self.key = key
        self.identity = identity
        self.closed = False
        self._forget = forget
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
        self._open()
        grant = command.issue(cls, target, seconds=seconds, required=required)
        self._grants.append(grant)
        return grant

    def start(self, command: Command, grants: Sequence["IssuedGrant | str"], *, stdin: bool) -> Steps[Running]:
        """Start a command and wait until it runs; raises Refused, CardLostError, ClosedError."""
        self._open()
        tokens = [grant if isinstance(grant, str) else grant.token for grant in grants]
        running = command.start(grants=tokens, stdin=stdin)
        self._running = {one for one in self._running if one.outcome is None} | {running}
        yield from running.until_started()
        return running

    def carry_out(self, command: Command, grants: Sequence["IssuedGrant | str"], data: bytes | None) -> Steps[Result]:
        """Run a command to its end; raises Refused, CardLostError, ClosedError."""
        running = yield from self.start(command, grants, stdin=data is not None)
        return (yield from running.communicate(data or b""))

    def warn(self) -> None:
        """Ask all its cards to end, and wait for none."""
        for running in self._running:
            running.child.send_signal(signal.SIGTERM)

    def close(self) -> Steps[None]:
        """Take its grants back, end its cards, and remove its directory; harmless when said twice."""
        if self.closed:
            return
        self.closed = True
        try:
            for grant in self._grants:
                revoke(grant)
            for running in self._running:
                yield from running.end()
            tree.remove(self.identity.keep)
        finally:
            self._forget(self.key)

    def _open(self) -> None:
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
        self._lock = threading.Lock()
        self._executors: dict[str, tuple[Member, E]] = {}
        self._scratch: scratch.Scratch | None = scratch.take(scratch_root)

    def get(self, key: str) -> E:
        """Return the executor of a key, a new one where there is none; raises TooManyExecutorsError, ClosedError."""
        with self._lock:
            if self._scratch is None:
                raise ClosedError("the executor set is closed")
            if key not in self._executors:
                if len(self._executors) >= self._most:
                    raise TooManyExecutorsError(
                        f"there are {self._most} executors already, and {key!r} is none of them"
                    )
                self._executors[key] = self._new(key, self._scratch)
            return self._executors[key][1]

    def keys(self) -> tuple[str, ...]:
        """Return the keys of the executors that are open."""
        return tuple(self._executors)

    def _new(self, key: str, place: scratch.Scratch) -> tuple[Member, E]:
        self._made += 1
        keep = place.room(f"{self._made:04}")
        name = f"{place.name}-{self._made}"
        identity = Identity(profile=self._profile, settings=self._settings, keep=keep, name=name)
        member = Member(key, identity, self._forget)
        return member, self._make(member)

    def _forget(self, key: str) -> None:
        with self._lock:
            self._executors.pop(key, None)

    def close(self) -> Steps[None]:
        """Close every executor, and remove the set's directory; harmless when said twice."""
        with self._lock:
            place, self._scratch = self._scratch, None
        if place is None:
            return
        members = [member for member, _ in self._executors.values()]
        try:
            for member in members:
                member.warn()
            for member in members:
                yield from member.close()
        finally:
            place.remove()
