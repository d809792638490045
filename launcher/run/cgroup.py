"""Whether podman can enforce a limit on this bench: its cgroup controllers, asked only when a limit needs one.

Delegation differs from bench to bench (systemd's `Delegate=`, hybrid hierarchies), so podman itself is asked; that
costs 60 ms, which a card without such limits does not pay.
"""

import subprocess

from launcher.fs import searched
from launcher.launch import Launch
from launcher.limits import Limits
from oci.refusal import Refusal, Refused

_FIELDS = {"memory": "memory", "cpu": "cpus", "pids": "pids"}
_SECONDS = 20


def enforceable(launch: Launch, podman: str) -> Launch:
    """Return the launch with the limits that this bench can enforce; raises Refused for one that it cannot.

    With `--limits best-effort` such a limit is left out, with a note.
    """
    if not launch.limits.controllers:
        return launch
    missing = [name for name in launch.limits.controllers if name not in _controllers(podman)]
    if not missing:
        return launch
    text = "this bench cannot enforce --{}: podman has no {} cgroup controller here"
    said = [text.format(_FIELDS[name], name) for name in missing]
    if not launch.best_effort:
        hint = "delegate the controller to your user, or pass --limits best-effort"
        raise Refused([Refusal("limit-unenforceable", one, hint) for one in said])
    kept = {name: value for name, value in launch.limits.as_dict().items() if name not in map(_FIELDS.get, missing)}
    return launch.replace(limits=Limits(**kept), notes=(*launch.notes, *said))


def _controllers(podman: str) -> list[str]:
    words = [podman, "--remote=false", "info", "--format={{range .Host.CgroupControllers}}{{.}} {{end}}"]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=_SECONDS, check=False, env=searched.environment()
    )
    if done.returncode:
        raise Refused([Refusal("podman-failed", f"podman info said: {done.stderr.strip()}")])
    return done.stdout.split()
