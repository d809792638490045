"""Real cards in the bench, and the same attempts in a plain container as their control."""

import json
import os
import subprocess
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests.bench import inside

IMAGE = "localhost/card-run/card:latest"
BUSYBOX = "localhost/card-run/busybox:latest"
Attempt = list[Any]


@dataclass(frozen=True, kw_only=True)
class Run:
    """One finished command."""

    status: int
    out: str
    err: str
    receipt: dict[str, Any] = field(default_factory=dict)

    @property
    def reasons(self) -> list[str]:
        """Return the reasons of the refusals on stderr."""
        lines = [line for line in self.err.splitlines() if line.startswith("SANDBOX REFUSED reason=")]
        return [line.removeprefix("SANDBOX REFUSED reason=").split(" ")[0] for line in lines]


def run(argv: list[str], **options: Any) -> Run:
    """Run a command to its end, however it ends."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=90, check=False, **options)
    return Run(status=done.returncode, out=done.stdout, err=done.stderr)


@cache
def is_old() -> bool:
    """Return whether this bench's podman is older than pasta, as Debian 12's is."""
    return run(["podman", "--version"]).out.split()[2].startswith("4.")


def card(*words: str, receipt: Path | None = None, **options: Any) -> Run:
    """Run `card-run` with the words given, and read its receipt if one is asked for."""
    extra = [f"--json={receipt}"] if receipt else []
    done = run(["card-run", *extra, *words], stdin=subprocess.DEVNULL, **options)
    content = json.loads(receipt.read_text()) if receipt and receipt.exists() and receipt.stat().st_size else {}
    return Run(status=done.status, out=done.out, err=done.err, receipt=content)


def plain(*words: str, image: str = IMAGE, network: str = "", userns: str = "keep-id") -> Run:
    """Run the control: a plain podman container, with no wall of ours."""
    network = network or ("slirp4netns" if is_old() else "pasta")
    user = ["--userns", userns] if os.getuid() else []
    return run(["podman", "run", "--rm", "--pull=never", *user, f"--network={network}", image, *words])


def attempts_in_card(attempts: list[Attempt], *options: str) -> list[tuple[str, float]]:
    """Return what each attempt came to inside a card, with its milliseconds."""
    done = card("-q", *options, "--", "python3", "-c", inside.PROGRAM, json.dumps(attempts))
    assert done.status == 0, done.err
    return [(result, took) for result, took in json.loads(done.out)]


def attempts_in_plain(attempts: list[Attempt]) -> list[tuple[str, float]]:
    """Return what each attempt came to in a plain container."""
    done = plain("python3", "-c", inside.PROGRAM, json.dumps(attempts))
    assert done.status == 0, done.err
    return [(result, took) for result, took in json.loads(done.out)]


def remains() -> dict[str, object]:
    """Return everything a run could leave behind, as this user sees it."""
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", "/run")) / "card-run"
    containers = run(["podman", "ps", "--all", "--quiet"]).out.split()
    mounts = run(
        ["podman", "unshare", "cat", "/proc/self/mountinfo"] if os.getuid() else ["cat", "/proc/self/mountinfo"]
    )
    pins = [line for line in mounts.out.splitlines() if "card-run" in line and "nsfs" in line]
    tables = run(["podman", "unshare", "/usr/sbin/nft", "list", "tables"] if os.getuid() else ["nft", "list", "tables"])
    return {
        "containers": containers,
        "processes": _processes(),
        "pins": pins,
        "tables": [line for line in tables.out.splitlines() if "nova_egress" in line],
        "directories": sorted(path.name for path in runtime.iterdir()) if runtime.exists() else [],
    }


def until_ended() -> None:
    """Wait until what is left of cards that are over has ended: podman returns a moment before conmon, say.

    Otherwise a test that compares what there is with what there was would find that something is gone.
    """
    end = time.monotonic() + 10
    while processes := _processes():
        containers = run(["podman", "ps", "--all", "--quiet", "--no-trunc"]).out.split()
        ending = [line for line in processes if "conmon" in line and not any(name in line for name in containers)]
        if (containers and not ending) or time.monotonic() > end:
            return


def _processes() -> list[str]:
    # podman keeps one pause process and its namespaces per boot; everything else must be gone.
    commands = (_command(entry) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return sorted(command for command in commands if _ours(command))


def _command(entry: Path) -> str:
    try:
        return (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _ours(command: str) -> bool:
    words = (
        "podman --remote=false",
        "conmon",
        "pasta ",
        "slirp4netns",
        "catatonit --",
        "podman-init",
        "card-runtime",
        "/hooks/__main__",
        "crun ",
    )
    return any(word in command for word in words)
