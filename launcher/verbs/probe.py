"""`card probe`: try each promise from inside a real card, beside the same attempt without walls."""

import json
import sys
import tempfile
from enum import StrEnum
from typing import Annotated

import typer

from launcher.probe import containers, judge
from launcher.probe.containers import Asked, Scratch
from launcher.probe.judge import HELD, NOT_HERE, Outcome
from launcher.probe.probes import PROBES
from launcher.request import DEFAULT_IMAGE
from launcher.run import output

SCHEMA = 1


class Network(StrEnum):
    """What a card's network may be for a probe: none has nothing to try."""

    PASTA = "pasta"
    SLIRP = "slirp"
    BRIDGE = "bridge"


class User(StrEnum):
    """Who the worker is, see card-run(1)."""

    KEEP_ID = "keep-id"
    ROOT = "root"


def probe(
    *,
    image: Annotated[str, typer.Option(help="full reference of a local image that has python3")] = DEFAULT_IMAGE,
    net: Annotated[Network, typer.Option(help="the card's network")] = Network.PASTA,
    user: Annotated[User, typer.Option(help="who the worker is inside")] = User.KEEP_ID,
    allow_no_control: Annotated[
        bool,
        typer.Option(
            "--allow-no-control",
            help="pass over promises whose control fails here, such as a port that the site closes",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the outcomes as JSON")] = False,
) -> None:
    """Try each promise from inside a real card, beside the same attempt in a plain container without walls.

    Sends a few packets to github.com and to addresses that lead nowhere. Exits 1 when a promise is broken, or cannot
    be shown because the attempt fails without walls too.

    Example: card probe --json | jq '.probes[] | select(.verdict != "held")'
    """
    asked = Asked(image=image, net=net.value, user=user.value)
    with tempfile.TemporaryDirectory(prefix="card-probe-") as base:
        scratch = Scratch(base=base)
        scratch.fill()
        within, receipt = containers.walled(asked, scratch)
        without = containers.control(asked, scratch, receipt)
    outcomes = judge.judge(PROBES, control=without, walled=within, here=judge.present(receipt))
    verdicts = judge.failed(outcomes, allow_no_control=allow_no_control)
    if as_json:
        content = {
            "schema": SCHEMA,
            "run": receipt["run"],
            "image": image,
            "ok": not verdicts,
            "guarantees": receipt["guarantees"],
            "probes": [outcome.as_json() for outcome in outcomes],
        }
        sys.stdout.write(json.dumps(content, indent=2) + "\n")
    else:
        sys.stdout.write(judge.table(outcomes))
        _summary(outcomes)
    for hint in judge.hints(verdicts):
        output.say(hint)
    raise typer.Exit(1 if verdicts else 0)


def _summary(outcomes: list[Outcome]) -> None:
    counts = {name: sum(outcome.verdict == name for outcome in outcomes) for name in (HELD, NOT_HERE)}
    apart = f"; {counts[NOT_HERE]} do not apply to this bench" if counts[NOT_HERE] else ""
    output.say(f"{counts[HELD]} of {len(outcomes) - counts[NOT_HERE]} promises held{apart}")
