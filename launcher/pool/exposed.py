"""Whether a card that runs already could reach the socket of a pool that is about to be.

A card that starts once the socket is there is refused (`path-has-socket`), and so is one that comes to its worker's
release with the pool's directory in a root (`launcher.guard`). The rule: the directory is made first and the runs are
looked at then, so either sees the other. It is the first of two walls: the pool hears nobody of another namespace.
"""

import os

from launcher.fs.paths import NOEXEC, READ, WRITE, ancestors
from launcher.life import runs
from launcher.life.runs import Run
from launcher.run.directory import STAGE2_DIRECTORY
from oci import records
from oci.refusal import Refusal, Refused


def refuse(folder: str) -> None:
    """Raise Refused (`pool-exposed`) when a living run has a root that holds the pool's directory."""
    holders = set(ancestors(folder))
    found = [one.run for one in runs.living() if one.state != runs.WARM and not holders.isdisjoint(_roots(one))]
    if found:
        text = f"{', '.join(found)} can reach where the pool's socket would be"
        raise Refused([Refusal("pool-exposed", text, "stop it first: card stop RUN")])


def _roots(run: Run) -> list[tuple[int, int]]:
    """Return device and inode of each root of a run, as its stage 2 was told them."""
    try:
        with open(f"{run.path}/{STAGE2_DIRECTORY}/stage2.conf", "rb") as file:
            told = records.load(file.read())
    except (OSError, ValueError):
        return []  # not written yet: that run looks itself before its worker is released
    found: list[tuple[int, int]] = []
    for path in (path for access in (READ, NOEXEC, WRITE) for path in told.get(access, ())):
        try:
            seen = os.stat(path)
        except OSError:
            continue
        found.append((seen.st_dev, seen.st_ino))
    return found
