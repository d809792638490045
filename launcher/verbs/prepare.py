"""`card prepare`: a card that plain podman starts, once, behind the same walls; with the hooks registered."""

import json
import shlex
import sys
import time

import typer

from launcher import launch, options
from launcher.prepared import judge
from launcher.prepared import prepare as preparing
from launcher.prepared.prepare import Prepared
from launcher.registration import scope, status
from launcher.run import output, site
from oci.refusal import Refused


def prepare(_: typer.Context) -> None:
    """Make a card ready and print the podman command that starts it, once. Takes card-run's options.

    Example: card prepare --read /srv/data -- python3 check.py
    """
    # click drops the first `--`; card-run's own parser needs to see where the worker begins.
    asked = options.read(sys.argv[2:])[0]
    judged, refusals = launch.judge(asked)
    refusals += [*launch.rootless(), *launch.installed(judged, refusals), *judge.refusals(asked, judged.filesystem)]
    if refusals:
        output.refusals(tuple(refusals))
        raise typer.Exit(2)
    ready = preparing.prepare(judged)
    if not asked.quiet:
        _notes(ready)
    sys.stdout.write((_as_json(ready) if asked.json is not None else shlex.join(ready.argv)) + "\n")


def _as_json(ready: Prepared) -> str:
    content = {
        "run": ready.plan.launch.run,
        "directory": ready.path,
        "digest": ready.plan.digest,
        "expires": ready.expires,
        "podman": list(ready.argv),
    }
    return json.dumps(content, indent=2)


def _notes(ready: Prepared) -> None:
    """Say what is unusual, how long the command is good for, and whether podman would find the hooks."""
    output.notes(ready.plan)
    until = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ready.expires))
    output.say(f"NOTE run {ready.plan.launch.run} is prepared: good for one start until {until}")
    if not any(_registers(directory) for directory in site.hooks_dirs()):
        output.say("NOTE the hooks are not registered, so the card will refuse to start: card hooks install")


def _registers(directory: str) -> bool:
    try:
        return status.registered(scope.user().replace(hooks_d=directory))
    except Refused:
        return False
