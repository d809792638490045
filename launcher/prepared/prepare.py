"""Preparing a card: its run directory, complete, and the plain podman command that starts it once.

Nobody waits for such a card. The hooks come from the registration, and stage 2 judges for itself what it measured,
by the file that is written here (`launcher.stage2.unattended`). A preparation that fails leaves nothing.
"""

import json
import os
import subprocess
import time
from typing import Any

from launcher import bench, pins, runtime
from launcher.fs import aftermath, searched
from launcher.launch import Launch
from launcher.life import identity
from launcher.life.record import Record
from launcher.plan import Plan, hosts, resolv_conf, stage2_conf
from launcher.run import command, directory
from launcher.run.directory import STAGE2_DIRECTORY, RunDirectory
from launcher.run.perform import find_podman
from launcher.stage2 import unattended
from launcher.value import Value
from oci import records
from oci.refusal import Refusal, Refused

GOOD_FOR_SECONDS = 86400
"""How long a prepared card may be started: its names were resolved when it was prepared."""
_SECONDS = 20
# Where podman finds the hooks is the registration's, and no descriptor and no container id is waited for.
_CARD_RUNS_OWN = ("--hooks-dir=", "--preserve-fds=", "--preserve-fd=", "--cidfile=")


class Prepared(Value):
    """A card that is ready: its plan, run directory, podman's words, and the second until which it may be started."""

    plan: Plan
    path: str
    argv: tuple[str, ...]
    expires: int


def prepare(launch: Launch) -> Prepared:
    """Return the card made ready; raises Refused with every reason, and then nothing is left."""
    podman = find_podman(launch.programs)
    if launch.limits.controllers:
        from launcher.run import cgroup  # asks podman, which only a card with such limits pays for

        launch = cgroup.enforceable(launch, podman)
    image_env = _image_environment(podman, launch.image)
    settings, wrong = bench.read()
    if wrong:
        raise Refused(wrong)
    built, run = runtime.ensure(), directory.create(launch.run)
    try:
        plan = pins.finish(launch, settings, bundle=command.expectation(launch, built, run.path))
        expires = int(time.time()) + GOOD_FOR_SECONDS
        _fill(run, plan, image_env, expires)
        words = command.argv(launch, built, podman=podman, directory=run.path, hooks_dirs=())
    except BaseException:
        run.remove()
        raise
    run.let_go()
    argv = tuple(word for word in words if not word.startswith(_CARD_RUNS_OWN))
    return Prepared(plan=plan, path=run.path, argv=argv, expires=expires)


def _fill(run: RunDirectory, plan: Plan, image_env: list[str], expires: int) -> None:
    """Write all that the hooks and stage 2 read; the plan last, since it is what makes the rest count."""
    card = f"{STAGE2_DIRECTORY}/"
    before = aftermath.before(plan.launch.filesystem, before_podman=plan.launch.before_podman)
    for name, data in (
        (directory.RECORD, _record(plan.launch).to_json()),
        *([(aftermath.NAME, before.to_json())] if before else []),
        ("table.nft", plan.table.encode()),
        ("hosts", hosts(plan).encode()),
        ("resolv.conf", resolv_conf(plan).encode()),
        (f"{card}stage2.conf", stage2_conf(plan) + records.dump([("unattended", "1")])),
        (card + unattended.NAME, _unattended(plan, image_env, expires)),
        ("plan.json", plan.json),
    ):
        run.write(name, data)
        if name.endswith(unattended.NAME):
            os.chmod(run / name, 0o600)  # stage 2 is its owner, whoever the worker is inside


def _unattended(plan: Plan, image_env: list[str], expires: int) -> bytes:
    """Return what stage 2 goes by when nobody waits: the nonce, what must hold, and the worker's environment.

    The environment is whole: what podman would pass besides, a containers.conf's or another --env, is not the card's.
    """
    launch = plan.launch
    items = [
        ("schema", unattended.SCHEMA),
        ("run", launch.run),
        ("nonce", plan.nonce),
        ("digest", plan.digest),
        ("table", plan.egress.table),
        ("net", launch.net),
        ("expires", str(expires)),
    ]
    items += [("quiet", "1")] if launch.asked.quiet else []
    items += [("expect", f"{name}={value}") for name, value in launch.limits.expected().items()]
    given = {name: value for name, _, value in (item.partition("=") for item in image_env)}
    given |= {"container": "podman", "HOSTNAME": "card", **dict(launch.env)}
    return records.dump(items + [("env", f"{name}={value}") for name, value in given.items()])


def _record(launch: Launch) -> Record:
    return Record(
        run=launch.run,
        boot_id=identity.boot_id(),
        launcher=None,
        started=time.time(),
        image=launch.image,
        command=launch.command,
        net=launch.net,
        names=launch.names,
        stop_timeout=launch.limits.stop_timeout,
        card=launch.asked.card_name,
    )


def _image_environment(podman: str, image: str) -> list[str]:
    """Return the image's own NAME=VALUE variables; raises Refused when it is not there."""
    words = [podman, "--remote=false", "image", "inspect", image]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=_SECONDS, check=False, env=searched.environment()
    )
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no word why"])[-1].removeprefix("Error: ")
        raise Refused([Refusal("image-missing", said, f"podman pull {image}, or build it")])
    config: dict[str, Any] = json.loads(done.stdout)[0].get("Config") or {}
    listed: list[str] = config.get("Env") or []
    return listed
