"""The receipts of runs whose directory is gone, and with it their record, as it is when the bench went down.

A runtime directory does not outlive the boot. What may is the container, until podman itself removes it, which podman 5
does at its first start in a boot (podman-run(1) `--rm`), and a detached card's output. The rule: what is not known is
None, never guessed, and a receipt that the run's own card-run kept stands.
"""

import os
import time

from hooks.egress import is_run_id
from launcher.life import kept, runs
from launcher.life.containers import Container
from launcher.network import BRIDGE, NONE, PASTA, SLIRP
from launcher.run import directory
from launcher.run.receipt import ABANDONED, SCHEMA
from launcher.suppress import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any
else:
    Any = object

NOTE = (
    "its run directory was gone, as after a restart of the bench: "
    "what ran, what was enforced and what was denied is not known"
)
_NETWORKS = {"pasta": PASTA, "none": NONE, "slirp4netns": SLIRP, "bridge": BRIDGE}
_CONMON = b"conmon"


def keep(container: Container) -> None:
    """Keep a receipt of a container that was started. One that cannot be kept is not: nobody is there to be told."""
    if container.started is None or _accounted(container.run, container.created or 0):
        return
    code, known = container.exit_code, container.ended and container.exit_code >= 0
    _keep(
        container.run,
        detached=container.log == kept.log_path(container.run),
        started=container.created,
        ended=container.finished or time.time(),
        image=container.image,
        net=_NETWORKS.get(container.network),
        exit_status=code if known else None,
        oom=container.oom if known else None,
    )


def outputs() -> list[str]:
    """Return the detached runs of which there is the output alone: no receipt, no directory, and nobody writes it."""
    found = [run for run in kept.logged() if is_run_id(run) and not _accounted(run, _written(run))]
    tops = directory.parents()
    found = [run for run in found if not any(os.path.lexists(f"{top}/{run}") for top in tops)]
    writing = _writing() if found else b""
    # Looked at once more: its card-run keeps the receipt before the directory goes.
    return [
        run for run in found if os.fsencode(kept.log_path(run)) not in writing and not _accounted(run, _written(run))
    ]


def keep_output(run: str) -> None:
    """Keep a receipt of a run of which there is the output alone; its end is told as when it last wrote."""
    _keep(run, detached=True, ended=_written(run))


def _keep(run: str, **known: Any) -> None:
    unknown = ("card", "started", "image", "command", "net", "names", "ledger", "exit_status", "oom")
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "run": run,
        **dict.fromkeys(unknown),
        "how": ABANDONED,
        "hook": {},
        "notes": [NOTE],
    }
    with suppress(OSError):
        kept.keep(run, content | known)


def _accounted(run: str, last: float) -> bool:
    """Return whether the receipt that is kept under an id is of an end after that time: the run's own, or a later's."""
    earlier = next((one.receipt() for one in runs.ended() if one.run == run), None)
    ended = (earlier or {}).get("ended")
    return isinstance(ended, int | float) and ended >= last


def _written(run: str) -> float:
    """Return when a run's output was last written, in seconds since the epoch; 0 when it is gone."""
    try:
        return os.stat(kept.log_path(run)).st_mtime
    except FileNotFoundError:
        return 0


def _writing() -> bytes:
    """Return the command lines of every container's monitor, which name the output that it writes (conmon(8))."""
    found: list[bytes] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as file:
            words = file.read()
            found += [words] if words.split(b"\0")[0].endswith(_CONMON) else []
    return b"".join(found)
