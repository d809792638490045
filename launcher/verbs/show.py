"""`card show`: all that is known of a run, while it lives from its directory and the kernel, then from its receipt."""

import contextlib
import json
import shlex
import sys
from typing import Annotated, Any

import typer

from hooks import plan as hooks_plan
from hooks import rundir
from launcher import live
from launcher.fs.paths import FLAG
from launcher.life import kept, runs
from launcher.life.runs import Ended, Run
from launcher.run import output
from launcher.run.directory import RELEASED, STAGE2_DIRECTORY
from launcher.verbs import human, named, ps
from oci import records
from oci.refusal import Refused


def show(
    run: Annotated[list[str], typer.Argument(help="run ids", autocompletion=named.complete_any)],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON, the receipt whole")] = False,
) -> None:
    """Show runs, those that ended too: what was started, what is enforced, what was denied, how it ended.

    Example: card show $run --json | jq .guarantees
    """
    told = [_living(one) if isinstance(one, Run) else _ended(one) for one in named.any_of(run)]
    texts = [json.dumps(one, indent=2, sort_keys=True) + "\n" if as_json else _text(one) for one in told]
    sys.stdout.write(("" if as_json else "\n").join(texts))


def _living(one: Run) -> dict[str, Any]:
    """Return what a run's directory and the kernel tell: the receipt's own names, where they are known already."""
    content: dict[str, Any] = {"run": one.run, "state": one.state, "container": one.container}
    if one.record is not None:
        content |= {name: value for name, value in one.record.as_dict().items() if name != "launcher"}
        content["launcher"] = one.record.launcher.pid if one.record.launcher else None
    content |= one.read(RELEASED) or {}
    content["hook"] = one.read(rundir.HOOK)
    with contextlib.suppress(OSError, Refused), open(f"{one.path}/{rundir.PLAN}", "rb") as file:
        pins = hooks_plan.egress_of(file.read()).pins
        content["pins"] = {name: {"addresses": list(addresses)} for name, addresses in pins.items()}
    content["filesystem"] = _roots(one)
    if one.state == runs.ENDING:
        content["ledger"] = one.read(rundir.LEDGER)
    if one.state in {runs.RUNNING, runs.UNATTENDED}:
        try:
            found = live.read_all([one]).get(one.run)
            content["ledger"] = found.to_json() if found else None
        except Refused as error:
            output.say(f"NOTE what was denied is not known: {error.refusals[0].text}")
    return content


def _roots(one: Run) -> list[dict[str, str]]:
    """Return what the worker was given, as stage 2 reads it: the receipt's own rows; none before they are written."""
    try:
        with open(f"{one.path}/{STAGE2_DIRECTORY}/stage2.conf", "rb") as file:
            told = records.load(file.read())
    except (OSError, ValueError):
        return []
    return [{"access": access, "path": path} for access in FLAG for path in told.get(access, ())]


def _ended(one: Ended) -> dict[str, Any]:
    return {"state": "ended", "ended": one.kept, **(one.receipt() or {"run": one.run})}


def _text(told: dict[str, Any]) -> str:
    """Return a run as a person reads it."""
    container: str = told.get("container") or ""
    launcher: int | None = told.get("launcher")
    guarantees: dict[str, bool] = told.get("guarantees") or {}
    pairs: list[tuple[str, str]] = [
        ("run", str(told["run"])),
        ("card", told.get("card") or ""),
        ("state", ps.state({"exit_status": None, **told})),
        ("started", human.moment(told["started"]) if told.get("started") else ""),
        ("command", output.printable(shlex.join(told.get("command") or ()))),
        ("image", told.get("image") or ""),
        ("network", told.get("net") or ""),
        ("detached", "yes" if told.get("detached") else "no"),
        ("level", told.get("level") or ""),
        ("enforced", " ".join(name for name, held in guarantees.items() if held)),
        ("launcher", f"pid {launcher}" if launcher else ""),
        ("container", container[:12]),
    ]
    pairs += [(root["access"], root["path"]) for root in told.get("filesystem") or ()]
    pairs += [("note", note) for note in told.get("notes") or ()]
    if told["state"] == "ended":
        pairs.append(("receipt", kept.path(told["run"])))
    return human.fields(pairs) + _pins(told) + _denied(told)


def _pins(told: dict[str, Any]) -> str:
    pins: dict[str, Any] = told.get("pins") or {}
    ledger: dict[str, Any] = told.get("ledger") or {}
    used: dict[str, int] = {row["address"]: row["packets"] for row in ledger.get("used", ())}
    rows = [
        (name, str(sum(used.get(address, 0) for address in pin["addresses"])), " ".join(pin["addresses"]))
        for name, pin in pins.items()
    ]
    return "\n" + human.table([("ALLOWED", "PACKETS", "ADDRESSES"), *rows]) if rows else ""


def _denied(told: dict[str, Any]) -> str:
    ledger: dict[str, Any] = told.get("ledger") or {}
    pins: dict[str, Any] = told.get("pins") or {}
    names: dict[str, str] = {address: name for name, pin in pins.items() for address in pin["addresses"]}
    rows = [
        (row["address"], row["protocol"], str(row["port"]), str(row["packets"]), names.get(row["address"], ""))
        for row in ledger.get("denied", ())
    ]
    rows += [("(any)", "other", "-", str(ledger["other"]), "")] if ledger.get("other") else []
    return "\n" + human.table([("DENIED", "PROTO", "PORT", "PACKETS", "NAME"), *rows]) if rows else ""
