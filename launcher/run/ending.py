"""How a run ended: the status that its container recorded, and whether memory ran out. Asked only when it matters.

podman's client returns the worker's status, but 125 to 127 may be its own (podman-run(1) "Exit Status"), 128 and up a
signal's, and a client that was killed returns nothing of the worker's. The rule: what the container recorded is the
truth; where there is no record, that is said. The container, and what it held, are gone afterwards. Asking podman takes
a tenth of a second, so any other status is only held against podman's log of events, where that is a file: conmon's
file of the status is gone by the time that podman has ended.
"""

import os

from hooks import rundir
from launcher.life import undo
from launcher.life.containers import Containers, Unknown
from launcher.run import output
from launcher.run.directory import RunDirectory
from oci import strictjson
from oci.refusal import Refusal, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PODMANS_OWN = range(125, 128)
_SIGNAL_BASE = 128
# podman-events(1), below the directory that holds podman's runtime files and ours; and how much of its end is read.
_EVENTS = "libpod/tmp/events/events.log"
_TAIL = 64 << 10


def interrupted(number: int) -> Refused:
    """Return the refusal of a card that a signal to card-run ended before its worker was released."""
    import signal

    text = f"{signal.Signals(number).name} came before the worker was started, and nothing of it ran"
    return Refused([Refusal("interrupted", text)], status=_SIGNAL_BASE + number)


def differs(run: RunDirectory, container: str, status: int) -> bool:
    """Return whether podman's log of events has another status for a container, by its id.

    False as well where there is no such record that we can read.
    """
    base = os.path.dirname(os.path.dirname(run.path))
    try:
        with open(f"{base}/{_EVENTS}", "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            lines = file.read().splitlines()
    except OSError:
        return False  # podman keeps its events in the journal, or none
    own = [line for line in lines if container.encode() in line and b'"died"' in line]
    return any(_code(line) not in (None, status) for line in own)


def _code(line: bytes) -> int | None:
    """Return the exit code that one event tells, None for none: a 0 is left out by podman 4."""
    try:
        event: Any = strictjson.parse(line)
        code = event["ContainerExitCode"]
    except (ValueError, KeyError, TypeError):
        return None
    return code if isinstance(code, int) and code >= 0 else None


def settle(run: RunDirectory, containers: Containers, *, client: int, killed: int) -> int:
    """Return the worker's status, with its container removed and its ledger read; says what is left or not known.

    `client` is the status of podman's client, `killed` the signal that ended it, 0 for none. A client that failed by
    itself did not pass on all that the worker said, as on a full disk: that is no success, whatever the worker's was.
    """
    status = None
    try:
        status, _ = undo.end(run, containers)
        undo.release(run, containers)
    except Unknown as error:
        output.say(f"NOTE left behind: {error}")
    _say(status, client=client, killed=killed)
    lost = status == 0 and client in _PODMANS_OWN
    return client if status is None or lost else status


def _say(status: int | None, *, client: int, killed: int) -> None:
    if killed:
        output.say(f"NOTE podman was ended by signal {killed}, and the card with it")
    elif status is None and client in _PODMANS_OWN:
        output.say(f"NOTE podman ended with {client}, and recorded no status of the worker's: it may be podman's own")
    elif status is not None and status != client:
        output.say(f"NOTE podman ended with {client}; the worker's own status is {status}")


def memory(run: RunDirectory, status: int) -> bool:
    """Return whether the kernel ended a process of the card for want of memory, and say so.

    conmon(8) leaves word of it in the bundle, where the poststop hook finds it.
    """
    if run.read(rundir.OOM) is None:
        return False
    if status == undo.KILLED:
        output.say("NOTE the worker was killed because the card's memory ran out (OOM), see --memory")
    else:
        output.say("NOTE a process of the card was killed because the card's memory ran out (OOM), see --memory")
    return True
