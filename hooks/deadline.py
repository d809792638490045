"""Deadlines inside a hook, shorter than the runtime's own: the hook itself says what took too long.

A runtime that loses patience kills the hook, and nobody learns why. So each step is given its seconds by an alarm,
which is heard between two instructions and interrupts every call that waits (signal(7)). crun starts hooks with all
signals blocked (1.21), so this one is let through. `_signal`, because `signal` costs 3 ms.
"""

from oci.refusal import Refusal, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

# With the wait for the plan (`rundir.LOCK_DEADLINE`) they stay below the timeouts in hooks.d (`oci.hooksd`).
STATE_SECONDS = 5.0
BUILD_SECONDS = 20.0  # on a bench that starts many cards at once, each has a small share of it
POSTSTOP_SECONDS = 8.0


def allow(seconds: float, what: str) -> None:
    """Give the next step so many seconds; past them Refused (`hook-late`) is raised where the process then is."""

    def late(_number: int, _frame: object) -> None:
        raise Refused([Refusal("hook-late", f"{what} took more than {seconds:g} s", "is nft hung, or the bench?")])

    _signal.signal(_signal.SIGALRM, late)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (_signal.SIGALRM,))
    _signal.setitimer(_signal.ITIMER_REAL, seconds)


def lift() -> None:
    """Take the deadline away: what follows has one of its own, or must not be cut short."""
    _signal.setitimer(_signal.ITIMER_REAL, 0)
