"""From a launch to a plan: ask the bench's hosts file and resolver, and judge what they answer."""

from hooks.egress import Egress, Selector
from launcher import plan
from launcher.bench import Bench
from launcher.egress import own
from launcher.egress.answers import Answer, Resolver
from launcher.launch import Launch
from launcher.plan import Plan

HOSTS = "/etc/hosts"


def finish(launch: Launch, bench: Bench, *, bundle: dict[str, object], asked: Resolver | None = None) -> Plan:
    """Return the whole plan; raises Refused with every name and address that cannot be pinned.

    `bundle` is what the hook must find in the bundle's config.json.
    """
    answers = ask(launch, asked or resolver(launch)) if launch.names else {}
    return plan.complete(launch, bench=bench, answers=answers, own=own.addresses(), bundle=bundle)


def wall(launch: Launch, bench: Bench, selector: Selector) -> Egress:
    """Return the wall of a launch for a placement; raises Refused with every name and address that cannot be pinned."""
    answers = ask(launch, resolver(launch)) if launch.names else {}
    return plan.wall(launch, bench=bench, answers=answers, own=own.addresses(), selector=selector)


def resolver(launch: Launch) -> Resolver:
    """Return the resolver that a launch names, for the families that have a route."""
    from launcher.egress.resolver import DnsResolver  # 70 ms, and a card without a network asks nothing

    families = (["A"] if launch.route4 or not launch.route6 else []) + (["AAAA"] if launch.route6 else [])
    return DnsResolver(launch.nameservers.servers, timeout=launch.resolve_timeout, families=tuple(families))


def ask(launch: Launch, asked: Resolver) -> dict[str, Answer]:
    """Return an answer for each name: from the bench's hosts file where that lists it, else from the resolver."""
    local = _from_hosts(launch)
    left = [name for name in launch.names if name not in local]
    return {**local, **(asked.resolve(left) if left else {})}


def _from_hosts(launch: Launch) -> dict[str, Answer]:
    """Read hosts(5): what the bench itself would use for a name before it asks any resolver."""
    found: dict[str, list[str]] = {}
    try:
        with open(HOSTS, encoding="utf-8", errors="replace") as file:
            lines = [line.partition("#")[0].split() for line in file]
    except OSError:
        return {}
    for address, *names in filter(None, lines):
        for name in {name.lower().removesuffix(".") for name in names}.intersection(launch.names):
            found.setdefault(name, []).append(address)
    return {name: Answer(addresses=tuple(dict.fromkeys(addresses)), source=HOSTS) for name, addresses in found.items()}
