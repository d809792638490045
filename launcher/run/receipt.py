"""The receipt: what was really enforced, written after it was measured (DESIGN "Receipt and output").

A guarantee is a bit, true only when this run measured it; what is not claimed is listed in words.
"""

from launcher.launch import Launch
from launcher.life.record import Record
from launcher.plan import Plan
from launcher.run import decided
from launcher.value import Value
from oci.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any
else:
    Any = object

SCHEMA = 1
# How a run ended: by itself, or without the card-run that would have known.
EXITED, TIMED_OUT, OUT_OF_MEMORY, ABANDONED, UNATTENDED = (
    "exited",
    "timed-out",
    "out-of-memory",
    "abandoned",
    "unattended",
)
_KILLED = 137
NON_CLAIMS = (
    "target_network: the egress wall lists addresses; a name that shares an address with a listed one is reachable",
    "target_network: a listed host may relay or store what the worker sends it",
    "metadata of a path (stat, chmod, xattr) is not checked by Landlock: mounts and ownership are the wall there",
    "EXECUTE without noexec is hygiene: a loader, an interpreter or a memfd can run what can be read",
    "names of the card's own directories can be listed",
    "what a worker leaves in a writable directory acts when it is used there: a Makefile, a git directory of its own",
    "a git directory of the worker's own, which git enters by itself: nested, bare, or a submodule of the index",
    "git on the bench in a checkout that the card may write meanwhile: commondir sends it to a config of the worker's",
    "a grant to write a file writes every other name (hard link) of it",
    "a Unix socket in a root that listens later, or another user's in a network namespace of its own, can be reached",
    "cards that share a write root can reach each other by it, and pass each other open descriptors and connections",
    "traffic on the card's own loopback is not judged",
    "DNS to the card's resolver carries the listed names only, but their timing and order are the worker's to choose",
    "a DNS question is judged whole, but may leave as several datagrams (UDP_SEGMENT): where it is cut is the worker's",
    "processes of one card can set each other's limits and scheduling, and end each other so: the worker and an exec",
)
FULL = ("process_boundary", "write_boundary", "read_boundary", "env_scrub", "network_boundary", "address_network")


class Measured(Value):
    """What the run itself reported: the hook's result, stage 2's report, the ledger, times and the exit status.

    `unread` is why there is no ledger, where the hook that reads it said so.
    """

    hook: dict[str, Any]
    stage2: dict[str, str]
    outer: dict[str, Any] | None = None
    ledger: dict[str, Any] | None = None
    unread: tuple[Refusal, ...] = ()
    times_ms: dict[str, float]
    started_ms: float = 0.0
    exit_status: int | None = None
    signalled: bool = False
    oom: bool = False
    timed_out: bool = False


def guarantees(measured: Measured, expected: dict[str, str]) -> dict[str, bool]:
    """Return each guarantee, true only where the hook or stage 2 saw it hold on this run."""
    inside, hook = measured.stage2, measured.hook
    landlock = inside.get("backend") == "landlock" and int(inside.get("used", "0")) > 0
    walled = hook.get("status") == "ok" and inside.get("proof") == "ok"
    felt = walled and inside.get("egress") == "ok"
    process = all(
        (
            inside.get("lifeline") == "armed",
            inside.get("no_new_privs") == "1",
            inside.get("caps") == "none",
            inside.get("seccomp_mode") == "2",
            inside.get("seccomp_denied") == "EPERM",
            inside.get("user_namespace") == "own",
        )
    )
    return {
        "process_boundary": process,
        "write_boundary": landlock and inside.get("write_outside") == "EACCES",
        "read_boundary": landlock and inside.get("read_outside") == "EACCES",
        "env_scrub": inside.get("env") == "scrubbed",
        "network_boundary": felt,
        "address_network": felt and bool(hook.get("facts")),
        "target_network": False,
        "resource_limits": bool(expected) and all(inside.get(name) == value for name, value in expected.items()),
    }


