"""A card in the middle of its life: its processes by what they are, and everything that it could leave behind."""

import contextlib
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from launcher.run.process import START_SECONDS
from tests.bench.cards import run

RUNTIME = Path(os.environ.get("XDG_RUNTIME_DIR", "/run"))
RUNS = RUNTIME / "card-run"
STATE = Path.home() / ".local/state/card-run"
STORAGE = Path.home() / ".local/share/containers/storage"


def until(holds: Callable[[], object], *, seconds: float = 30) -> float:
    """Wait until something of another process holds, which gives no sign; return the seconds it took."""
    start = time.monotonic()
    while not holds():
        assert time.monotonic() < start + seconds
        time.sleep(0.005)
    return time.monotonic() - start


def arguments(pid: int) -> list[str]:
    """Return the command line of a process, empty when it is gone or a zombie."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def name_of(pid: int) -> str:
    """Return what a process calls itself, empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def processes() -> list[int]:
    """Return every process that is not a zombie."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and arguments(int(entry.name))]


def children(pid: int) -> list[int]:
    """Return the children of a process, whichever of its threads has them."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += [int(word) for word in Path(f"/proc/{pid}/task/{thread}/children").read_text().split()]
    return found


def below(pid: int) -> list[int]:
    """Return all that a process is an ancestor of."""
    found: list[int] = []
    for child in children(pid):
        found += [child, *below(child)]
    return found


class Live:
    """A card-run that was started, and where its processes are found. Every lookup is made anew."""

    def __init__(self, process: "subprocess.Popen[str]", run_id: str) -> None:
        self.process = process
        self.run = run_id
        self.path = RUNS / run_id

    def find(self, what: str) -> list[int]:
        """Return the processes of a kind: launcher, leash, podman, conmon, init, worker; pasta and hook of any card."""
        kinds: dict[str, Callable[[], list[int]]] = {
            "launcher": lambda: [self.process.pid],
            "leash": lambda: [pid for pid in children(self.process.pid) if name_of(pid) == "card-keeper"],
            "podman": lambda: [pid for pid in below(self.process.pid) if "run" in arguments(pid)[3:9]],
            "conmon": self._conmon,
            "init": lambda: [pid for one in self._conmon() for pid in children(one) if name_of(pid) == "podman-init"],
            "worker": lambda: [pid for one in self.find("init") for pid in children(one)],
            "pasta": lambda: [pid for pid in processes() if name_of(pid).startswith(("pasta", "slirp4netns"))],
            "hook": lambda: [pid for pid in processes() if "hooks/__main__" in " ".join(arguments(pid))],
        }
        return kinds[what]()

    def _conmon(self) -> list[int]:
        return [pid for pid in processes() if name_of(pid) == "conmon" and f"card-{self.run}" in arguments(pid)]

    def signal(self, what: str, *numbers: int) -> bool:
        """Send signals to every process of a kind; after SIGSTOP it is waited for. Return whether there was one."""
        found = self.find(what)
        for number in numbers:
            send(found, number)
        return bool(found)

    def kill_all(self, *kinds: str) -> None:
        """Kill processes so that none sees another go: all are stopped first."""
        found = [pid for kind in kinds for pid in self.find(kind)]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            send(found, number)

    def end(self) -> tuple[int, str, str]:
        """Wait for card-run; return its status, and what it and the worker said.

        It may wait as long as card-run itself waits for a podman that hangs. What does not end is told with the bench's
        processes, and killed.
        """
        try:
            out, err = self.process.communicate(timeout=START_SECONDS + 30)
        except subprocess.TimeoutExpired:
            there = run(["ps", "-eo", "pid,ppid,stat,wchan:20,etimes,args", "--forest"]).out
            self.process.kill()
            self.process.communicate()
            raise AssertionError(f"card-run {self.process.pid} does not end:\n{there}") from None
        return self.process.returncode, out, err


