"""Executors for asyncio: `from launcher.aio import ExecutorSet`. The same names as in `launcher`, with `await`.

No thread is made. A task that is cancelled while it waits for a command has ended the command by the time it is gone.
"""

from launcher.executor.asynchronous import Executor, ExecutorSet, Prepared, Process, Reader, Writer

__all__ = ["Executor", "ExecutorSet", "Prepared", "Process", "Reader", "Writer"]
