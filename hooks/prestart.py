"""The prestart hook: build the egress wall in a created container's network namespace, then vouch for it.

The order is the rule: nothing is loaded that was not audited, nothing is vouched for that was not read back from the
kernel, and the proof without which stage 2 starts no worker is written last, after our own result. Any failure ends
with exit status 1 (the runtime then tears the container down), the reasons in hook.json, and no proof or pin of this
attempt. The table is left: it dies with the container's namespace, and until then it denies.
"""

import time

from hooks import audit, bundle, deadline, lastword, netns, nft, plan, rundir
from hooks.egress import NETNS, Egress
from oci import records, state, strictjson
from oci.refusal import Refusal, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from hooks.libnft import Context

    Told = nft.Nft | Context


class Clock:
    """Milliseconds per phase, and whose they are."""

    __slots__ = ("_last", "_start", "by", "started", "times")

    def __init__(self, by: str = "hook") -> None:
        self.by = by
        self._start = self._last = time.perf_counter()
        self.started = round(time.monotonic() * 1000, 2)
        self.times: "dict[str, float]" = {}

    def phase(self, name: str) -> None:
        """End a phase."""
        now = time.perf_counter()
        self.times[name] = round((now - self._last) * 1000, 3)
        self._last = now

    def total(self) -> "dict[str, float]":
        """Return every phase and the whole."""
        return {**self.times, "total": round((time.perf_counter() - self._start) * 1000, 3)}


class Ready:
    """What needs no container: this run's plan, and the text of its table, which keeps every promise of that plan."""

    __slots__ = ("directory", "plan", "text")

    def __init__(self, directory: rundir.RunDirectory, clock: "Clock | None" = None) -> None:
        """Read and audit; raises Refused when the text may not be loaded. The launcher must have let go of the plan."""
        clock = clock or Clock()
        self.directory = rundir.identity(directory)
        self.plan = plan.parse(rundir.read(directory, rundir.PLAN))
        self.text = rundir.read(directory, rundir.TABLE).decode("utf-8", "surrogateescape")
        clock.phase("plan")
        judge(self.text, self.plan.egress)
        clock.phase("audit")


class Means:
    """Who does the hook's work, and with what: the name for the receipt, and what makes a thing to tell nft's text.

    `wanted` says whether the runtime still waits for the hook: as long as it does, the container's pid is the
    container's. An ordinary hook is killed when the runtime loses patience, and need not ask.
    """

    __slots__ = ("by", "tool", "wanted")

    def __init__(
        self,
        by: str = "hook",
        *,
        tool: "Callable[[], Told]" = nft.Nft,
        wanted: "Callable[[], bool]" = lambda: True,
    ) -> None:
        self.by = by
        self.tool = tool
        self.wanted = wanted


def run(stdin: int, ready: "Ready | None" = None, means: "Means | None" = None) -> int:
    """Run the hook on the state that descriptor `stdin` gives; return the exit status, 0 only when the wall stands.

    `ready` is what was read ahead; of another run directory than the container's, it is left alone. `means` are
    the ordinary hook's where they are left out.
    """
    means = means or Means()
    clock = Clock(means.by)
    container = None
    try:
        deadline.allow(deadline.STATE_SECONDS, "reading the container's state")
        container = state.read(stdin)
        deadline.lift()
        directory = rundir.find(container)
    except (Refused, OSError) as error:
        lastword.tell(error, container)
        return 1
    if ready is not None and ready.directory != rundir.identity(directory):
        ready = None
    try:
        _build(container, directory, clock, ready, means)
    except Refused as error:
        report(directory, clock, refusals=error.refusals)
    except OSError as error:
        report(directory, clock, refusals=(Refusal("hook-failed", str(error)),))
    except Exception as error:  # noqa: BLE001 - standard output and error go nowhere: a bug must reach hook.json too
        report(directory, clock, refusals=(Refusal("hook-bug", _traceback(error)),))
    else:
        return 0
    return 1


def _build(
    container: state.State,
    directory: rundir.RunDirectory,
    clock: Clock,
    ready: "Ready | None",
    means: Means,
) -> None:
    rundir.wait_for_plan(directory)
    deadline.allow(deadline.BUILD_SECONDS, "building the table")
    card = rundir.open_card(directory)
    rundir.refuse_consumed(card)
    clock.phase("wait")
    namespace = _enter(container, means)
    # Where they are processes, both start up, which is half of their cost, while the plan is read and the text audited.
    with means.tool() as loader, means.tool() as lister:
        clock.phase("enter")
        ready = ready or Ready(directory, clock)
        wanted = ready.plan
        plan.match(wanted, container)
        bundle.check(container, wanted.bundle)
        clock.phase("bundle")
        facts = apply(ready.text, wanted.egress, loader, lister, clock)
    _pin(directory, namespace)
    clock.phase("pin")
    try:
        more: "dict[str, object]" = {"netns": netns.inode(namespace), "digest": wanted.digest}
        more |= {"container": container.id, "pid": container.pid}
        report(directory, clock, facts=facts.to_json() | more)
        deadline.lift()
        rundir.write_proof(card, proof(wanted, namespace, facts))
    except BaseException:
        netns.unpin(directory=directory.fd, name=rundir.NETNS)
        raise


