"""A card's inside without podman: the runtime in a cage, a run directory, and the launcher's end of descriptor 3."""

import json
import os
import socket
import struct
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from launcher.runtime import CARD, Runtime
from launcher.seccomp import profile
from oci import records
from tests.kernel.cage import MS_NOEXEC, MS_RDONLY, Spec, start

NONCE = "n" * 32
RUN = "run1"
DEFAULTS = (
    ("schema", "1"),
    ("run", RUN),
    ("network", "0"),
    ("route4", "0"),
    ("route6", "0"),
    ("landlock", "clamp"),
    ("loopback", "1"),
    ("outside", "/"),
    ("port", "9"),
    ("probe4", "169.254.169.254"),
    ("probe4", "198.18.0.1"),
    ("probe6", "fd00:ec2::254"),
    ("probe6", "100::1"),
)
# The smallest podman profile that `launcher.seccomp.profile` takes: this machine may have no podman.
BASE_PROFILE = json.dumps(
    {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": 38,
        "archMap": [],
        "syscalls": [{"names": list(profile.NEEDED), "action": "SCMP_ACT_ALLOW", "args": []}],
    }
)


@dataclass
class Outcome:
    """How a card ended: stage 2's report (empty when there was none), exit status, and what was printed."""

    report: dict[str, list[str]]
    status: int
    stdout: str
    stderr: str

    @property
    def reasons(self) -> list[str]:
        """The reasons of a refusal."""
        return self.report.get("reason", [])


@dataclass
class Card:
    """A card to be run in a cage. `system` binds this machine's programs in, as an image would bring its own."""

    runtime: Runtime
    argv: list[str]
    conf: list[tuple[str, str]] = field(default_factory=list)
    hello: list[tuple[str, str]] = field(default_factory=lambda: [("nonce", NONCE)])
    go: list[tuple[str, str]] | None = field(default_factory=lambda: [("go", "1")])
    env: dict[str, str] = field(default_factory=lambda: {"PATH": "/usr/bin:/bin", "HOME": "/"})
    roots: list[tuple[str, str, Path]] = field(default_factory=list)  # access, path inside, path on this machine
    system: bool = True
    proof: bool = True
    changes: dict[str, object] = field(default_factory=dict)

    def spec(self, directory: Path) -> Spec:
        """Return the cage: the runtime, the run directory, the roots, and a private /tmp."""
        binds = [(self.runtime.card_dir, CARD, MS_RDONLY), (str(directory), "/run/card", MS_RDONLY | MS_NOEXEC)]
        flags = {"write": 0, "read": MS_RDONLY, "noexec": MS_RDONLY | MS_NOEXEC}
        binds += [(str(source), path, flags[access]) for access, path, source in self.roots]
        if self.system:
            binds += [(os.path.realpath(path), path, MS_RDONLY) for path in ("/usr", "/lib64") if Path(path).exists()]
        links = [("/run/card", "/leak")]  # an image's link must not carry the image's rights to where it points
        links += [("usr/bin", "/bin"), ("usr/lib", "/lib")] if self.system else []
        proof = [str(directory / "proof"), RUN, NONCE] if self.proof else []
        argv = [*self.runtime.argv, RUN]
        spec = Spec(argv=argv, env=self.env, binds=binds, links=links, tmpfs=["/tmp"], proof=proof)
        for name, value in self.changes.items():
            setattr(spec, name, value)
        return spec

    def write_conf(self, directory: Path) -> None:
        """Write stage2.conf: the defaults, what `conf` says instead, the roots and the command."""
        given = dict(self.conf)
        items = [item for item in (*DEFAULTS, ("cwd", "/")) if item[0] not in given]
        items += [*self.conf, ("private", "/tmp"), *((access, path) for access, path, _ in self.roots)]
        items += [("argv", word) for word in self.argv]
        (directory / "stage2.conf").write_bytes(records.dump(items))

    def run(self) -> Outcome:
        """Run the card to its end."""
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            directory.chmod(0o755)
            self.write_conf(directory)
            ours, theirs = socket.socketpair()
            held, lifeline = socket.socketpair()
            process = start(self.spec(directory), pass_fd=theirs.fileno(), lifeline=lifeline.fileno())
            theirs.close()
            lifeline.close()
            with ours, held:
                report = self._talk(ours)
                stdout, stderr = process.communicate(timeout=60)
            return Outcome(report, process.returncode, stdout.decode(), stderr.decode())

    def _talk(self, ours: socket.socket) -> dict[str, list[str]]:
        send(ours, self.hello)
        report = receive(ours)
        if report.get("status") == ["ok"] and self.go is not None:
            send(ours, self.go)
        if self.go is None:
            ours.shutdown(socket.SHUT_RDWR)
        return report


def send(ours: socket.socket, items: list[tuple[str, str]]) -> None:
    """Send a frame; a cage that is gone already will say so by its silence."""
    body = records.dump(items)
    try:
        ours.sendall(struct.pack("<I", len(body)) + body)
    except (BrokenPipeError, ConnectionResetError):
        return


def receive(ours: socket.socket) -> dict[str, list[str]]:
    """Return a frame, empty when there is none."""
    try:
        head = ours.recv(4, socket.MSG_WAITALL)
        return records.load(ours.recv(struct.unpack("<I", head)[0], socket.MSG_WAITALL)) if len(head) == 4 else {}
    except ConnectionResetError:
        return {}
