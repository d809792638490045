"""What a process that is forked from this one must not hold: it would keep cards and locks alive that end with us.

Descriptors that are not inherited by exec are by fork(2), and so by multiprocessing's. They are closed in the child.
"""

import os
import weakref
from typing import Protocol


class Closable(Protocol):
    """A socket or a file."""

    def close(self) -> None:
        """Let go of the descriptor."""


_ours: "weakref.WeakSet[Closable]" = weakref.WeakSet()


def not_ours_to_share(one: Closable) -> None:
    """Have it closed in every child that this process forks from now on."""
    _ours.add(one)


def _close() -> None:
    for one in list(_ours):
        one.close()


os.register_at_fork(after_in_child=_close)