def send(pids: list[int], number: int) -> None:
    """Send a signal to processes, and after SIGSTOP wait until all are stopped; those that are gone are passed over."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    if number == signal.SIGSTOP:
        until(lambda: all(stopped(pid) for pid in pids))


def stopped(pid: int) -> bool:
    """Return whether a process is stopped, or gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "TtZX"
    except OSError:
        return True


def begin(run_id: str, *options: str, worker: list[str]) -> Live:
    """Start a card."""
    words = ["card-run", f"--run={run_id}", *options, "--", *worker]
    pipe = subprocess.PIPE
    return Live(
        subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, start_new_session=True),
        run_id,
    )


def _tree(top: Path) -> Iterator[str]:
    for folder, directories, files in os.walk(top):
        yield from (f"{folder}/{name}" for name in (*directories, *files))


# What podman and crun keep and change as they like: databases, locks, logs of events, caches; and the empty directory
# that podman leaves of a container whose creation failed.
_PODMANS = (
    "db.sql",
    "events",
    "pause.pid",
    ".lock",
    "alive",
    "-containers.json",
    "/containers.json",
    "/.cache",
    "-root",
    "/persist/",
    "/ipam.db",
    "/containers/overlay/",
)


# Of the runtime directory: the runs, the runtime's state, podman's own, pinned network namespaces, podman's run root.
_IN_RUNTIME = ("card-run", "crun", "libpod", "netns", "containers")
_KINDS = ("net", "mnt", "pid", "user", "ipc", "uts", "cgroup")


def inventory() -> dict[str, Any]:
    """Return all that a card could leave: processes, mounts, namespaces, tables, containers, layers and files."""
    mountinfo = run(["podman", "unshare", "cat", "/proc/self/mountinfo"]).out + Path("/proc/self/mountinfo").read_text()
    points = [line.split(" ")[4] for line in mountinfo.splitlines()]
    listed = run(["podman", "ps", "--all", "--external", "--format={{.ID}} {{.Names}} {{.Status}}"]).out
    tables = run(["podman", "unshare", "/usr/sbin/nft", "list", "tables"]).out
    mine = {os.getpid(), *below(os.getpid())}
    others = [pid for pid in processes() if pid not in mine]
    places = [*(RUNTIME / name for name in _IN_RUNTIME), STORAGE / "overlay-containers", Path("/dev/shm")]
    files = [path for place in places for path in _tree(place) if not any(word in path for word in _PODMANS)]
    files += map(str, RUNTIME.glob("card-run-service-*"))
    return {
        "processes": Counter(name_of(pid) for pid in others),
        # Podman binds these on themselves when it first needs to, for as long as its pause process lives.
        "mounts": Counter(point for point in points if point not in {f"{STORAGE}/overlay", f"{RUNTIME}/netns"}),
        "namespaces": {kind: len(_namespaces(kind, others) - _namespaces(kind, [os.getpid()])) for kind in _KINDS},
        "tables": tables,
        "containers": listed,
        "layers": sorted(path.name for path in (STORAGE / "overlay").iterdir() if len(path.name) == 64),
        "files": sorted(files),
    }


def _namespaces(kind: str, pids: list[int]) -> set[str]:
    """Return the namespaces of a kind that processes are in, of those that may be looked at."""
    found: set[str] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            found.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
    return found


def differences(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return what is not as it was."""
    return {key: _difference(before[key], after[key]) for key in before if before[key] != after[key]}


def _difference(before: Any, after: Any) -> Any:
    if not isinstance(before, Counter | list):
        return before, after
    was, now = Counter(before), Counter(after)
    return {"gone": sorted((was - now).elements()), "new": sorted((now - was).elements())}


def settled(before: dict[str, Any], *, seconds: float = 5) -> dict[str, Any]:
    """Return what is still different once podman's own leftovers have had their time to end; empty when nothing is."""
    end = time.monotonic() + seconds
    while (found := differences(before, inventory())) and time.monotonic() < end:
        time.sleep(0.02)
    return found
