"""`card egress`: plan, apply, remove, list and audit tables on the bench's own side."""

import json
import sys
from typing import Annotated, Any

import typer

from hooks import ruleset
from hooks.egress import NETDEV, UID, VETH, Egress, Selector
from launcher import bench, bench_tables, launch, pins
from launcher.request import Request
from launcher.run import output
from oci.refusal import Refusal, Refused

app = typer.Typer(help="Tables on the bench's own side, for a uid or a veth (root).", no_args_is_help=True)

Run = Annotated[str, typer.Option("--run", help="run id, the name of its table")]
Uid = Annotated[int | None, typer.Option("--uid", help="judge what this user sends")]
Veth = Annotated[str | None, typer.Option("--veth", help="judge what comes in by this routed veth")]
Netdev = Annotated[str | None, typer.Option("--netdev", help="judge what comes in by this veth, which a bridge has")]
Dns = Annotated[str | None, typer.Option("--dns", help="the DNS server it may ask; without it, DNS is closed")]
Hosts = Annotated[list[str] | None, typer.Option("--allow-host", help="a host from the policy file")]
Model = Annotated[str | None, typer.Option("--model-host", help="the model host, from the policy file")]
Policy = Annotated[str | None, typer.Option("--egress", help="the policy file")]
Resolver = Annotated[str | None, typer.Option("--resolver", help="ask this DNS server")]


def _value(  # noqa: PLR0913 - the options of two verbs
    *,
    run: str,
    uid: int | None,
    veth: str | None,
    netdev: str | None,
    dns: str | None,
    allow_host: list[str] | None,
    model_host: str | None,
    egress: str | None,
    resolver: str | None,
) -> Egress:
    """Return the wall that the options mean; raises Refused with everything that is wrong with them."""
    request = Request(
        command=("-",),
        run=run,
        model_host=model_host,
        allow_host=tuple(allow_host or ()),
        egress=egress,
        resolver=resolver,
    )
    judged, refusals = launch.judge(request, bench_bounds=False)
    settings, wrong = bench.read()
    given = {UID: None if uid is None else str(uid), VETH: veth, NETDEV: netdev}
    selectors = [(kind, value) for kind, value in given.items() if value is not None]
    refusals += wrong + _one_selector(selectors)
    if refusals:
        raise Refused(refusals)
    selector = Selector(*selectors[0])
    return pins.wall(judged.replace(dns=dns), settings, selector)


def _one_selector(selectors: list[tuple[str, str]]) -> list[Refusal]:
    if len(selectors) == 1:
        return []
    text = "a table on the bench needs one of --uid, --veth and --netdev: without one it would wall in the bench"
    return [Refusal("no-selector", text)]


@app.command("plan")
def show(  # noqa: PLR0913 - one parameter an option
    *,
    run: Run,
    uid: Uid = None,
    veth: Veth = None,
    netdev: Netdev = None,
    dns: Dns = None,
    allow_host: Hosts = None,
    model_host: Model = None,
    egress: Policy = None,
    resolver: Resolver = None,
) -> None:
    """Print the table and apply nothing."""
    sys.stdout.write(ruleset.render(_value(**locals())))


@app.command()
def apply(  # noqa: PLR0913 - one parameter an option
    *,
    run: Run,
    uid: Uid = None,
    veth: Veth = None,
    netdev: Netdev = None,
    dns: Dns = None,
    allow_host: Hosts = None,
    model_host: Model = None,
    egress: Policy = None,
    resolver: Resolver = None,
) -> None:
    """Load the table in one transaction that replaces only its own, read it back and audit it.

    Example: card egress apply --run ci7 --uid 2007 --dns 192.0.2.53
    """
    facts = bench_tables.apply(_value(**locals()))
    output.say(f"EGRESS OK table={facts.table} allow={facts.allow} deny={facts.deny} names={facts.names}")


@app.command()
def remove(run: str) -> None:
    """Remove a run's table; harmless when there is none."""
    bench_tables.remove(run)


@app.command("list")
def list_runs(*, as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False) -> None:
    """List the runs with a table on the bench, and what each used and was denied."""
    for run, egress in bench_tables.recorded().items():
        row = _row(run, egress)
        if as_json:
            sys.stdout.write(json.dumps(row) + "\n")
        else:
            words = (f"{row[name]}" for name in ("run", "selector", "state", "used_packets", "denied_packets"))
            sys.stdout.write("  ".join(f"{word:20}" for word in words).rstrip() + "\n")


def _row(run: str, egress: Egress) -> dict[str, Any]:
    row: dict[str, Any] = {"run": run, "selector": f"{egress.selector.kind}={egress.selector.value}"}
    try:
        _, found = bench_tables.live(egress)
    except Refused as error:
        return {**row, "state": error.refusals[0].reason, "used_packets": 0, "denied_packets": 0}
    counts = {
        "used_packets": sum(entry.packets for entry in found.used),
        "denied_packets": sum(entry.packets for entry in found.denied),
    }
    return {**row, "state": "in force", **counts, **found.to_json()}


@app.command()
def audit(run: str) -> None:
    """Read a run's table from the kernel and judge it against what was applied; exit 1 when it differs."""
    egress = bench_tables.recorded().get(run)
    if egress is None:
        raise Refused([Refusal("no-such-run", f"no table of a run called {run} was applied here")])
    try:
        facts, _ = bench_tables.live(egress)
    except Refused as error:
        for one in error.refusals:
            output.say(f"EGRESS DIFFERS {one.reason} {one.text}")
        raise typer.Exit(1) from None
    output.say(f"EGRESS OK table={facts.table} allow={facts.allow} deny={facts.deny} names={facts.names}")
