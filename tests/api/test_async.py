"""Executors for asyncio callers: the same names, awaited, and what a cancelled task leaves."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from launcher import Refused, Result, Settings, aio
from tests.api.kit import profile

Body = Callable[[aio.ExecutorSet], Awaitable[None]]


@asynccontextmanager
async def executors(workspace: Path) -> AsyncIterator[aio.ExecutorSet]:
    """Make a set whose scratch directory is empty afterwards."""
    root = workspace.parent / "scratch"
    async with aio.ExecutorSet(profile(workspace), scratch_root=root, settings=Settings(stop_seconds=1)) as made:
        yield made
    assert list(root.iterdir()) == []


def carried_out(workspace: Path, body: Body) -> None:
    """Run a test's body in an event loop, with a set."""

    async def whole() -> None:
        async with executors(workspace) as made:
            await body(made)

    asyncio.run(whole())


@pytest.mark.usefixtures("nothing_left")
def test_commands_run_side_by_side(workspace: Path) -> None:
    """Results come as from the blocking twin, and no thread was made for them."""

    async def body(made: aio.ExecutorSet) -> None:
        executor = made.executor("a")
        before = threading.active_count()
        commands = [executor.run_command(["sh", "-c", f"cat; exit {number}"], input=b"in") for number in range(3)]
        results: list[Result] = await asyncio.gather(*commands)
        assert [result.status for result in results] == [0, 1, 2]
        assert {result.stdout for result in results} == {b"in"}
        assert threading.active_count() == before
        with pytest.raises(Refused):
            await executor.run_command(["true"], cwd="/etc")

    carried_out(workspace, body)


@pytest.mark.usefixtures("nothing_left")
def test_a_cancelled_task_has_ended_its_command(workspace: Path) -> None:
    """By the time the cancellation is known the card is gone, also one that ignores SIGTERM; the loop goes on."""

    async def body(made: aio.ExecutorSet) -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.01)

        ticking = asyncio.create_task(tick())
        executor = made.executor("a")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await executor.run_command(["sh", "-c", "touch started; trap '' TERM; while :; do sleep 0.1; done"])
        assert (workspace / "started").exists()
        ticking.cancel()
        assert ticks > 50

    carried_out(workspace, body)


@pytest.mark.usefixtures("nothing_left")
def test_a_second_cancellation_does_not_wait(workspace: Path) -> None:
    """Cancelled while it is being ended, the card is cut off at once."""

    async def body(made: aio.ExecutorSet) -> None:
        text = "touch started; trap '' TERM; while :; do sleep 0.1; done"
        task = asyncio.create_task(made.executor("a").run_command(["sh", "-c", text]))
        while not (workspace / "started").exists():  # noqa: ASYNC110 - what makes it is in another world
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.sleep(0.1)
        start = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - start < 0.5

    carried_out(workspace, body)


@pytest.mark.usefixtures("nothing_left")
def test_streams_of_a_started_process(workspace: Path) -> None:
    """Several tasks wait for one process at once: one reads, one writes, one looks at stderr."""

    async def body(made: aio.ExecutorSet) -> None:
        prepared = made.executor("a").prepare(["sh", "-c", "while read x; do echo $x; echo e$x >&2; done"], stdin=True)
        async with await prepared.start() as process:

            async def say() -> None:
                assert process.stdin is not None
                for number in range(3):
                    await process.stdin.write(f"{number}\n".encode())
                process.stdin.close()

            async def lines(reader: aio.Reader) -> list[bytes]:
                return [line async for line in reader]

            _, out, err = await asyncio.gather(say(), lines(process.stdout), lines(process.stderr))
            assert out == [b"0\n", b"1\n", b"2\n"]
            assert err == [b"e0\n", b"e1\n", b"e2\n"]
            assert (await process.wait()).status == 0

    carried_out(workspace, body)
