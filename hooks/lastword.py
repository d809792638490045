"""What a hook says when its own result file is not the place: standard error, and a log beside the run directories.

podman shows nothing of a hook but its exit status. Standard error goes to the run directory's hook.log, by an
annotation of the card's; a container that names a run directory which is not there has none, so its reasons go to
hook.log in the folder of all run directories. The rule: only into a folder that is ours alone, and never much.
Where a process of the keeper's had the hook's work and the state before this one (client.sh), its end is the reason.
"""

import os
import stat

from oci import annotations
from oci.refusal import Refusal, Refused
from oci.state import State

LOG = "hook.log"
INSTEAD = "CARD_RUN_INSTEAD"  # client.sh sets it for a hook that follows one which was asked, and gave no answer
_FOLDER = "card-run"
_MOST = 64 << 10


def tell(error: "Refused | OSError", container: "State | None") -> None:
    """Say why a hook refuses when there is no run directory to say it in. Never fails."""
    if isinstance(error, Refused) and container is None and INSTEAD in os.environ:
        error = _lost(error)
    text = f"{error}\n".encode("utf-8", "replace")
    say(text)
    path = container.annotations.get(annotations.DIRECTORY, "") if container else ""
    parent = path.rpartition("/")[0]
    try:
        if parent.startswith("/") and parent.endswith(f"/{_FOLDER}"):
            _append(parent, text)
    except OSError as failed:
        say(f"{parent}/{LOG}: {failed.strerror}\n".encode())


def _lost(error: Refused) -> Refused:
    """Return the refusal for a state that cannot be read because another process took it, and any other as it is."""
    if {refusal.reason for refusal in error.refusals} != {"state-malformed"}:
        return error
    text = "the keeper's process that did this hook's work ended before it answered, with the container's state read"
    return Refused([Refusal("hook-lost", text, "was it killed? start the card anew")])


def say(text: bytes) -> None:
    """Write to standard error; a full disk below it costs the words and nothing else."""
    try:
        os.write(2, text)
    except OSError:
        return


def _append(folder: str, text: bytes) -> None:
    top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(top)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            return
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        log = os.open(LOG, flags, 0o600, dir_fd=top)
        try:
            if os.fstat(log).st_size > _MOST:
                os.ftruncate(log, 0)
            os.write(log, text)
        finally:
            os.close(log)
    finally:
        os.close(top)
