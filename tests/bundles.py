"""A bundle's config.json as podman 5 writes it for a card, and what a plan expects of it, for tests to alter."""

import copy
from typing import Any

CONTAINER = "c0ffee"
_KERNEL = {
    "/proc": "proc",
    "/sys": "sysfs",
    "/dev": "tmpfs",
    "/dev/pts": "devpts",
    "/dev/mqueue": "mqueue",
    "/sys/fs/cgroup": "cgroup",
}
_FILES = {
    "/etc/group": "group",
    "/etc/passwd": "passwd",
    "/etc/hostname": "hostname",
    "/run/.containerenv": ".containerenv",
}
ARGS = ["/run/podman-init", "--", "/run/card-runtime/bin/ld.so", "run"]
EXPECTED: dict[str, Any] = {
    "args": ARGS,
    "uid": 1000,
    "gid": 1000,
    "user_namespace": True,
    "mounts": [
        ["/run/card", "/run/user/1000/card-run/r/card", ["ro", "noexec", "nosuid", "nodev"]],
        ["/tmp", "tmpfs", ["nosuid", "nodev"]],
        ["/srv/w,ork", "/srv/w,ork", ["nosuid", "nodev"]],
    ],
}
_CONFIG: dict[str, Any] = {
    "ociVersion": "1.2.0",
    "process": {
        "args": ARGS,
        "user": {"uid": 1000, "gid": 1000, "umask": 18, "additionalGids": [1000]},
        "cwd": "/",
        "capabilities": {},
        "noNewPrivileges": True,
    },
    "root": {"path": "/x/merged", "readonly": True},
    "mounts": [
        *(
            {"destination": place, "type": kind, "source": kind, "options": ["nosuid"]}
            for place, kind in _KERNEL.items()
        ),
        *(
            {
                "destination": place,
                "type": "bind",
                "source": f"/s/{CONTAINER}/userdata/{name}",
                "options": ["bind", "ro"],
            }
            for place, name in _FILES.items()
        ),
        {"destination": "/run/podman-init", "type": "bind", "source": "/l/catatonit", "options": ["bind", "ro"]},
        {
            "destination": "/run/card",
            "type": "bind",
            "source": "/run/user/1000/card-run/r/card",
            "options": ["ro", "noexec", "nosuid", "nodev", "rbind"],
        },
        {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["mode=1777", "nosuid", "nodev", "rw"]},
        {
            "destination": "/srv/w,ork",
            "type": "bind",
            "source": "/srv/w,ork",
            "options": ["nosuid", "nodev", "rprivate", "rbind"],
        },
    ],
    "linux": {
        "sysctl": {"net.ipv4.ping_group_range": "0 0"},
        "resources": {},
        "namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount", "user", "cgroup")],
        "maskedPaths": ["/proc/kcore", "/proc/keys", "/sys/firmware"],
        "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
        "seccomp": {
            "defaultAction": "SCMP_ACT_ERRNO",
            "syscalls": [{"names": ["read", "write"], "action": "SCMP_ACT_ALLOW"}],
        },
    },
}


def config() -> dict[str, Any]:
    """Return a fresh good config.json."""
    return copy.deepcopy(_CONFIG)


def expected() -> dict[str, Any]:
    """Return what the plan expects of it."""
    return copy.deepcopy(EXPECTED)
