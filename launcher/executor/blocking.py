"""Executors for blocking callers: `from launcher import ExecutorSet`. `launcher.aio` has the same for asyncio.

Every command is one card: a card-run of this package as a child process, ended by the kernel when this process is. An
executor may be used by several threads.
"""
# ruff: noqa: A002 - `input` is subprocess.run's own word for it

from collections.abc import Iterator, Sequence
from typing import Any, Self, Unpack

from launcher.executor.bases import ExecutorBase, ExecutorSetBase, PreparedBase, ProcessBase, WriterBase, for_grants
from launcher.executor.member import Member
from launcher.executor.prepared import IssuedGrant
from launcher.executor.result import Result
from launcher.executor.running import Running
from launcher.executor.settings import CommandOptions
from launcher.executor.steps import drive
from launcher.executor.streams import Sink, Source


class Reader:
    """What a command writes, as it comes: read it, or iterate over its lines."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def read(self, size: int = -1) -> bytes:
        """Return at most `size` bytes as soon as there are any, b"" at the end; without a size, everything."""
        return drive(self._source.all() if size < 0 else self._source.more(size))

    def readline(self) -> bytes:
        """Return the next line with its newline, b"" at the end; raises ValueError for one beyond `output_limit`.

        What has come of such a line is still there for `read`.
        """
        return drive(self._source.line())

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.readline, b"")


class Writer(WriterBase):
    """What a command reads."""

    def write(self, data: bytes) -> None:
        """Hand over all of it; raises BrokenPipeError when the command takes no more."""
        drive(self._sink.put(data))


class Process(ProcessBase):
    """A command that runs. Leaving its `with` block ends it, if it has not ended."""

    def __init__(self, running: Running) -> None:
        super().__init__(running)
        streams = running.child.streams
        self.stdin = Writer(Sink(running.child, streams.stdin)) if streams.stdin >= 0 else None
        self.stdout = Reader(Source(running.child, streams.stdout, limit=running.output_limit))
        self.stderr = Reader(Source(running.child, streams.stderr, limit=running.output_limit))

    def wait(self) -> Result:
        """Wait for the end; raises CardLostError. Read stdout and stderr first: a command that cannot write waits."""
        return drive(self._running.wait())

    def communicate(self, data: bytes = b"") -> Result:
        """Hand over `data` and the end of input, take in stdout and stderr up to the output limit, and wait."""
        return drive(self._running.communicate(data))

    def terminate(self) -> None:
        """Ask the command to end, have it killed after `stop_seconds`, and wait for that."""
        drive(self._running.end())

    def kill(self) -> None:
        """End the card at once, and wait for that. Nobody accounts for it: the result has no receipt."""
        drive(self._running.kill())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.terminate()


class Prepared(PreparedBase):
    """One command that has not started: look at what it would be held to, issue its grants, start it."""

    def plan(self) -> dict[str, Any]:
        """Return everything the run would be made of (card-run(1) `--plan`); raises Refused with every refusal."""
        return drive(self._command.plan())

    def start(self, *, grants: Sequence[IssuedGrant | str] = ()) -> Process:
        """Start it and return once it runs; raises Refused with every refusal, and then nothing of it ran."""
        stdin = self._command.options.get("stdin", False)
        return Process(drive(self._member.start(self._command, grants, stdin=stdin)))

    def run(self, *, grants: Sequence[IssuedGrant | str] = (), input: bytes | None = None) -> Result:
        """Start it, wait for its end and return how it was; raises Refused, CardLostError."""
        return drive(self._member.carry_out(self._command, grants, input))


class Executor(ExecutorBase):
    """Runs commands, each in a card of its own, that share one HOME and one /tmp and nothing of another executor's.

    Made by `ExecutorSet.executor`. `name` is what its grants are bound to.
    """

    def prepare(self, argv: Sequence[str], **options: Unpack[CommandOptions]) -> Prepared:
        """Return a command that can be looked at, granted something, and started."""
        return Prepared(*self._command(argv, options))

    def run_command(
        self, argv: Sequence[str], *, input: bytes | None = None, **options: Unpack[CommandOptions]
    ) -> Result:
        """Run a command to its end and return how it was; raises Refused with every refusal, CardLostError.

        `input` is its standard input, empty without. What stops the waiting ends the command.
        """
        return self.prepare(argv, **options).run(input=input)

    def run_command_with_grants(
        self,
        argv: Sequence[str],
        grants: Sequence[IssuedGrant | str],
        *,
        input: bytes | None = None,
        **options: Unpack[CommandOptions],
    ) -> Result:
        """Run a command that grants open something for; those of other runs, executors or commands are Refused.

        All grants are of one run: the command has the run id that the first of them names, unless `run_id` says one.
        """
        return self.prepare(argv, **for_grants(grants, options)).run(grants=grants, input=input)

    def close(self) -> None:
        """Take its grants back, end its commands, and remove its HOME and /tmp; harmless when said twice.

        What fails keeps nothing else open, and is raised at the end: several failures as one ExceptionGroup. Closing
        once more goes on with what is left; so it does after an exception while waiting, which cuts its commands off.
        """
        drive(self._member.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ExecutorSet(ExecutorSetBase[Executor]):
    """Executors by key, each with a HOME, a /tmp and a grant identity of its own, all held to one access profile.

    They are of the process that made the set. In one that is forked from it nothing can be started (ClosedError), and
    closing closes what descriptors of theirs it has, and ends and removes nothing.
    """

    def _made_of(self, member: Member) -> Executor:
        return Executor(member)

    def close(self) -> None:
        """Take every grant back, end every command, and remove what the set owns; harmless when said twice.

        Failures, and an exception while waiting, are as with `Executor.close`; what is left is also the next set's to
        remove, once this one is gone.
        """
        drive(self._members.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
