"""The lifeline: the kernel ends the worker when card-run is gone, however it went.

Descriptor 4 is one end of a socket pair whose other end only card-run holds. Its hang-up is made to send this process
SIGKILL (fcntl(2) F_SETSIG, F_SETOWN, O_ASYNC); the worker keeps the process id, init ends when it does, and with init
the container. The rule: nothing in the container keeps the descriptor. The open file description, and with it the
order to kill, is kept by card-run's own end, in whose queue it was put (unix(7) SCM_RIGHTS): nobody who could be
talked into changing it has it. Nothing is ever sent after that, so nothing but the end can be heard.
"""

import errno
import os

from launcher.stage2.syscalls import F_GETFL, F_GETOWN, F_GETSIG, F_SETFL, F_SETOWN, F_SETSIG, O_ASYNC, Kernel
from oci.refusal import Refusal, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

FD = 4


def arm(kernel: Kernel, descriptor: int) -> "list[tuple[str, str]]":
    """Have this process killed when the other end is gone; raises Refused when that cannot be had or is so already.

    Cannot be undone once the descriptor is closed.
    """
    try:
        kernel.fcntl(descriptor, F_SETOWN, os.getpid())
        kernel.fcntl(descriptor, F_SETSIG, _signal.SIGKILL)
        kernel.fcntl(descriptor, F_SETFL, kernel.fcntl(descriptor, F_GETFL, 0) | O_ASYNC)
        order = [kernel.fcntl(descriptor, command, 0) for command in (F_GETOWN, F_GETSIG, F_GETFL)]
        # Only now: an end that came before the order was given sends no signal any more.
        connected = kernel.connected(descriptor)
    except OSError as error:
        text = f"descriptor {descriptor} is no lifeline: {error.filename}: {errno.errorcode.get(error.errno or 0)}"
        raise Refused([Refusal("no-lifeline", text, "start the card with card-run")]) from error
    if order[:2] != [os.getpid(), _signal.SIGKILL] or not order[2] & O_ASYNC:
        raise Refused([Refusal("no-lifeline", f"the kernel did not take the order: {order}")])
    if not connected:
        raise Refused([Refusal("launcher-lost", "card-run is gone")])
    return [("lifeline", "armed")]
