r"""Executors for asyncio: the same names as in `launcher`, with `await`.

No thread is made. A task that is cancelled while it waits for a command has ended the command by the time it is gone.

    import asyncio
    from launcher import Profile, aio

    profile = Profile(workspace="/srv/work", workspace_read="allow", workspace_write="allow", command="allow")

    async def main():
        async with aio.ExecutorSet(profile, scratch_root="/var/tmp/product") as executors:
            prepared = executors.executor("alice").prepare(["printf", "a\nb\nc\n"])
            async with await prepared.start() as process:
                async for line in process.stdout:
                    print(line.decode(), end="")
                result = await process.wait()

    asyncio.run(main())
"""

from launcher.executor.asynchronous import Executor, ExecutorSet, Prepared, Process, Reader, Writer

__all__ = ["Executor", "ExecutorSet", "Prepared", "Process", "Reader", "Writer"]
