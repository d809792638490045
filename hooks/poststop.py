"""The poststop hook: keep the ledger, then let go of the network namespace.

podman runs it with no pid and an empty environment, after the network is torn down, possibly twice, possibly never. So
the rule: it works from the run directory alone, does nothing that is done already, and missing things are not failures.
podman shows nothing of what it says, so why there is no ledger is left in the run directory. Standard library and this
package only.
"""

import os

from hooks import deadline, lastword, ledger, netns, nft, rundir
from hooks.egress import TABLE_PREFIX
from oci import annotations, state, strictjson
from oci.refusal import Refusal, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from hooks.libnft import Context


def run(stdin: int, *, tool: "Callable[[], nft.Nft | Context]" = nft.Nft) -> int:
    """Run the hook on the state that descriptor `stdin` gives; return 0 when nothing of the run is held any more.

    `tool` makes what is asked for the listing.
    """
    container = None
    try:
        deadline.allow(deadline.POSTSTOP_SECONDS, "keeping the ledger")
        container = state.read(stdin)
        if not os.path.lexists(container.annotations.get(annotations.DIRECTORY, "/")):
            return 0  # cleaned up already
        directory = rundir.find(container)
    except Refused as error:
        lastword.tell(error, container)
        return 1
    try:
        if os.path.lexists(f"{container.bundle}/{rundir.OOM}"):  # conmon(8) puts it there
            rundir.write(directory, rundir.OOM, b"")
        _keep_ledger(directory, tool)
    except (OSError, Refused) as error:
        _leave_word(directory, error)
    finally:
        deadline.lift()
        rundir.forget_secrets(directory)
        netns.unpin(directory=directory.fd, name=rundir.NETNS)
        if rundir.exists(directory, rundir.OUTER):
            from hooks import outer  # only a card on a bridge has an outer table

            outer.remove(directory)
    return 0


def _leave_word(directory: rundir.RunDirectory, error: "OSError | Refused") -> None:
    """Say why there is no ledger, on standard error and in unread.json; a full disk costs the words."""
    deadline.lift()
    refusals = error.refusals if isinstance(error, Refused) else (Refusal("hook-failed", str(error)),)
    for refusal in refusals:
        lastword.say(f"{refusal}\n".encode("utf-8", "replace"))
    content = {"refusals": [refusal.to_json() for refusal in refusals]}
    try:
        rundir.write(directory, rundir.UNREAD, strictjson.dump(content).encode())
    except OSError:
        return


def _compare(pin: int, directory: rundir.RunDirectory) -> None:
    """Raise Refused (`netns-mismatch`) when the namespace is not the one that prestart recorded."""
    try:
        result: "Any" = strictjson.parse(rundir.read(directory, rundir.HOOK))
        recorded = result["facts"]["netns"]
    except (ValueError, KeyError, TypeError):
        recorded = None
    if netns.inode(pin) != recorded:
        text = f"the pinned network namespace is not the one that was walled ({recorded})"
        raise Refused([Refusal("netns-mismatch", text)])


def _keep_ledger(directory: rundir.RunDirectory, tool: "Callable[[], nft.Nft | Context]") -> None:
    """Write ledger.json from the pinned namespace; without a pin there is nothing to read, and nothing is written.

    A namespace that is not the one that prestart recorded is not entered. Raises OSError or Refused, and then there is
    no ledger.
    """
    pin = netns.open_pin(directory=directory.fd, name=rundir.NETNS)
    if pin is None:
        return
    try:
        _compare(pin, directory)
        netns.setns(pin)
        listing = nft.list_table("inet", TABLE_PREFIX + directory.run, tool())
        found = ledger.parse(listing, self_tests=rundir.self_tests(directory.fd))
    finally:
        os.close(pin)
    rundir.write(directory, rundir.LEDGER, strictjson.dump(found.to_json()).encode())
