"""A created container as the hooks meet it: a process in its own network namespace, a bundle, and a run directory.

No runtime is needed: the process says when it is in its namespace, and the state is what crun would write. The hooks
run as programs, the way hooks.d starts them.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hooks import ruleset
from hooks.egress import Egress
from oci import annotations, records
from tests import bundles
from tests.kernel.wire import egress

ROOT = Path(__file__).resolve().parents[2]
HOOKS = (sys.executable, "-I", "-S", "-B", str(ROOT / "hooks/__main__.py"))
RUN = "t1"
LAUNCH = "5e" * 32
NONCE = "ab" * 16


@dataclass
class Outcome:
    """How a hook ended."""

    status: int
    errors: str


@dataclass
class Container:
    """A container between create and start, with everything the launcher has written for it."""

    base: Path
    process: "subprocess.Popen[str]"
    wall: Egress = field(default_factory=egress)

    @property
    def run(self) -> Path:
        """The run directory."""
        return self.base / RUN

    @property
    def proof(self) -> Path:
        """The proof's path."""
        return self.run / "card/proof"

    @property
    def pin(self) -> Path:
        """The pin's path."""
        return self.run / "netns"

    @property
    def inode(self) -> int:
        """The inode of the process's network namespace."""
        return os.stat(f"/proc/{self.process.pid}/ns/net").st_ino

    @property
    def hook(self) -> "dict[str, Any]":
        """What the hook wrote about itself."""
        found: dict[str, Any] = json.loads((self.run / "hook.json").read_text())
        return found

    @property
    def reasons(self) -> "list[str]":
        """The reasons of the refusals that the hook wrote."""
        return [refusal["reason"] for refusal in self.hook["refusals"]]

    @property
    def records(self) -> "dict[str, list[str]]":
        """The proof's records."""
        return records.load(self.proof.read_bytes())

    @property
    def pinned(self) -> bool:
        """Whether anything is mounted on the pin."""
        return str(self.pin) in Path("/proc/self/mountinfo").read_text()

    def write(self) -> None:
        """Write the run directory and the bundle as the launcher and podman leave them."""
        self.run.mkdir(mode=0o700)
        (self.run / "card").mkdir(mode=0o755)
        (self.run / "plan.lock").touch()
        self.write_plan({})
        (self.run / "table.nft").write_text(ruleset.render(self.wall))
        (self.base / "config.json").write_text(json.dumps(bundles.config()))

    def write_plan(self, change: "dict[str, Any]") -> None:
        """Write the plan with some members changed; None leaves one out."""
        plan = {
            "schema": 1,
            "run": RUN,
            "launch": LAUNCH,
            "nonce": NONCE,
            "egress": self.wall.to_json(),
            "bundle": bundles.expected(),
            **change,
        }
        kept = {key: value for key, value in plan.items() if value is not None}
        (self.run / "plan.json").write_text(json.dumps(kept, sort_keys=True, separators=(",", ":")))

    def state(self, change: "dict[str, Any] | None" = None) -> "dict[str, Any]":
        """Return the state as crun writes it for prestart."""
        own = {annotations.RUN: RUN, annotations.DIRECTORY: str(self.run), annotations.LAUNCH: LAUNCH}
        state = {
            "ociVersion": "1.0",
            "id": bundles.CONTAINER,
            "pid": self.process.pid,
            "root": "/x/merged",
            "bundle": str(self.base),
            "status": "created",
            "annotations": own,
        }
        return {**state, **(change or {})}

    def stopped(self) -> "dict[str, Any]":
        """Return the state as podman writes it for poststop: no pid."""
        state = self.state({"status": "stopped"})
        del state["pid"]
        return state

    def prestart(self, state: "dict[str, Any] | bytes | None" = None, *, wrapper: "tuple[str, ...]" = ()) -> Outcome:
        """Run the prestart hook."""
        return hook("prestart", self.state() if state is None else state, wrapper=wrapper)

    def poststop(self, state: "dict[str, Any] | bytes | None" = None, *, wrapper: "tuple[str, ...]" = ()) -> Outcome:
        """Run the poststop hook."""
        return hook("poststop", self.stopped() if state is None else state, wrapper=wrapper)

    def nft(self, *arguments: str) -> str:
        """Run nft in the container's network namespace."""
        command = ("nsenter", f"--net=/proc/{self.process.pid}/ns/net", "nft", *arguments)
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def end(self) -> None:
        """End the container's process, whether or not it still runs."""
        self.process.kill()
        self.process.communicate()


def hook(verb: str, state: "dict[str, Any] | bytes", *, wrapper: "tuple[str, ...]" = ()) -> Outcome:
    """Run a hook program with its state on standard input and no environment."""
    data = state if isinstance(state, bytes) else json.dumps(state).encode()
    done = subprocess.run((*wrapper, *HOOKS, verb), input=data, capture_output=True, env={}, check=False)
    return Outcome(done.returncode, done.stderr.decode())


@contextmanager
def created(base: Path, wall: "Egress | None" = None, *, spaces: "tuple[str, ...]" = ("--net",)) -> Iterator[Container]:
    """Yield a created container; end its process and undo its pin afterwards, whatever the test did.

    `spaces` are the namespaces of its own, as unshare(1) names them.
    """
    command = ("unshare", *spaces, "sh", "-c", "ip link set lo up; echo ready; exec cat")
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    container = Container(base, process, wall or egress())
    try:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        container.write()
        yield container
    finally:
        container.end()
        if container.pinned:
            subprocess.run(("umount", str(container.pin)), check=True)


def in_own_mounts(script: str) -> "tuple[str, ...]":
    """Return a wrapper that runs a script in a mount namespace of its own, and then the program it wraps there."""
    return ("unshare", "--mount", "sh", "-ec", f'{script}; exec "$@"', "sh")
