"""Trying a registration: a throw-away container whose hooks must fire, and one without the annotation, whose must not.

podman is told everything that a card tells it but `--hooks-dir`, and makes a container of an empty root file system:
no image is needed, and nothing runs in it, because it is created in the runtime and never started (podman-init(1)).
The hooks do all that they do for a card without a network. What is made is removed, whatever happens; when this process
is killed, by `card gc`, which finds it by its record as it finds a card's.
"""

import json
import os
import subprocess
from typing import Any

from launcher import bench, launch, network, pins, runtime
from launcher.fs import searched
from launcher.fs.policy import PRIVATE
from launcher.life import remnants, undo
from launcher.life.containers import Containers, Unknown
from launcher.plan import hosts, resolv_conf
from launcher.registration import program
from launcher.request import Request
from launcher.run import command, directory
from launcher.run.directory import RunDirectory
from launcher.run.perform import find_podman, record_of
from launcher.suppress import suppress
from launcher.value import Value
from oci import annotations
from oci.refusal import Refusal, Refused

_SECONDS = 90
_ROOT = "root"
_FOLDERS = ("proc", "sys", "dev", "etc", "run/card", "run/card-runtime", *(path.strip("/") for path in PRIVATE))
_FILES = ("etc/hosts", "etc/resolv.conf", "etc/hostname", "etc/passwd", "etc/group", "run/.containerenv")
_PROGRAMS = ("run/podman-init", "run/card-runtime/bin/ld.so")
# What podman-create(1) does not take, or what would make podman look for hooks elsewhere.
_RUN_ONLY = ("--hooks-dir=", "--rm", "--preserve-fds=", "--preserve-fd=", "--detach=", "--cidfile=")


class Fired(Value):
    """What one throw-away container came to.

    `prestart` is the hook's own result (hook.json), None when it did not fire; `stages` are those that the bundle's
    config.json lists hooks of ours under; `poststop` is whether the ledger was written; `said` is podman's last word.
    """

    prestart: dict[str, Any] | None
    poststop: bool
    runtime: str
    stages: tuple[str, ...]
    said: str


def run(*, annotated: bool) -> Fired:
    """Make, initialise and remove one container; raises Refused when podman or the bench cannot do even that."""
    asked, refusals = launch.judge(Request(command=("true",), net=network.NONE))
    refusals += launch.rootless()
    if refusals:
        raise Refused(refusals)
    built, podman = runtime.ensure(), find_podman(asked.programs)
    held = directory.create(asked.run)
    try:
        _fill(held, asked, built)
        words = _argv(held, asked, built, podman, annotated=annotated)
        fired = _try(held, words, podman)
    except BaseException:
        undo.undo(held, Containers(podman, searched.environment()))  # podman may have been in the middle of it
        raise
    held.remove()
    return fired


def _fill(held: RunDirectory, asked: launch.Launch, built: runtime.Runtime) -> None:
    """Write the plan that the hook is to pass, and an empty root file system with every place to mount on."""
    settings, wrong = bench.read()
    if wrong:
        raise Refused(wrong)
    plan = pins.finish(asked, settings, bundle=command.expectation(asked, built, held.path))
    for name, data in (
        (directory.RECORD, record_of(asked).to_json()),
        ("table.nft", plan.table.encode()),
        ("hosts", hosts(plan).encode()),
        ("resolv.conf", resolv_conf(plan).encode()),
        ("plan.json", plan.json),
    ):
        held.write(name, data)
    for name in _FOLDERS:
        os.makedirs(held / f"{_ROOT}/{name}", exist_ok=True)
    for name in (*_FILES, *_PROGRAMS):
        os.makedirs(os.path.dirname(held / f"{_ROOT}/{name}"), exist_ok=True)
        held.write(f"{_ROOT}/{name}", b"")
    for name in _PROGRAMS:
        os.chmod(held / f"{_ROOT}/{name}", 0o755)  # noqa: S103 - empty, and mounted over
    held.release()


def _argv(
    held: RunDirectory, asked: launch.Launch, built: runtime.Runtime, podman: str, *, annotated: bool
) -> list[str]:
    """Return a card's own command as one that creates, from a root file system instead of an image."""
    words = command.argv(asked, built, podman=podman, directory=held.path, hooks_dirs=())
    words = [word for word in words if not word.startswith(_RUN_ONLY)]
    if not annotated:
        words = [word for word in words if not word.startswith(f"--annotation={annotations.RUN}=")]
    words[words.index("run")] = "create"
    return [*words[:-2], "--rootfs", held / _ROOT, asked.run]


def _try(held: RunDirectory, words: list[str], podman: str) -> Fired:
    made = _call(words)
    container = made.stdout.strip()
    if made.returncode or not container:
        raise Refused([Refusal("trial-failed", f"podman cannot make a container: {_last(made.stderr)}")])
    try:
        started = _call([podman, "--remote=false", "init", container])
        told = _call([podman, "--remote=false", "inspect", "--type=container", container])
        facts: dict[str, Any] = json.loads(told.stdout)[0] if told.returncode == 0 else {}
        stages = _stages(facts)
    finally:
        _call([podman, "--remote=false", "rm", "--force", "--time=0", container])
    with suppress(Unknown):
        remnants.clear(
            container, Containers(podman, searched.environment())
        )  # podman 4.3 leaves conmon's note of its end
    result = held.read("hook.json")
    return Fired(
        prestart=json.loads(result) if result else None,
        poststop=held.read("ledger.json") is not None,
        runtime=str(facts.get("OCIRuntime", "")),
        stages=stages,
        said="" if started.returncode == 0 else _last(started.stderr),
    )


def _stages(facts: dict[str, Any]) -> tuple[str, ...]:
    """Return the stages under which podman gave the runtime hooks of ours; none when the container was not made."""
    try:
        with open(facts["OCIConfigPath"], encoding="utf-8") as file:
            hooks: dict[str, list[dict[str, Any]]] = json.load(file).get("hooks", {})
    except (KeyError, OSError, ValueError):
        return ()
    return tuple(stage for stage, some in hooks.items() if any(program.ENTRY in " ".join(one["args"]) for one in some))


def _call(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, capture_output=True, text=True, timeout=_SECONDS, check=False, env=searched.environment()
    )


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].removeprefix("Error: ") if lines else "no word why"
