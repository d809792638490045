"""The second half of a plan: pins for the launch's names, judged, and every text that the run is made of.

Pure but for reading the bench's own addresses: it can be printed, tested and audited without a kernel. The plan's
digest is that of `plan.json`'s bytes, which the hook checks and the proof repeats.
"""

import os

from hooks import ruleset
from hooks.egress import NETNS, Egress, Selector
from hooks.plan import sha256
from launcher.bench import Bench
from launcher.egress import addresses
from launcher.egress.answers import Answer
from launcher.fs.policy import PRIVATE
from launcher.launch import Launch
from launcher.network import BRIDGE, NONE
from launcher.run.command import INTERFACE
from launcher.value import Value
from oci import probes, records, strictjson
from oci.refusal import Refusal, Refused

SCHEMA = 1
ADDRESS_LIMIT = 8192


class Plan(Value):
    """Everything decided before the worker is released. `pins` maps each name to its judged addresses."""

    launch: Launch
    bench: Bench
    answers: dict[str, Answer]
    egress: Egress
    table: str
    nonce: str
    json: bytes
    digest: str


def complete(
    launch: Launch,
    *,
    bench: Bench,
    answers: dict[str, Answer],
    own: tuple[tuple[str, str], ...],
    bundle: dict[str, object],
) -> Plan:
    """Return the whole plan; raises Refused with every name and address that cannot be pinned.

    `own` are (CIDR, reason) pairs for the bench's own addresses; `bundle` is what the hook must find in config.json.
    """
    egress = wall(launch, bench=bench, answers=answers, own=own, selector=Selector(NETNS))
    table = ruleset.render(egress)
    nonce = os.urandom(16).hex()
    content = {
        "schema": SCHEMA,
        "run": launch.run,
        "launch": launch.token,
        "nonce": nonce,
        "egress": egress.to_json(),
        "bundle": bundle,
        "start": launch.bounds.profile.command if launch.bounds else "allow",
        "granted": bool(launch.asked.opened and launch.asked.opened.grants),
        # For `card exec`: what it starts has the worker's own, and must be held to them.
        "home": dict(launch.env)["HOME"],
        "limits": launch.limits.expected(),
    }
    data = strictjson.dump(content).encode()
    return Plan(
        launch=launch,
        bench=bench,
        answers=answers,
        egress=egress,
        table=table,
        nonce=nonce,
        json=data,
        digest=sha256(data),
    )


def wall(
    launch: Launch,
    *,
    bench: Bench,
    answers: dict[str, Answer],
    own: tuple[tuple[str, str], ...],
    selector: Selector,
) -> Egress:
    """Return the egress value of a launch for a placement; raises Refused with all that cannot be pinned."""
    ranges = own + tuple((cidr, "another bench") for cidr in bench.benches)
    pins, refusals = _pins(launch, bench, answers, ranges)
    if refusals:
        raise Refused(refusals)
    denied = dict.fromkeys(bench.benches, "bench")
    return Egress(run=launch.run, selector=selector, pins=pins, dns=launch.dns, denied=denied)


def _pins(
    launch: Launch, bench: Bench, answers: dict[str, Answer], ranges: tuple[tuple[str, str], ...]
) -> tuple[dict[str, tuple[str, ...]], list[Refusal]]:
    """Judge every address of every name: one bad record refuses the plan, so that a poisoned resolver fails closed."""
    pins: dict[str, tuple[str, ...]] = {}
    refusals: list[Refusal] = []
    for name in launch.names:
        answer = answers[name]
        if answer.failure:
            refusals.append(Refusal("name-unresolved", f"{name} {answer.failure}", _asked(launch)))
            continue
        good: list[str] = []
        for text in answer.addresses:
            try:
                address = addresses.unwrap(text)
            except ValueError as error:
                refusals.append(Refusal("address-denied", f"{name} answers no address: {error}", answer.source))
                continue
            why = addresses.why_denied(address, documentation=bench.documentation_ranges, ranges=ranges)
            if why:
                said = f"{name} answers {text}" + (f", which is {address}" if str(address) != text else "")
                refusals.append(Refusal("address-denied", f"{said}: {why}", "the resolver may be poisoned"))
            else:
                good.append(str(address))
        pins[name] = tuple(dict.fromkeys(good))
    total = len({address for pinned in pins.values() for address in pinned})
    if total > ADDRESS_LIMIT:
        text = f"the names have {total} addresses, more than {ADDRESS_LIMIT}"
        refusals.append(Refusal("too-many-addresses", text, "list fewer names"))
    return pins, refusals


def _asked(launch: Launch) -> str:
    return f"asked {', '.join(launch.nameservers.servers)} ({launch.nameservers.source})"


def hosts(plan: Plan) -> str:
    """Return the card's /etc/hosts (hosts(5)): itself and its pins, nothing of the bench's own file."""
    lines = ["127.0.0.1 localhost card", "::1 localhost card"]
    lines += [f"{address} {name}" for name in plan.launch.names for address in plan.egress.pins[name]]
    return "\n".join(lines) + "\n"


def resolv_conf(plan: Plan) -> str:
    """Return the card's /etc/resolv.conf: its one DNS address, absolute names first, no search domain."""
    server = f"nameserver {plan.launch.dns}\n" if plan.launch.dns else ""
    return f"{server}search .\noptions ndots:1 timeout:2 attempts:2\n"


def stage2_conf(plan: Plan) -> bytes:
    """Return what stage 2 reads at /run/card/stage2.conf, as records."""
    launch = plan.launch
    items = [
        ("schema", str(SCHEMA)),
        ("run", launch.run),
        ("network", str(int(launch.net != NONE))),
        ("route4", str(int(launch.route4))),
        ("route6", str(int(launch.route6))),
        ("cwd", launch.filesystem.cwd),
        ("landlock", launch.landlock),
        ("loopback", "1"),
        ("outside", "/"),
        ("port", str(probes.PROBE_PORT)),
    ]
    items += [("link", INTERFACE)] if launch.net == BRIDGE else []
    items += [("probe4", address) for address in probes.PROBE_ADDRESSES4]
    items += [("probe6", address) for address in probes.PROBE_ADDRESSES6]
    items += [(root.access, root.path) for root in launch.filesystem.roots]
    items += [("identity", f"{root.device}:{root.inode}:{root.path}") for root in launch.filesystem.roots]
    items += [("identity", f"{device}:{inode}:{path}") for device, inode, path in launch.filesystem.judged]
    items += [("identity", f"{one.device}:{one.inode}:{one.path}") for one in launch.kept]
    items += [("closed", path) for path in launch.filesystem.closed]
    items += [("hidden", path) for _, path in launch.filesystem.hidden]
    items += [("measure", name.removeprefix("limit_")) for name in launch.limits.expected()]
    if launch.limits.nofile is not None:
        items.append(("rlimit", f"NOFILE:{launch.limits.nofile}:{launch.limits.nofile}"))
    items += [("private", path) for path in PRIVATE]
    items += [("argv", word) for word in launch.command]
    return records.dump(items)
