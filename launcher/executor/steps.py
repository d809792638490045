"""Waiting, written once for blocking and asyncio callers: a step is a generator that yields what it waits for.

What has to be done stands in generators; `drive` runs one in the caller's thread, `launcher.executor.aio.drive` in an
event loop. No thread is made and no signal handler is set. An exception while waiting (KeyboardInterrupt, a cancelled
task) is raised inside the generator, which then ends what it had started before it passes it on.
"""

import select
import time
from collections.abc import Generator
from typing import TypeVar

from launcher.value import Value

T = TypeVar("T")


class Wait(Value):
    """Until one of these descriptors can be read or written, or the clock (time.monotonic) says `until`."""

    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    until: float | None = None

    def seconds(self) -> float | None:
        """Return how long that is from now at the most; None is for ever."""
        return None if self.until is None else max(0.0, self.until - time.monotonic())


Steps = Generator[Wait, None, T]


def drive(steps: Steps[T]) -> T:
    """Run the steps to their end in this thread, and return what they return."""
    try:
        wait = next(steps)
        while True:
            try:
                _block(wait)
            except BaseException as error:  # noqa: BLE001 - it is the steps' to clean up after, and to raise again
                wait = steps.throw(error)
            else:
                wait = steps.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # what Steps[T] returns


def _block(wait: Wait) -> None:
    poller = select.poll()
    for fd in wait.reads:
        poller.register(fd, select.POLLIN)
    for fd in wait.writes:
        poller.register(fd, select.POLLOUT)
    seconds = wait.seconds()
    poller.poll(None if seconds is None else seconds * 1000)
