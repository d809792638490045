"""Removing runtimes that have been out of use for a day: no manifest names them, and no run that is there has them.

Only for a builder, who holds the cache's lock. The rule: the day counts from the first build that found nothing naming
the runtime, not from when the runtime was built; a card may be starting from it still, and one that runs needs it to
its end, for `card exec` and for its hooks.
"""

import os
import re
import shutil
import time

from hooks.rundir import PLAN
from launcher import runtime
from launcher.life import runs
from launcher.run.directory import HOOKS_DIRECTORY
from launcher.suppress import suppress
from oci import hooksd, records

UNUSED_SECONDS = 86400
# An empty file for each runtime that is out of use, since the time that it was made.
_UNUSED = "unused-"
_RUNTIME = re.compile(rb"runtime-[0-9a-f]{64}")


def prune(cache: str, *, keep: str) -> None:
    """Remove what has been out of use for a day, and note what is so from now on; `keep` is a digest in use."""
    there = {name for name in os.listdir(cache) if name.startswith("runtime-")}
    idle = there - _named(cache) - {runtime.directory_name(keep)}
    for name in idle:
        _note(f"{cache}/{_UNUSED}{name}")
    past = {name for name in idle if _age(f"{cache}/{_UNUSED}{name}") > UNUSED_SECONDS}
    gone = past - of_runs() if past else past
    for name in gone:
        shutil.rmtree(f"{cache}/{name}", ignore_errors=True)
    for note in os.listdir(cache):
        if note.startswith(_UNUSED) and note.removeprefix(_UNUSED) not in idle - gone:
            os.unlink(f"{cache}/{note}")


def _note(place: str) -> None:
    with suppress(FileExistsError), open(place, "xb"):
        pass


def _age(place: str) -> float:
    return time.time() - os.stat(place).st_mtime


def _named(cache: str) -> set[str]:
    """Return the runtimes that manifests name, and remove each manifest that nobody can go by any more.

    What its runtime was made from has changed or is gone, or it cannot be read: whoever looks at it builds again.
    """
    found: set[str] = set()
    for name in os.listdir(cache):
        if name.startswith("manifest-"):
            digest = _current(f"{cache}/{name}")
            if digest:
                found.add(runtime.directory_name(digest))
            else:
                with suppress(FileNotFoundError):
                    os.unlink(f"{cache}/{name}")
    return found


def _current(manifest: str) -> str:
    """Return the digest in a manifest whose inputs are all as they were, else nothing."""
    try:
        with open(manifest, "rb") as file:
            values = records.load(file.read())
        inputs = (line.partition(" ") for line in values["input"])
        return values["digest"][0] if all(runtime.input_mark(path) == mark for mark, _, path in inputs) else ""
    except (OSError, ValueError, KeyError, IndexError):
        return ""


def of_runs() -> set[str]:
    """Return the runtimes of every run that is there: what its hooks are started from, and what its card mounts.

    A run's own hooks.d is there before podman is, and its plan tells the same of a card that was only prepared.
    """
    found: set[str] = set()
    for path in runs.directories():
        for name in (f"{HOOKS_DIRECTORY}/{hooksd.POSTSTOP_FILE}", PLAN):
            with suppress(OSError), open(f"{path}/{name}", "rb") as file:
                found.update(word.decode() for word in _RUNTIME.findall(file.read()))
    return found
