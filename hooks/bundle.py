"""Reading the bundle back: config.json, which the runtime starts from, against what the plan asked podman for.

A containers.conf, a podman that ignores an option, or an option that means something else than it did: all end in
config.json (OCI runtime-spec, config.md and config-linux.md), so that is what is judged. `audit` is pure.
"""

from oci import strictjson
from oci.refusal import Refusal, Refused
from oci.state import State

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# What podman mounts into every container by itself: destination to type.
_KERNEL_MOUNTS = {
    "/proc": "proc",
    "/sys": "sysfs",
    "/dev": "tmpfs",
    "/dev/pts": "devpts",
    "/dev/mqueue": "mqueue",
    "/sys/fs/cgroup": "cgroup",
}
# Files that podman writes for this container and binds read-only, by destination and their name in its own folder.
_PODMAN_FILES = {
    "/etc/group": "group",
    "/etc/passwd": "passwd",
    "/etc/hostname": "hostname",
    "/etc/localtime": "localtime",  # with --tz
    "/run/.containerenv": ".containerenv",
}
_NAMESPACES = ("pid", "network", "ipc", "uts", "mount", "cgroup")
_MASKED = ("/proc/kcore", "/proc/keys", "/sys/firmware")
_READONLY = ("/proc/sys", "/proc/sysrq-trigger", "/proc/bus", "/proc/irq", "/proc/fs")
_SYSCTLS = {"net.ipv4.ping_group_range"}
_MUST_NOT_ALLOW = ("unshare", "setns", "mount", "pivot_root", "bpf", "ptrace", "io_uring_setup", "keyctl")
# Annotations that crun, its handlers, systemd or criu act on: one replaces the seccomp filter, another writes a file.
# An image's manifest has annotations too, so only podman's own two of systemd's may stand.
_ACTED_ON = ("run.oci.", "org.systemd.property.", "org.criu.", "krun.", "module.wasm.")
_PODMANS = ("org.systemd.property.KillSignal", "org.systemd.property.TimeoutStopUSec")
_HINT = "a containers.conf on this bench may ask for it; the run directory's plan says what was expected"


def check(container: State, expected: "dict[str, Any]") -> None:
    """Read the container's config.json and judge it; raises Refused with every difference, or `bundle-malformed`."""
    path = f"{container.bundle}/config.json"
    try:
        with open(path, "rb") as file:
            config: Any = strictjson.parse(file.read())
        problems = audit(config, expected, container=container.id)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        text = f"{path} cannot be judged: {type(error).__name__}: {error}"
        raise Refused([Refusal("bundle-malformed", text)]) from None
    if problems:
        raise Refused(problems)


def audit(config: "dict[str, Any]", expected: "dict[str, Any]", *, container: str) -> "list[Refusal]":
    """Return a refusal for every way in which config.json is not what the plan expects; `container` is its id.

    `expected` holds `args`, `uid`, `gid`, `user_namespace`, `mounts` as [destination, source or type, options], and
    `annotations` that the runtime acts on and that are the card's own.
    Raises KeyError, TypeError or AttributeError where config.json lacks what every runtime needs.
    """
    problems = _process(config["process"], expected)
    problems += _root(config)
    problems += _linux(config["linux"], expected)
    annotations: "dict[str, str]" = config.get("annotations") or {}
    asked: "dict[str, str]" = expected.get("annotations", {})
    acted_on = [
        key
        for key, value in annotations.items()
        if key.startswith(_ACTED_ON) and key not in _PODMANS and asked.get(key) != value
    ]
    problems += [f"the annotation {key} is set" for key in acted_on]
    problems += _mounts(config["mounts"], expected["mounts"], container)
    return [Refusal("bundle-differs", f"config.json: {problem}", _HINT) for problem in problems]


def _process(process: "dict[str, Any]", expected: "dict[str, Any]") -> "list[str]":
    problems: list[str] = []
    if process["args"] != expected["args"]:
        problems.append(f"the first process is {process['args']!r}")
    user = process["user"]
    if (user["uid"], user["gid"]) != (expected["uid"], expected["gid"]):
        problems.append(f"the user is {user['uid']}:{user['gid']}")
    extra = [gid for gid in user.get("additionalGids", ()) if gid != user["gid"]]
    if extra:
        problems.append(f"the process has further groups {extra}")
    held = sorted({name for names in process.get("capabilities", {}).values() for name in names})
    if held:
        problems.append(f"the process has capabilities {', '.join(held)}")
    if process.get("noNewPrivileges") is not True:
        problems.append("no_new_privs is off")
    if process.get("cwd") != "/":
        problems.append(f"it starts in {process.get('cwd')}")
    return problems