def shortfall(plan: Plan, measured: Measured) -> list[Refusal]:
    """Return why the worker may not be released: empty only when this run measured all that a run must have."""
    return lacking(measured, digest=plan.digest, expected=plan.launch.limits.expected())


def lacking(measured: Measured, *, digest: str, expected: dict[str, str]) -> list[Refusal]:
    """Return what was not measured of a plan, by its digest, and of the limits that it must hold to."""
    hook = measured.hook
    digests = (hook.get("facts", {}).get("digest"), measured.stage2.get("digest"))
    if hook.get("status") != "ok" or digests != (digest, digest):
        text = "the hook's own result and the proof do not both say that this plan was passed"
        return [Refusal("hook-unproven", text)]
    bits = guarantees(measured, expected)
    missing = [name for name in FULL if not bits[name]]
    missing += ["resource_limits"] if expected and not bits["resource_limits"] else []
    return [Refusal("not-enforced", f"not measured on this run: {', '.join(missing)}")] if missing else []


def how(measured: Measured) -> str:
    """Return how the worker's end came about; a process beside it that memory ran out for does not count."""
    if measured.timed_out:
        return TIMED_OUT
    return OUT_OF_MEMORY if measured.oom and measured.exit_status == _KILLED else EXITED


def level(bits: dict[str, bool]) -> str:
    """Return full, degraded or none."""
    if all(bits[name] for name in FULL):
        return "full"
    return "degraded" if any(bits.values()) else "none"


def enforced(plan: Plan, measured: Measured) -> dict[str, Any]:
    """Return the level and each guarantee, as plain data for JSON."""
    bits = guarantees(measured, plan.launch.limits.expected())
    return {"level": level(bits), "guarantees": bits}


def _access(launch: Launch) -> dict[str, Any]:
    """Return what each wall made of the profile that the run was held to, and what grants opened."""
    if launch.bounds is None:
        return {}
    from launcher.access import compiled
    from launcher.grants import opening

    bounds, opened = launch.bounds, launch.asked.opened
    return {
        "features": [row.as_dict() for row in compiled.compiled(bounds.profile)],
        "grants": [opening.shown(grant) for grant in opened.grants] if opened else [],
    }


def build(plan: Plan, measured: Measured, record: Record, *, ended: float) -> dict[str, Any]:
    """Return the receipt as plain data for JSON; `ended` is in seconds since the epoch."""
    launch = plan.launch
    return {
        "schema": SCHEMA,
        "run": launch.run,
        "card": record.card,
        "detached": record.detached,
        "started": record.started,
        "ended": ended,
        "how": how(measured),
        "start": {"kind": "warm" if launch.cold is None else "cold", "reason": launch.cold},
        "oom": measured.oom,
        "timed_out": measured.timed_out,
        "plan_digest": plan.digest,
        "image": launch.image,
        "command": list(launch.command),
        "user": launch.user,
        "net": launch.net,
        **enforced(plan, measured),
        "non_claims": list(NON_CLAIMS),
        "bench": {"documentation_ranges": plan.bench.documentation_ranges, "benches": list(plan.bench.benches)},
        "policy": launch.policy_path,
        "worker": decided.worker(launch),
        "files": decided.files(launch),
        "access": {**decided.access(launch), **_access(launch)},
        "resolver": {"servers": list(launch.nameservers.servers), "source": launch.nameservers.source},
        "pins": {
            name: {
                "addresses": list(plan.egress.pins[name]),
                "chain": list(plan.answers[name].chain),
                "source": plan.answers[name].source,
            }
            for name in launch.names
        },
        "filesystem": [{"access": root.access, "path": root.path} for root in launch.filesystem.roots],
        "notes": list(launch.notes),
        "hook": measured.hook,
        "stage2": measured.stage2,
        "outer": measured.outer,
        "ledger": measured.ledger,
        "ledger_refusals": [refusal.to_json() for refusal in measured.unread],
        "times_ms": measured.times_ms,
        "started_ms": measured.started_ms,
        "exit_status": measured.exit_status,
    }
