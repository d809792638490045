"""The outer layer of a card on a bridge: a netdev table on the bench's end of the card's veth.

The inner table is in the card's own namespace; this one is in the namespace of the bridge, which nothing of the card
can reach, and judges what comes out of the card (a veth that a bridge enslaves is no `iifname` in inet forward, so the
hook is netdev ingress). Run by the launcher inside that namespace, once the veth exists and before the worker is
released. The namespace is pinned beside the card's, so that poststop can take the table away again.
"""

import _socket
import os

from hooks import audit, netns, nft, plan, ruleset, rundir
from hooks.egress import NETDEV, TABLE_PREFIX, Egress, Selector
from oci import annotations, strictjson
from oci.refusal import Refusal, Refused
from oci.state import State

RESULT = "outer.json"
_FAMILY = "netdev"


def run(path: str, index: str) -> int:
    """Build the table on the interface of that index, for the run directory at `path`; return the exit status.

    The result is `outer.json`: the audited facts, or the refusals. A table that was loaded and not passed is removed.
    """
    names = {annotations.RUN: path.rpartition("/")[2], annotations.DIRECTORY: path}
    directory = rundir.find(State(id="-", pid=0, bundle="/", status="created", annotations=names))
    try:
        facts = _build(directory, index)
        result: dict[str, object] = {"status": "ok", "facts": facts}
    except Refused as error:
        result = {"status": "refused", "refusals": [refusal.to_json() for refusal in error.refusals]}
    rundir.write(directory, RESULT, strictjson.dump(result).encode())
    return 0 if result["status"] == "ok" else 1


def _build(directory: rundir.RunDirectory, index: str) -> "dict[str, object]":
    inner = plan.egress_of(rundir.read(directory, rundir.PLAN))
    wall = Egress(
        run=inner.run,
        selector=Selector(NETDEV, _device(index)),
        pins=inner.pins,
        dns=inner.dns,
        denied=inner.denied,
        ledger_size=inner.ledger_size,
    )
    text = ruleset.render(wall)
    audit.audit(text, wall)
    nft.load(text)
    try:
        facts = audit.audit(nft.list_table(_FAMILY, wall.table), wall)
        own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        netns.pin(own, directory=directory.fd, name=rundir.OUTER)
    except (Refused, OSError):
        nft.delete_table(_FAMILY, wall.table)
        raise
    return {**facts.to_json(), "device": wall.selector.value}


def _device(index: str) -> str:
    try:
        return _socket.if_indextoname(int(index))
    except (OSError, ValueError):
        text = f"there is no interface {index} where the bridge is: the card's veth has no other end"
        raise Refused([Refusal("no-veth", text)]) from None


def remove(directory: rundir.RunDirectory) -> None:
    """Take the table away from the pinned namespace of the bridge and let go of it; harmless when there is none."""
    pin = netns.open_pin(directory=directory.fd, name=rundir.OUTER)
    try:
        if pin is not None:
            netns.setns(pin)
            nft.delete_table(_FAMILY, TABLE_PREFIX + directory.run)
    finally:
        if pin is not None:
            os.close(pin)
        netns.unpin(directory=directory.fd, name=rundir.OUTER)