def _root(config: "dict[str, Any]") -> "list[str]":
    root = config["root"]
    return [] if root.get("readonly") is True else ["the root file system is writable"]


def _linux(linux: "dict[str, Any]", expected: "dict[str, Any]") -> "list[str]":
    problems = _namespaces(linux["namespaces"], user=bool(expected["user_namespace"]))
    problems += [f"device {device['path']} is added" for device in linux.get("devices", ())]
    allowed = [rule for rule in linux.get("resources", {}).get("devices", ()) if rule.get("allow")]
    problems += [f"device access {rule} is added" for rule in allowed if rule.get("major") is None]
    problems += [f"sysctl {name} is set" for name in linux.get("sysctl", {}) if name not in _SYSCTLS]
    problems += [f"{path} is not masked" for path in _MASKED if path not in linux.get("maskedPaths", ())]
    problems += [f"{path} is not read-only" for path in _READONLY if path not in linux.get("readonlyPaths", ())]
    return problems + _seccomp(linux.get("seccomp"))


def _namespaces(listed: "list[dict[str, str]]", *, user: bool) -> "list[str]":
    """Every namespace is the card's own; only the network one may be handed in (podman makes it before the runtime)."""
    wanted = (*_NAMESPACES, "user") if user else _NAMESPACES
    paths = {one["type"]: one.get("path", "") for one in listed}
    problems = [f"the {kind} namespace is the bench's" for kind in wanted if kind not in paths]
    problems += [
        f"the {kind} namespace is joined at {path}" for kind, path in paths.items() if path and kind != "network"
    ]
    if "/netns/" not in paths.get("network", "") and paths.get("network"):
        problems.append(f"the network namespace is joined at {paths['network']}")
    return problems


def _seccomp(seccomp: "dict[str, Any] | None") -> "list[str]":
    if seccomp is None:
        return ["there is no seccomp filter"]
    if seccomp.get("defaultAction") not in {"SCMP_ACT_ERRNO", "SCMP_ACT_KILL", "SCMP_ACT_KILL_PROCESS"}:
        return [f"seccomp's default action is {seccomp.get('defaultAction')}"]
    allowed = {
        name
        for rule in seccomp.get("syscalls", ())
        if rule.get("action") == "SCMP_ACT_ALLOW" and not rule.get("args")
        for name in rule["names"]
    }
    return [f"seccomp allows {name}" for name in _MUST_NOT_ALLOW if name in allowed]


def _mounts(found: "list[dict[str, Any]]", expected: "list[tuple[str, str, list[str]]]", container: str) -> "list[str]":
    wanted = {destination: (source, set(options)) for destination, source, options in expected}
    podmans: set[str] = set()
    problems: list[str] = []
    for mount in found:
        destination = mount["destination"]
        if destination in wanted:
            problems += _judge_ours(mount, *wanted.pop(destination))
        elif destination in podmans:
            problems.append(f"{mount.get('source')} is mounted twice at {destination}")
        elif _is_podmans(mount, container):
            podmans.add(destination)
        else:
            problems.append(f"{mount.get('source')} is mounted at {destination}")
    return problems + [f"nothing is mounted at {destination}" for destination in wanted]


def _judge_ours(mount: "dict[str, Any]", source: str, options: "set[str]") -> "list[str]":
    """Ours: the right source, every option asked for, and writable only when that was asked for."""
    given = mount.get("options", [])
    problems: list[str] = []
    if mount.get("source") != source:
        problems.append(f"{mount['destination']} is {mount.get('source')}, not {source}")
    lacks = sorted(options.difference(given))
    if lacks:
        problems.append(f"{mount['destination']} is mounted without {', '.join(lacks)}")
    if "ro" in options and "rw" in given:
        problems.append(f"{mount['destination']} is mounted writable")
    return problems


def _is_podmans(mount: "dict[str, Any]", container: str) -> bool:
    """Return whether podman mounts this into every container: the kernel's trees and its own files, read-only."""
    destination, source = mount["destination"], mount.get("source", "")
    options = mount.get("options", [])
    if destination in _KERNEL_MOUNTS:
        return mount.get("type") == _KERNEL_MOUNTS[destination]
    if destination == "/run/podman-init":
        return source.endswith("/catatonit") and "ro" in options
    name = _PODMAN_FILES.get(destination)
    return name is not None and source.endswith(f"/{container}/userdata/{name}") and "ro" in options
