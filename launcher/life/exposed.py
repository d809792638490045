"""Whether a card that runs already could reach a place of this user's that is about to be: its grant keys, its pool.

A run that starts once the place is there is refused by `launcher.guard.secluded`, when it is judged and once more
before its worker is released. The rule: the directory is made first and the runs are looked at then, so either sees
the other.
"""

import os

from launcher.fs.paths import NOEXEC, READ, WRITE, ancestors
from launcher.life import runs
from launcher.life.runs import Run
from launcher.run.directory import STAGE2_DIRECTORY
from oci import records
from oci.refusal import Refusal, Refused


def refuse(path: str, reason: str, what: str) -> None:
    """Raise Refused, with that reason, when a living run has a root that holds the directory at `path`."""
    holders = set(ancestors(path))
    found = [one.run for one in runs.living() if one.state != runs.WARM and not holders.isdisjoint(_roots(one))]
    if found:
        raise Refused(
            [Refusal(reason, f"{', '.join(found)} can reach where {what} would be", "stop it first: card stop RUN")]
        )


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
