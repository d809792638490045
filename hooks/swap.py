"""The swap: a warm card's table that denies all becomes the table of the run that takes the card.

Done by a process that stands in the card's network namespace, with the library's contexts made ahead. The rule is the
prestart hook's, whose code it is: nothing is loaded that was not audited, nothing is vouched for that was not read back
from the kernel, and the proof is written last, once. The old table goes in the very transaction that brings the new one
(nft(8)), so no packet meets none; its counters go with it.
"""

import os

from hooks import netns, plan, prestart, rundir
from oci import state
from oci.refusal import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hooks.egress import Egress
    from hooks.libnft import Context


def run(container: state.State, namespace: int, loader: "Context", lister: "Context") -> None:
    """Swap the table by the plan that now lies in the run directory; hook.json and the second proof then say so.

    `namespace` is an open descriptor of the network namespace that this process is in. Raises Refused or OSError; there
    is no second proof then, and the reasons are in hook.json.
    """
    clock = prestart.Clock()
    directory = rundir.find(container)
    try:
        _run(container, namespace, directory, (loader, lister), clock)
    except Refused as error:
        prestart.report(directory, clock, refusals=error.refusals)
        raise
    finally:
        os.close(directory.fd)


def _run(
    container: state.State,
    namespace: int,
    directory: rundir.RunDirectory,
    contexts: "tuple[Context, Context]",
    clock: prestart.Clock,
) -> None:
    card = rundir.open_card(directory)
    rundir.refuse_consumed(card, name=rundir.TAKEN)
    wanted = plan.parse(rundir.read(directory, rundir.PLAN))
    plan.match(wanted, container)
    text = rundir.read(directory, rundir.TABLE).decode("utf-8", "surrogateescape")
    clock.phase("plan")
    facts = prestart.wall(text, wanted.egress, *contexts, clock, first=_replacing(wanted.egress))
    more: "dict[str, object]" = {"netns": netns.inode(namespace), "digest": wanted.digest}
    more |= {"container": container.id, "pid": container.pid}
    prestart.report(directory, clock, facts=facts.to_json() | more)
    rundir.write_proof(card, prestart.proof(wanted, namespace, facts), name=rundir.TAKEN)
    os.close(card)


def _replacing(egress: "Egress") -> str:
    """Return what makes the table go whether it is there or not: nft 1.0.6 has no `destroy`."""
    name = f"table inet {egress.table}"
    return f"{name} {{}}\ndelete {name}\n"
