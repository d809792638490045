"""The hand: a process of a warm card that stands in the card's network namespace, with nft's library at hand.

Forked by the attendant while that has one thread, because a process with threads can enter no user namespace
(setns(2)), and because the attendant itself must stay in the bench's network, where names are resolved. Its orders are
`enter`, `swap` and `ledger`; it does nothing unasked and ends when the attendant does. The rule: it enters a namespace
only by an identity that the hook recorded, never by a process id alone.
"""

import _socket
import os
import signal
from typing import Any, NoReturn

from hooks import deadline, ledger, libnft, netns, nft, rundir, swap
from hooks.egress import TABLE_PREFIX
from launcher.pool import wire
from oci import annotations
from oci.refusal import Refusal, Refused
from oci.state import State

_LAST_FD = (1 << 31) - 1
_SECONDS = deadline.BUILD_SECONDS + deadline.POSTSTOP_SECONDS  # more than any order takes


class Lost(Exception):
    """The hand is gone: the card has no table of its own and can get none."""


class Hand:
    """The attendant's end. Every order raises Refused with the hand's reasons, or Lost."""

    def __init__(self) -> None:
        """Fork the process; only while this one has one thread."""
        self._socket, theirs = wire.pair()
        pid = os.fork()
        if pid == 0:
            _serve(theirs)
        theirs.close()
        self._socket.settimeout(_SECONDS)
        self._pid = pid

    def enter(self, state: dict[str, Any]) -> None:
        """Go where the hook was: `state` is the container's id and pid, its network namespace and its annotations."""
        self._order("enter", **state)

    def swap(self) -> None:
        """Swap the table by what now lies in the run directory (`hooks.swap`). Once."""
        self._order("swap")

    def ledger(self) -> dict[str, Any]:
        """Return the table's ledger as it stands. Once."""
        found: dict[str, Any] = self._order("ledger")["ledger"]
        return found

    def end(self) -> None:
        """End the process, whatever it is doing, and wait for it."""
        self._socket.close()
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def _order(self, order: str, **content: Any) -> dict[str, Any]:
        try:
            wire.send(self._socket, wire.dump({"order": order, **content}))
            got = wire.receive(self._socket)
        except OSError:
            got = None
        if got is None:
            # What it may still do it does not do later: the card is over, or its account is read another way.
            os.kill(self._pid, signal.SIGKILL)
            raise Lost("the process in the card's network is gone, or does not answer")
        answer = wire.load(got[0])
        if "refusals" in answer:
            raise wire.refused(answer["refusals"])
        return answer


class _Place:
    """Where the hand stands: the container as its hook saw it, the namespace, and nft contexts made there."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.state = State(
            id=order["container"], pid=order["pid"], bundle="/", status="running", annotations=order["annotations"]
        )
        self.namespace = _enter(self.state.pid, order["netns"])
        library = libnft.Library()
        self.loader, self.lister, self.reader = (library.context() for _ in range(3))


def _serve(source: "_socket.socket") -> NoReturn:
    place: _Place | None = None
    try:
        fd = os.dup2(source.fileno(), 3)
        os.closerange(4, _LAST_FD)  # the daemon's sockets, and whatever else the attendant had
        source.detach()
        connection = _socket.socket(fileno=fd)
        while (got := wire.receive(connection)) is not None:
            order = wire.load(got[0])
            try:
                if order["order"] == "enter":
                    place = _Place(order)
                answer = _do(order["order"], place)
            except Refused as error:
                answer = {"refusals": wire.refusals(error)}
            except OSError as error:
                answer = {"refusals": wire.refusals(Refused([Refusal("hand-failed", str(error))]))}
            wire.send(connection, wire.dump(answer))
    finally:
        os._exit(0)


def _do(order: str, place: "_Place | None") -> dict[str, Any]:
    if place is None:
        raise Refused([Refusal("hand-failed", "the hand is nowhere yet")])
    if order == "swap":
        swap.run(place.state, place.namespace, place.loader, place.lister)
    if order != "ledger":
        return {}
    directory = rundir.find(place.state)
    listing = nft.list_table("inet", TABLE_PREFIX + directory.run, place.reader)
    return {"ledger": ledger.parse(listing, self_tests=rundir.self_tests(directory.fd)).to_json()}


def _enter(pid: int, inode: int) -> int:
    """Enter podman's user namespace, as its owner, and then the card's network; return a descriptor of that.

    The card's first process may be in a user namespace of its own below podman's, where we would have no right to run
    nft: conmon, its parent, is in podman's.
    """
    namespace = netns.open_of(pid)
    if netns.inode(namespace) != inode or netns.is_own(namespace):
        raise Refused([Refusal("hand-failed", f"process {pid} is not the card's any more")])
    user = os.open(f"/proc/{parent(pid)}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    netns.setns(user, kind=netns.CLONE_NEWUSER)
    os.close(user)
    netns.setns(namespace)
    return namespace


def parent(pid: int) -> int:
    """Return the parent of a process: conmon's id, for a container's first one."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])


def state(run: str, directory: str, token: str, facts: dict[str, Any]) -> dict[str, Any]:
    """Return what `enter` wants, from the run's own words and the facts of its hook."""
    return {
        "container": facts["container"],
        "pid": facts["pid"],
        "netns": facts["netns"],
        "annotations": {annotations.RUN: run, annotations.DIRECTORY: directory, annotations.LAUNCH: token},
    }
