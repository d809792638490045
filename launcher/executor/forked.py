"""What a process that is forked from this one must not hold: it would keep cards and locks alive that end with us.

Descriptors that are not inherited by exec are by fork(2), and so by multiprocessing's. They are closed in the child.
What its parent owns is not a child's to end or to remove: it has the memory of it, and no more.
"""

import os
import weakref
from collections.abc import Callable
from typing import TypeVar

from launcher.executor.result import ClosedError

T = TypeVar("T")
_ours: "weakref.WeakKeyDictionary[object, Callable[[], None]]" = weakref.WeakKeyDictionary()


class Owner:
    """The process that made something."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def here(self) -> bool:
        """Return whether that is this process."""
        return os.getpid() == self._pid

    def check(self, what: str) -> None:
        """Raise ClosedError in any other process: there `what` cannot be used."""
        if not self.here:
            raise ClosedError(f"{what} is of the process that made it, from which this one was forked")


def not_ours_to_share(one: T, close: Callable[[T], None]) -> None:
    """Have what belongs to this process closed in every child that it forks from now on."""
    held = weakref.ref(one)

    def closed() -> None:
        kept = held()
        if kept is not None:
            close(kept)

    _ours[one] = closed


def _close() -> None:
    for close in list(_ours.values()):
        close()


os.register_at_fork(after_in_child=_close)
