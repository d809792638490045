"""The card that a pool holds: what was declared, judged anew for each warm card, and the marks of what it rests on.

A mark is a file's inode, size and time of change. The rule: whatever of the bench decides about a card and is read once
and not again when the card is taken has its mark here: our own code as it was loaded, the stores that say which image a
name means, storage.conf, containers.conf and its drop-ins, resolv.conf, and the site's hook directories.
"""

import os
import subprocess
import sys
from typing import Any

from launcher import launch, options, runtime
from launcher.egress.nameservers import RESOLV_CONF
from launcher.fs import searched
from launcher.launch import Launch
from launcher.pool import key
from launcher.request import Request
from launcher.run import cgroup, perform, site
from launcher.runtime import Runtime
from launcher.value import Value
from oci import strictjson
from oci.refusal import Refusal, Refused

# What a warm card would run if anything went on where it must wait. Nothing does, and there is no such program.
COMMAND = ("card-without-a-run",)
_SECONDS = 30


class Card(Value):
    """A card as it would be started now: its launch, runtime and podman, and its key."""

    launch: Launch
    built: Runtime
    program: str
    key: dict[str, list[str]]


class Declared:
    """The declaration of a pool, in card-run's own words, and where its images are looked up."""

    def __init__(self, words: list[str]) -> None:
        """Ask podman where its images are; raises Refused when it does not say, or for words that are no options."""
        self._words = [*words, "--", *COMMAND]
        self.image = self._request().image
        self._images = _images(perform.find_podman())

    def _request(self) -> Request:
        # Read anew each time: a card file and the user's defaults are in it.
        return options.read(list(self._words))[0]

    def judge(self) -> Card:
        """Return the card as it would be started now; raises Refused with every reason why it would not."""
        judged, refusals = launch.judge(self._request())
        unfit = key.unfit(judged)
        if unfit:
            refusals.append(Refusal("pool-unfit", f"no warm card can be made with {unfit}", "leave it out"))
        if refusals:
            raise Refused(refusals)
        program, built = perform.find_podman(judged.programs), runtime.ensure()
        judged = cgroup.enforceable(judged, program)
        found = key.of(judged, built, podman=program, hooks_dirs=site.hooks_dirs())
        return Card(launch=judged.replace(names=(), interactive=False), built=built, program=program, key=found)

    def marks(self) -> dict[str, str]:
        """Return the mark of each file of the bench that decides, and of each directory that may get one more."""
        return marks_of(
            [*self._images, *site.storage_files(), *configuration(), *site.hooks_dirs(), *_hook_files(), RESOLV_CONF]
        )


def configuration() -> list[str]:
    """Return the files of podman's configuration, and the directories of its drop-ins (containers.conf(5))."""
    found = list(site.files())
    return [*found, *(f"{path}.d" for path in found if path.endswith("/containers.conf"))]


def code_marks() -> dict[str, str]:
    """Return the mark of each file of ours that this process has loaded."""
    files = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
    return marks_of([path for path in files if path.startswith(f"{runtime.package_root()}/")])


def marks_of(paths: list[str]) -> dict[str, str]:
    """Return the mark of each path, whether anything is there or not."""
    return {path: runtime.input_mark(path) for path in paths}


def changed(before: dict[str, str]) -> str:
    """Return the first path whose mark is another now; "" when all are the same."""
    return next((path for path, mark in before.items() if runtime.input_mark(path) != mark), "")


def _hook_files() -> list[str]:
    return [f"{folder}/{name}" for folder in site.hooks_dirs() if os.path.isdir(folder) for name in os.listdir(folder)]


def _images(podman: str) -> list[str]:
    """Return the files in which podman's stores say which image a name means (containers-storage.conf(5))."""
    words = [podman, "--remote=false", "info", "--format={{json .Store}}"]
    done = subprocess.run(words, capture_output=True, timeout=_SECONDS, check=False, env=searched.environment())
    if done.returncode:
        raise Refused([Refusal("podman-failed", f"podman info said: {done.stderr.decode(errors='replace').strip()}")])
    store: Any = strictjson.parse(done.stdout)
    driver: str = store["graphDriverName"]
    options: dict[str, Any] = store.get("graphOptions") or {}
    places: list[str] = [store["graphRoot"], options.get(f"{driver}.imagestore", "")]
    places += options.get(f"{driver}.additionalImageStores") or []
    return [f"{place}/{driver}-images/images.json" for place in places if place]