def wall(  # noqa: PLR0913 - what it takes to load a table and read it back
    text: str, egress: Egress, loader: "Told", lister: "Told", clock: Clock, *, first: str = ""
) -> audit.Facts:
    """Judge a text and `apply` it."""
    judge(text, egress)
    clock.phase("audit")
    return apply(text, egress, loader, lister, clock, first=first)


def judge(text: str, egress: Egress) -> None:
    """Raise Refused unless the text keeps every promise of the plan's egress for a card's own namespace."""
    if egress.selector.kind != NETNS:
        raise Refused([Refusal("wrong-placement", f"a card's own namespace is not walled by {egress.selector.kind}")])
    audit.audit(text, egress)


def apply(  # noqa: PLR0913 - what it takes to load a table and read it back
    text: str, egress: Egress, loader: "Told", lister: "Told", clock: Clock, *, first: str = ""
) -> audit.Facts:
    """Load a text that was judged, after the commands in `first`, as one transaction; return the kernel's facts."""
    nft.load(first + text, loader)
    clock.phase("load")
    listing = nft.list_table("inet", egress.table, lister)
    clock.phase("list")
    facts = audit.audit(listing, egress)
    clock.phase("audit_listing")
    return facts


def _enter(container: state.State, means: Means) -> int:
    """Move this process into the container's network namespace; return a descriptor of it.

    Raises Refused: `no-pid` (nothing to enter), `hook-abandoned` (nobody waits any more), `host-netns` (the container
    has the bench's own network: a table that denies all but lo would wall in the bench).
    """
    if container.pid <= 0:
        raise Refused([Refusal("no-pid", f"the container is {container.status} and has no process")])
    try:
        fd = netns.open_of(container.pid)
    except FileNotFoundError:
        if not means.wanted():
            raise _abandoned() from None
        raise Refused([Refusal("no-pid", f"process {container.pid} of the container is gone")]) from None
    if not means.wanted():  # asked after the descriptor was opened: then it is of the container's process
        raise _abandoned()
    if netns.is_own(fd):
        raise Refused([Refusal("host-netns", "the container shares the bench's network", "use --net pasta or none")])
    netns.setns(fd)
    return fd


def _abandoned() -> Refused:
    return Refused([Refusal(rundir.ABANDONED, "the runtime gave this hook up", "is the bench overloaded?")])


def _pin(directory: rundir.RunDirectory, namespace: int) -> None:
    try:
        netns.pin(namespace, directory=directory.fd, name=rundir.NETNS)
    except FileExistsError:
        raise rundir.consumed() from None


def proof(wanted: plan.Plan, namespace: int, facts: audit.Facts) -> bytes:
    """Return what stage 2 wants to see: of which plan, start and network it is, and what was found in the kernel."""
    return records.dump(
        [
            ("run", wanted.run),
            ("digest", wanted.digest),
            ("nonce", wanted.nonce),
            ("netns", str(netns.inode(namespace))),
            ("table", wanted.egress.table),
            *((name, str(getattr(facts, name))) for name in ("allow", "deny", "names")),
        ]
    )


def report(
    directory: rundir.RunDirectory,
    clock: Clock,
    *,
    refusals: "tuple[Refusal, ...]" = (),
    facts: "dict[str, object] | None" = None,
) -> None:
    """Write hook.json, and refusals to standard error too, which the card's hook.log keeps.

    A second start only says so there: what the run's own start came to stays.
    """
    deadline.lift()
    for refusal in refusals:
        lastword.say(f"{refusal}\n".encode("utf-8", "replace"))
    again = [refusal.reason for refusal in refusals] == [rundir.CONSUMED]
    if again and rundir.exists(directory, rundir.HOOK):
        return
    result: "dict[str, object]" = {
        "status": "refused" if refusals else "ok",
        "by": clock.by,
        "refusals": [refusal.to_json() for refusal in refusals],
        "times_ms": clock.total(),
        "started_ms": clock.started,
        "facts": facts or {},
    }
    rundir.write(directory, rundir.HOOK, strictjson.dump(result).encode())


def _traceback(error: BaseException) -> str:
    import traceback

    return "".join(traceback.format_exception(error))
