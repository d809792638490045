"""What a card without a launcher can be asked for. Pure.

The rule: only what the hooks and stage 2 hold by themselves. What needs card-run while or after the worker runs is
refused by its flag's name, and an option that this list does not know is refused too.
"""

from launcher.fs.policy import Filesystem
from launcher.network import BRIDGE
from launcher.request import Request
from oci.refusal import Refusal

# What is decided before the start, or held by podman, the hooks and stage 2.
HELD = frozenset({
    "allow_host", "card_name", "command", "cpus", "cwd", "dns", "egress", "env", "env_file", "env_host",
    "git_writable", "home", "image", "interactive", "json", "landlock", "limits", "memory", "merged", "model_host",
    "net", "nofile", "pids", "podman_arg", "profile", "protect", "quiet", "read", "read_noexec", "resolve_timeout",
    "resolver", "run", "secret", "shm_size", "stop_timeout", "tmp_size", "tty", "user", "write",
})  # fmt: skip
_HINT = "use card-run"


def refusals(request: Request, roots: Filesystem) -> list[Refusal]:
    """Return a refusal for each thing that is asked for and that nobody would be there to do."""
    default = Request(command=())
    asked = [name for name, value in request.as_dict().items() if value != getattr(default, name, None)]
    found = [
        Refusal("not-prepared", f"--{name.replace('_', '-')} needs card-run while the worker runs", _HINT)
        for name in asked
        if name not in HELD
    ]
    if request.net == BRIDGE:
        text = "--net bridge needs card-run to build its outer table once the veth is there"
        found.append(Refusal("not-prepared", text, "--net pasta, or use card-run"))
    checkouts = [path for path in roots.closed if path.endswith(("/config", "/.git"))]
    if checkouts:
        text = f"--write with a git checkout ({checkouts[0]}) needs card-run to look at it when the worker has ended"
        found.append(Refusal("not-prepared", text, _HINT))
    return found
