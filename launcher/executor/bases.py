"""The halves of the public classes that wait for nothing, and so are the same for blocking and asyncio callers."""

import os
import signal
import weakref
from collections.abc import Sequence
from functools import cached_property
from typing import Generic

from launcher.access.compiled import Row
from launcher.access.judge import ALLOW, LEVELS
from launcher.access.profile import Profile
from launcher.access.scope import levels
from launcher.executor.member import E, Member, Members
from launcher.executor.prepared import Command, IssuedGrant
from launcher.executor.running import Running
from launcher.executor.settings import CommandOptions, Settings
from launcher.executor.streams import Sink
from launcher.fs.paths import ancestors
from launcher.grants.token import decode
from oci.refusal import Refusal, Refused

# What card-run passes on to the command (card-run(1)).
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class WriterBase:
    """What a command reads."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def close(self) -> None:
        """Let the command read the end of its input; harmless when said twice."""
        self._sink.close()


class ProcessBase:
    """A command that runs: its run id, what was measured of its walls, signals, the terminal's size."""

    def __init__(self, running: Running) -> None:
        self._running = running
        weakref.finalize(self, running.forsake).atexit = False
        started = running.told.started or {}
        self.run_id = running.run
        self.level = str(started["level"])
        self.guarantees: dict[str, bool] = dict(started["guarantees"])
        self.lifetime_containment = bool(started["lifeline"])

    def has_ended(self) -> bool:
        """Return whether it has ended by now."""
        return self._running.child.ended()

    def send_signal(self, number: int) -> None:
        """Send the command a signal; raises ValueError for one that does not cross. Harmless once it has ended."""
        if number not in SIGNALS:
            names = ", ".join(one.name for one in SIGNALS)
            raise ValueError(f"signal {number} does not cross into a card: one of {names}, or terminate() and kill()")
        self._running.child.send_signal(number)

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of the command's terminal; raises ValueError when it has none."""
        if not self._running.at_terminal:
            raise ValueError("the command has no terminal: prepare it with terminal=(rows, columns)")
        self._running.child.resize(rows, columns)


class PreparedBase:
    """One command that has not started: `report` and `guarantees_needed` say what it would be held to.

    That is the set's profile with the bench's ceiling over it, read when first asked for.
    """

    def __init__(self, member: Member, command: Command) -> None:
        self._member = member
        self._command = command
        self.argv = command.argv

    @cached_property
    def report(self) -> tuple[Row, ...]:
        """Return, for each thing, its level, whether that would be enforced, and by which wall; raises Refused."""
        return self._command.report()

    @cached_property
    def guarantees_needed(self) -> tuple[str, ...]:
        """Return the guarantees without which the command would not be started; raises Refused."""
        return self._command.needed()

    @property
    def run_id(self) -> str:
        """Return the id that its run will have; decided when first asked for."""
        return self._command.fixed_run_id()

    def issue_grant(
        self, cls: str, target: str = "", *, seconds: int | None = None, required: Sequence[str] = ()
    ) -> IssuedGrant:
        """Issue a grant that opens one gated thing for this run and no other; raises Refused.

        `cls` and `target` are those of card(1) `grant issue`, `required` guarantees that the run must have measured
        besides. It is good for `seconds`, the bench's most if not said, and is taken back when the executor closes.
        """
        return self._member.issue(self._command, cls, target, seconds=seconds, required=required)


class ExecutorBase:
    """An executor: its key in the set, the name that its grants are bound to, what its commands are held to."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self.key = member.key
        self.name = member.identity.name
        self.profile = member.identity.profile
        self.settings = member.identity.settings

    def _command(self, argv: Sequence[str], options: CommandOptions) -> tuple[Member, Command]:
        return self._member, self._member.command(argv, options)


class ExecutorSetBase(Generic[E]):
    """Executors by key, each with a HOME, a /tmp and a grant identity of its own, all held to one access profile."""

    def __init__(
        self,
        profile: Profile,
        *,
        scratch_root: "str | os.PathLike[str]",
        max_executors: int = 16,
        settings: Settings | None = None,
    ) -> None:
        """Take a directory below `scratch_root`, which is yours alone and in nothing that a card may write.

        It is made where it is missing. What crashed sets left there is removed, and nothing else. Raises
        PermissionError when others can change it, Refused (`keep-writable`) when the profile lets it be written.
        """
        _apart(profile, os.fspath(scratch_root))
        self._members = Members(
            self._made_of,
            profile=profile,
            scratch_root=os.fspath(scratch_root),
            max_executors=max_executors,
            settings=settings or Settings(),
        )

    def _made_of(self, member: Member) -> E:
        raise NotImplementedError  # each kind of set makes its own kind of executor

    def executor(self, key: str) -> E:
        """Return the executor of a key, a new one where there is none; raises TooManyExecutorsError, ClosedError."""
        return self._members.get(key)

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the keys of the executors that are open."""
        return self._members.keys()


def _apart(profile: Profile, scratch_root: str) -> None:
    """Raise Refused for a scratch directory in a place that commands may write, as each of their runs would."""
    holders = set(ancestors(scratch_root))
    allowed = (path for path, level in levels(profile, write=True).items() if path and LEVELS[level] == ALLOW)
    around = [path for path in allowed if os.path.exists(path) and next(ancestors(path)) in holders]
    if around:
        text = f"scratch_root {scratch_root!r} is inside {around[0]}, which commands may write: one could replace it"
        raise Refused([Refusal("keep-writable", text, "keep it beside what commands may write")])


def for_grants(grants: Sequence[IssuedGrant | str], options: CommandOptions) -> CommandOptions:
    """Return a command's options with the run id that its grants name, where it is not said; raises Refused."""
    if not grants or options.get("run_id") is not None:
        return options
    first = grants[0]
    return {**options, "run_id": first.run_id if isinstance(first, IssuedGrant) else decode(first)[0].run}
