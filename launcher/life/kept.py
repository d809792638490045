"""The receipts of ended runs: `RUN.json` in the user's state directory, a detached run's output beside it (`RUN.log`).

Owner-only. The rule: a receipt is there whole or not at all, and the newest thousand are kept; up to a hundred older
ones stay until they all go at once (XDG base directory specification, `XDG_STATE_HOME`). Imported when a run is over.
"""

import os
import stat
import time

from launcher.run import directory as run_directory
from launcher.suppress import suppress
from oci import strictjson
from oci.refusal import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any
else:
    Any = object

LIMIT = 1000
"""How many receipts are kept, the newest, whatever else goes."""
SLACK = 100
"""How many older ones may be there besides, so that not every run pays for sorting them."""
_WRITING_SECONDS = 60
_RECEIPT, LOG = ".json", ".log"


def directory() -> str:
    """Return the directory of kept receipts, whether it is there or not."""
    state = os.environ.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):
        state = os.path.expanduser("~/.local/state")
    return f"{state}/card-run/runs"


def path(run: str) -> str:
    """Return where the receipt of a run is kept."""
    return f"{directory()}/{run}{_RECEIPT}"


def log_path(run: str) -> str:
    """Return where the output of a detached run is kept."""
    return f"{directory()}/{run}{LOG}"


def prepare() -> str:
    """Make the directory where it is missing and return it; raises OSError when it is not ours alone."""
    top = directory()
    os.makedirs(os.path.dirname(top), mode=0o700, exist_ok=True)
    with suppress(FileExistsError):
        os.mkdir(top, 0o700)
    found = os.lstat(top)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(0, "not a directory that is yours alone", top)
    return top


def keep(run: str, receipt: dict[str, Any]) -> None:
    """Keep a receipt in place of an earlier one of that run id; raises OSError, and then the earlier one stands.

    The output that an earlier run of that id left goes; a detached run's own is there already (`launcher.run.detach`).
    """
    top = prepare()
    temporary = f"{top}/.{run}.{os.getpid()}"
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w", encoding="ascii") as file:
            file.write(strictjson.dump(receipt) + "\n")
        if not receipt.get("detached"):
            with suppress(FileNotFoundError):
                os.unlink(log_path(run))
        os.rename(temporary, path(run))
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    _prune(top)


def listed() -> list[tuple[str, float]]:
    """Return run id and time of each kept receipt (seconds since the epoch), newest first."""
    found: list[tuple[str, float]] = []
    try:
        with os.scandir(directory()) as entries:
            for entry in entries:
                if entry.name.endswith(_RECEIPT) and not entry.name.startswith("."):
                    with suppress(FileNotFoundError):
                        found.append((entry.name.removesuffix(_RECEIPT), entry.stat(follow_symlinks=False).st_mtime))
    except OSError:
        return []
    return sorted(found, key=lambda one: (-one[1], one[0]))


def logged() -> list[str]:
    """Return the runs whose output is kept, whether their receipt is or not."""
    try:
        return sorted(name.removesuffix(LOG) for name in os.listdir(directory()) if name.endswith(LOG))
    except OSError:
        return []


def _prune(top: str) -> None:
    """Remove the oldest receipts, output that belongs to none, and what a killed process left half written."""
    if sum(name.endswith(_RECEIPT) for name in os.listdir(top)) <= LIMIT + SLACK:
        return
    stay = {run for run, _ in listed()[:LIMIT]}
    with suppress(Refused, OSError):
        stay.update(os.listdir(run_directory.parent()))  # a detached card's output is there before its receipt
    with os.scandir(top) as entries:
        for entry in entries:
            with suppress(OSError):
                writing = entry.name.startswith(".") and entry.stat().st_mtime > time.time() - _WRITING_SECONDS
                if not writing and os.path.splitext(entry.name)[0] not in stay:
                    os.unlink(entry.path)
