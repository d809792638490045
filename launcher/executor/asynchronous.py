"""Executors for asyncio callers: what `launcher.executor.blocking` has, awaited. The steps are the same ones.

No thread is made: the event loop watches the descriptors. A task that is cancelled while it waits for a command ends
the command first (SIGTERM, then KILL after `stop_seconds`); cancelled once more, it cuts it off at once.
"""
# ruff: noqa: A002 - `input` is subprocess.run's own word for it

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from typing import Any, Self, Unpack

from launcher.executor.bases import ExecutorBase, ExecutorSetBase, PreparedBase, ProcessBase, WriterBase, for_grants
from launcher.executor.member import Member
from launcher.executor.prepared import IssuedGrant
from launcher.executor.result import Result
from launcher.executor.running import Running
from launcher.executor.settings import CommandOptions
from launcher.executor.steps import Steps, T, Wait
from launcher.executor.streams import Sink, Source


async def drive(steps: Steps[T]) -> T:
    """Run the steps to their end in the running event loop, and return what they return."""
    try:
        wait = next(steps)
        while True:
            try:
                await _ready(wait)
            except BaseException as error:  # noqa: BLE001 - it is the steps' to clean up after, and to raise again
                wait = steps.throw(error)
            else:
                wait = steps.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # what Steps[T] returns


async def _ready(wait: Wait) -> None:
    """Return once one of the descriptors is ready, or the time is over."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    with contextlib.ExitStack() as watched:
        for fds, add, remove in (
            (wait.reads, loop.add_reader, loop.remove_reader),
            (wait.writes, loop.add_writer, loop.remove_writer),
        ):
            for fd in fds:
                # A duplicate: a loop has one watcher for each number, and several tasks may wait for one descriptor.
                own = os.dup(fd)
                watched.callback(os.close, own)
                add(own, ready.set)
                watched.callback(remove, own)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait.seconds()):
                await ready.wait()


class Reader:
    """What a command writes, as it comes: read it, or iterate over its lines."""

    def __init__(self, source: Source) -> None:
        self._source = source

    async def read(self, size: int = -1) -> bytes:
        """Return at most `size` bytes as soon as there are any, b"" at the end; without a size, everything."""
        return await drive(self._source.all() if size < 0 else self._source.more(size))

    async def readline(self) -> bytes:
        """Return the next line with its newline, b"" at the end; raises ValueError for one beyond `output_limit`.

        What has come of such a line is still there for `read`.
        """
        return await drive(self._source.line())

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while line := await self.readline():
            yield line


class Writer(WriterBase):
    """What a command reads."""

    async def write(self, data: bytes) -> None:
        """Hand over all of it; raises BrokenPipeError when the command takes no more."""
        await drive(self._sink.put(data))


class Process(ProcessBase):
    """A command that runs. Leaving its `async with` block ends it, if it has not ended."""

    def __init__(self, running: Running) -> None:
        super().__init__(running)
        streams = running.child.streams
        self.stdin = Writer(Sink(running.child, streams.stdin)) if streams.stdin >= 0 else None
        self.stdout = Reader(Source(running.child, streams.stdout, limit=running.output_limit))
        self.stderr = Reader(Source(running.child, streams.stderr, limit=running.output_limit))

    async def wait(self) -> Result:
        """Wait for the end; raises CardLostError. Read stdout and stderr first: a command that cannot write waits."""
        return await drive(self._running.wait())

    async def communicate(self, data: bytes = b"") -> Result:
        """Hand over `data` and the end of input, take in stdout and stderr up to the output limit, and wait."""
        return await drive(self._running.communicate(data))

    async def terminate(self) -> None:
        """Ask the command to end, have it killed after `stop_seconds`, and wait for that."""
        await drive(self._running.end())

    async def kill(self) -> None:
        """End the card at once, and wait for that. Nobody accounts for it: the result has no receipt."""
        await drive(self._running.kill())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.terminate()


class Prepared(PreparedBase):
    """One command that has not started: look at what it would be held to, issue its grants, start it."""

    async def plan(self) -> dict[str, Any]:
        """Return everything the run would be made of (card-run(1) `--plan`); raises Refused with every refusal."""
        return await drive(self._command.plan())

    async def start(self, *, grants: Sequence[IssuedGrant | str] = ()) -> Process:
        """Start it and return once it runs; raises Refused with every refusal, and then nothing of it ran."""
        stdin = self._command.options.get("stdin", False)
        return Process(await drive(self._member.start(self._command, grants, stdin=stdin)))

    async def run(self, *, grants: Sequence[IssuedGrant | str] = (), input: bytes | None = None) -> Result:
        """Start it, wait for its end and return how it was; raises Refused, CardLostError."""
        return await drive(self._member.carry_out(self._command, grants, input))


class Executor(ExecutorBase):
    """Runs commands, each in a card of its own, that share one HOME and one /tmp and nothing of another executor's.

    Made by `ExecutorSet.executor`. `name` is what its grants are bound to.
    """

    def prepare(self, argv: Sequence[str], **options: Unpack[CommandOptions]) -> Prepared:
        """Return a command that can be looked at, granted something, and started."""
        return Prepared(*self._command(argv, options))

    async def run_command(
        self, argv: Sequence[str], *, input: bytes | None = None, **options: Unpack[CommandOptions]
    ) -> Result:
        """Run a command to its end and return how it was; raises Refused with every refusal, CardLostError.

        `input` is its standard input, empty without. What stops the waiting ends the command.
        """
        return await self.prepare(argv, **options).run(input=input)

    async def run_command_with_grants(
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
        return await self.prepare(argv, **for_grants(grants, options)).run(grants=grants, input=input)

    async def close(self) -> None:
        """Take its grants back, end its commands, and remove its HOME and /tmp; harmless when said twice.

        What fails keeps nothing else open, and is raised at the end: several failures as one ExceptionGroup. Closing
        once more goes on with what is left; so it does after an exception while waiting, which cuts its commands off.
        """
        await drive(self._member.close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class ExecutorSet(ExecutorSetBase[Executor]):
    """Executors by key, each with a HOME, a /tmp and a grant identity of its own, all held to one access profile.

    They are of the process that made the set. In one that is forked from it nothing can be started (ClosedError), and
    closing closes what descriptors of theirs it has, and ends and removes nothing.
    """

    def _made_of(self, member: Member) -> Executor:
        return Executor(member)

    async def close(self) -> None:
        """Take every grant back, end every command, and remove what the set owns; harmless when said twice.

        Failures, and an exception while waiting, are as with `Executor.close`; what is left is also the next set's to
        remove, once this one is gone.
        """
        await drive(self._members.close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
