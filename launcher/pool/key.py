"""What is fixed when a warm card is made, as text: a card fits only a run whose text is the same to the letter.

The rule: it is made from the run's own judged launch, by the very function that makes podman's command, so an option
that somebody adds to that is in it without anybody thinking of it. What a run brings only when it takes its card
(command, environment, names, working directory, limits of time and descriptors) is not in podman's command, and not
here. PATH is left out: podman itself is named by its path, and the shells of one user differ in it all the time.
On card-run's way to a warm card.
"""

import os

from launcher import runtime
from launcher.fs.paths import below
from launcher.launch import Launch
from launcher.network import BRIDGE
from launcher.run import command
from launcher.runtime import Runtime
from oci import mountinfo, strictjson

_RUN, _TOKEN, _DIRECTORY = "run", "token", "/run-directory"
# What podman and its libraries read of the environment (podman(1), containers-storage.conf(5)).
_NAMES = ("HOME", "TMPDIR", *(f"XDG_{name}" for name in ("CACHE_HOME", "CONFIG_HOME", "DATA_HOME", "RUNTIME_DIR")))
# What card-run itself reads of it: where receipts are kept.
_OURS = ("XDG_STATE_HOME",)
_PREFIXES = ("BUILDAH_", "CONTAINER", "PODMAN_", "STORAGE_", "_CONTAINERS_")
_EXPECTED = "expected"
_NAMESPACES = ("cgroup", "mnt", "net", "user")


def of(launch: Launch, built: Runtime, *, podman: str, hooks_dirs: tuple[str, ...]) -> dict[str, list[str]]:
    """Return the text by what it is about."""
    # A warm card's worker gets its standard streams when it is taken, so `--interactive` is not fixed.
    stand = launch.replace(run=_RUN, token=_TOKEN, interactive=False)
    found = launch.filesystem
    return {
        "podman": command.argv(stand, built, podman=podman, directory=_DIRECTORY, hooks_dirs=hooks_dirs),
        _EXPECTED: [strictjson.dump(command.expectation(stand, built, _DIRECTORY))],
        "roots": [f"{one.access}:{one.device}:{one.inode}:{one.path}" for one in found.roots],
        "kept": [f"{one.path}:{one.device}:{one.inode}:{one.source}" for one in launch.kept],
        "judged": [f"{device}:{inode}:{path}" for device, inode, path in found.judged],
        "mounts": _mounts([*(one.path for one in found.roots), *(one.source for one in launch.kept)]),
        # pasta and slirp4netns ask whom the bench's resolv.conf named when the card was made.
        "nameservers": list(launch.nameservers.servers) if launch.dns else [],
        "routes": [f"v4={launch.route4} v6={launch.route6}"],
        "code": [runtime.package_root(), built.digest],
        "environment": sorted(f"{k}={v}" for k, v in os.environ.items() if _counts(k)),
        "namespaces": [os.readlink(f"/proc/self/ns/{name}") for name in _NAMESPACES],
        "process": _process(),
        "user": [f"{os.getuid()}:{os.getgid()}", ",".join(map(str, sorted(os.getgroups())))],
    }


def unfit(launch: Launch) -> str:
    """Return what of a run no warm card can do, in words; "" for one that can be taken."""
    found = (
        ("--run", launch.asked.run is not None),
        ("--tty", launch.tty),
        ("--detach", launch.detach),
        ("--net bridge", launch.net == BRIDGE),
        ("--grant", bool(launch.asked.grant)),
    )
    return ", ".join(name for name, asked in found if asked)


def differs(ours: dict[str, list[str]], theirs: dict[str, list[str]]) -> str:
    """Return what two texts differ in, in words: podman's options by name; "" when they are the same."""
    found: list[str] = []
    for name in sorted({*ours, *theirs}):
        one, other = ours.get(name, []), theirs.get(name, [])
        if one != other:
            found += _options(one, other) if name == "podman" else [name]
    # What is expected of the bundle follows from podman's options.
    return ", ".join(sorted(set(found) - {_EXPECTED} or set(found)))


def _options(one: list[str], other: list[str]) -> list[str]:
    words = sorted(set(one) ^ set(other))
    return [word.partition("=")[0] if word.startswith("--") else "image" for word in words] or ["podman"]


def _counts(name: str) -> bool:
    return name in _NAMES or name in _OURS or name.startswith(_PREFIXES)


def _process() -> list[str]:
    """Return what a container inherits of who starts it: limits and the like (proc_pid_limits(5), sched(7))."""
    with open("/proc/self/limits", encoding="ascii") as file:
        limits = [" ".join(line.split()) for line in file]
    policy, priority = os.sched_getscheduler(0), os.sched_getparam(0).sched_priority
    schedule = f"policy {policy} priority {priority} nice {os.getpriority(os.PRIO_PROCESS, 0)}"
    with open("/proc/self/oom_score_adj", encoding="ascii") as file:
        score = f"oom_score_adj {file.read().strip()}"
    return [*limits, f"{sorted(os.sched_getaffinity(0))}", schedule, score, *_cgroup()]


def _cgroup() -> list[str]:
    """Return the cgroup, where a card is in its starter's: with a systemd of the user's, podman has it make another."""
    base = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    if os.path.exists(f"{base}/systemd/private"):
        return []
    with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
        return [f"cgroup {line.strip()}" for line in file]


def _mounts(roots: list[str]) -> list[str]:
    """Return what is mounted at and below the roots: a card has what was there at its start."""
    if not roots:
        return []
    with open("/proc/self/mountinfo", "rb") as file:
        found = mountinfo.mounts(file.read())
    return [
        f"{number} {root} {point}"
        for number, root, point in found
        if any(point == top or below(point, top) for top in roots)
    ]
