"""Starting infra/bench/run from the outside, and finding what a run has left on the machine."""

import os
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from infra.bench import layout

RUN = str(layout.CHECKOUT / "infra/bench/run")
CONTAINER = "podman run --pull=never -d localhost/card-run/busybox:latest sleep 1000"
# what a run is made of: its network namespaces, its mount namespace, its control group, its storage
DESCRIBE = (
    "for process in /proc/[0-9]*; do readlink $process/ns/net; done | sort -u; readlink /proc/self/ns/mnt;"
    " readlink /proc/1/ns/pid; sed -n 's#.* .*/runs/\\(run-[^/]*\\)/root .*#\\1#p' /proc/self/mountinfo"
)
NAMESPACE = re.compile(r"(net|mnt|pid):\[(\d+)\]")
WAIT_SECONDS = 10


def bench(
    *argv: str, stdin: bytes = b"", options: tuple[str, ...] = ("--fresh",)
) -> subprocess.CompletedProcess[bytes]:
    """Run a command in the bench to its end."""
    return subprocess.run([RUN, *options, "--", *argv], check=False, input=stdin, capture_output=True)


def started(script: str, *options: str) -> subprocess.Popen[bytes]:
    """Start a shell script in the bench that keeps its standard output open to us."""
    argv = [RUN, "--fresh", *options, "--", "sh", "-c", script]
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def line_of(process: subprocess.Popen[bytes]) -> str:
    """Return the next line of its standard output."""
    assert process.stdout is not None
    return process.stdout.readline().decode().strip()


@dataclass(frozen=True, slots=True)
class Traces:
    """What one run is made of, so that it can be looked for afterwards."""

    namespaces: frozenset[str]
    storage: str
    group: str

    def left(self) -> list[str]:
        """Return what of the run is still there."""
        found = [space for space in _namespaces_in_use() if space in self.namespaces]
        found += [str(path) for path in (layout.CACHE / "runs").glob(self.storage)]
        return found + [str(path) for mount in _cgroup2_mounts() for path in mount.glob(self.group)]

    def left_after_a_while(self) -> list[str]:
        """Return what is left when nothing is, or when the time for that is over."""
        end = time.monotonic() + WAIT_SECONDS
        while (left := self.left()) and time.monotonic() < end:
            os.sched_yield()
        return left


def traces(description: list[str], *, process: int) -> Traces:
    """Read the lines that DESCRIBE printed in the run of that process."""
    namespaces = frozenset(line for line in description if NAMESPACE.fullmatch(line))
    (storage,) = [line for line in description if line.startswith("run-")]
    return Traces(namespaces, storage, f"card-run-bench-{process}")


def _namespaces_in_use() -> set[str]:
    """Return the namespaces that any process of the machine is in."""
    found: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        for kind in ("net", "mnt", "pid"):
            try:
                found.add(str((process / "ns" / kind).readlink()))
            except OSError:
                continue
    return found


def _cgroup2_mounts() -> list[Path]:
    """Return where the machine has the cgroup2 hierarchy."""
    lines = (line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return [Path(fields[4]) for fields in lines if "cgroup2" in fields]
