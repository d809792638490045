"""What the bench sees: its root, devices, control groups, storage and sources, all in a mount namespace of its own.

The root is an overlay whose upper layer is memory, so each run starts from the built root filesystem. The host's root
is left by pivot_root (user namespaces are refused in a chroot) and detached. Imports the standard library and siblings.
"""

import json
import os
import resource
import stat
from dataclasses import dataclass
from pathlib import Path

from infra.bench import layout, linux
from infra.bench.rootfs import LIB, UID, USER

EXIT_CANNOT_ENTER = 125
ENTRY_FILE = "/run/bench/entry.json"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PASSED = ("TERM", "COLORTERM", "NO_COLOR", "CI")
HARMLESS_DEVICES = {"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9}
LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}
LIMITS = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
CAP_SYS_RESOURCE = 24  # linux/capability.h
CONTAINER_STORAGE = {"user": f"home/{USER}/.local/share/containers", "root": "var/lib/containers"}
STORAGE_CONF = {"user": f"home/{USER}/.config/containers/storage.conf", "root": "etc/containers/storage.conf"}
# the rootless podman finds its own, root's wants to be told
ROOTS = {"user": "", "root": 'graphroot = "/var/lib/containers/storage"\nrunroot = "/run/containers/storage"\n'}


@dataclass(frozen=True, slots=True)
class Entry:
    """One run: what to see and what to execute. Paths are the machine's, but `binds`' targets and `cwd`."""

    argv: tuple[str, ...]
    as_root: bool
    rootfs: Path
    lib: Path
    storage: Path
    images: tuple[Path, ...]
    world: dict[str, object]
    parts: Path
    trust: Path
    binds: tuple[tuple[Path, str], ...]
    cwd: str
    environment: dict[str, str]


def start(module: str) -> str:
    """Return the Python text that runs a module of card-run's packages as a program inside the bench."""
    return f"import sys; sys.path.insert(0, {LIB!r}); from {module} import main; sys.exit(main())"


def environment(*, as_root: bool) -> dict[str, str]:
    """Return the command's environment: a login's, and nothing of the machine's but the terminal's and CI."""
    passed = {name: os.environ[name] for name in PASSED if name in os.environ}
    passed |= {"PATH": PATH, "LANG": "C.UTF-8"}
    if as_root:
        return passed | {"HOME": "/root", "USER": "root", "LOGNAME": "root"}
    runtime = f"/run/user/{UID}"
    return passed | {"HOME": f"/home/{USER}", "USER": USER, "LOGNAME": USER, "XDG_RUNTIME_DIR": runtime}


def stage() -> None:
    """Mount the memory that holds the run's upper layer, and the cgroup2 hierarchy as this process sees it."""
    layout.STAGING.mkdir(parents=True, exist_ok=True)
    linux.mount("bench", str(layout.STAGING), "tmpfs", data="mode=0755")
    for name in ("upper", "work", "root", "cgroup"):
        (layout.STAGING / name).mkdir()
    linux.mount("cgroup2", str(layout.STAGING / "cgroup"), "cgroup2")


def enter(entry: Entry, *, group: Path) -> None:
    """Leave every namespace of the machine's, build the view, and become the bench's init. Does not return."""
    os.chown(group, UID, UID)
    for name in ("cgroup.procs", "cgroup.subtree_control", "cgroup.threads"):
        os.chown(group / name, UID, UID)
    # control groups: the namespace's root must be the run's group, not the leaf this process lives in
    _join_root_of_group(group)
    namespaces = linux.CLONE_NEWNS | linux.CLONE_NEWNET | linux.CLONE_NEWIPC | linux.CLONE_NEWUTS
    linux.unshare(namespaces)
    root = layout.STAGING / "root"
    _overlay(entry.rootfs)
    _kernel_filesystems(root)
    _devices(root / "dev")
    _folders(root)
    _binds(root, entry)
    _limits(root)
    _write_entry(root, entry)
    os.chdir(root)
    linux.pivot_root(".", ".")
    linux.umount2(".", linux.MNT_DETACH)
    os.chdir("/")
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_SHARED)
    argv = ["python3", "-I", "-c", start("infra.bench.init")]
    os.execve("/usr/bin/python3", argv, {"PATH": "/usr/sbin:/usr/bin", "LANG": "C.UTF-8"})  # noqa: S606 - no shell


def _join_root_of_group(group: Path) -> None:
    """Make the run's group the root of a new cgroup namespace, then step down into its leaf again."""
    (group / "cgroup.procs").write_text("0", encoding="ascii")
    linux.unshare(linux.CLONE_NEWCGROUP)
    (group / "bench" / "cgroup.procs").write_text("0", encoding="ascii")


def _overlay(rootfs: Path) -> None:
    """Mount the root: relative paths, because a colon or comma in the checkout's own path would split the options."""
    os.chdir(layout.CACHE)
    staging = layout.STAGING.name
    data = f"lowerdir={rootfs.name},upperdir={staging}/upper,workdir={staging}/work"
    linux.mount("bench", f"{staging}/root", "overlay", data=data)


def _kernel_filesystems(root: Path) -> None:
    """Mount what the kernel provides, and the memory-backed folders that are fresh in each run."""
    hard = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
    linux.mount("proc", str(root / "proc"), "proc", flags=hard)
    linux.mount("sysfs", str(root / "sys"), "sysfs", flags=hard)
    linux.mount("cgroup2", str(root / "sys/fs/cgroup"), "cgroup2", flags=hard)
    linux.mount("dev", str(root / "dev"), "tmpfs", flags=linux.MS_NOSUID, data="mode=0755")
    linux.mount("run", str(root / "run"), "tmpfs", flags=linux.MS_NOSUID | linux.MS_NODEV, data="mode=0755")
    linux.mount("tmp", str(root / "tmp"), "tmpfs", flags=linux.MS_NOSUID | linux.MS_NODEV, data="mode=1777")


def _devices(dev: Path) -> None:
    """Make the device nodes: the harmless ones, and tun and fuse usable by all, which pasta and fuse-overlayfs need."""
    os.umask(0)
    for name, minor in HARMLESS_DEVICES.items():
        os.mknod(dev / name, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
    os.mknod(dev / "tty", 0o666 | stat.S_IFCHR, os.makedev(5, 0))
    os.mknod(dev / "fuse", 0o666 | stat.S_IFCHR, os.makedev(10, 229))
    (dev / "net").mkdir(mode=0o755)
    os.mknod(dev / "net/tun", 0o666 | stat.S_IFCHR, os.makedev(10, 200))
    os.umask(0o022)
    for name, target in LINKS.items():
        (dev / name).symlink_to(target)
    for name, kind, flags, data in (
        ("pts", "devpts", linux.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5"),
        ("shm", "tmpfs", linux.MS_NODEV, "mode=1777"),
        ("mqueue", "mqueue", linux.MS_NODEV, ""),
    ):
        (dev / name).mkdir()
        linux.mount(name, str(dev / name), kind, flags=linux.MS_NOSUID | flags, data=data)
    _terminal(dev)


def _terminal(dev: Path) -> None:
    """Show the caller's terminal as /dev/console, so that ttyname(3) finds a name for it in here."""
    for descriptor in range(3):
        if os.isatty(descriptor):
            (dev / "console").touch()
            linux.bind(os.ttyname(descriptor), str(dev / "console"))
            return


def _folders(root: Path) -> None:
    """Make the run directories, each with the owner and mode that a login would give it."""
    runtime = root / f"run/user/{UID}"
    runtime.mkdir(parents=True)
    runtime.chmod(0o700)
    os.chown(runtime, UID, UID)
    (root / "run/lock").mkdir(mode=0o755)
    (root / "run/bench").mkdir(mode=0o700)


def _binds(root: Path, entry: Entry) -> None:
    """Bind the checkout and card-run's packages read-only, podman's storage, and what the caller asked for."""
    linux.bind(str(layout.CHECKOUT), str(root / "src"), readonly=True)
    if (root / "src/.cache").is_dir():  # the bench's own cache is no part of the sources
        linux.mount("none", str(root / "src/.cache"), "tmpfs", flags=linux.MS_RDONLY, data="mode=0555")
    linux.bind(str(entry.lib), str(root / LIB[1:]), readonly=True)
    (root / "run/bench/world").mkdir()
    linux.bind(str(entry.parts), str(root / "run/bench/world"), readonly=True)
    linux.bind(str(entry.trust), str(root / "etc/ssl/certs/ca-certificates.crt"), readonly=True)
    for name, home in CONTAINER_STORAGE.items():
        linux.bind(str(entry.storage / name), str(root / home))
        _storage_conf(root, name, entry.images)
    for source, target in entry.binds:
        place = root / target.lstrip("/")
        if source.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
        linux.mount(str(source), str(place), flags=linux.MS_BIND | linux.MS_REC)


def _storage_conf(root: Path, name: str, images: tuple[Path, ...]) -> None:
    """Tell podman, the user's or root's, to use overlay, and the stores of images that are there for it, read-only."""
    text = f'[storage]\ndriver = "overlay"\n{ROOTS[name]}'
    stores = [store / name / "storage" for store in images if (store / name / "storage").is_dir()]
    places = [f"var/lib/bench/images/{name}{number or ''}" for number in range(len(stores))]
    for store, place in zip(stores, places, strict=True):
        (root / place).mkdir(parents=True)
        linux.bind(str(store), str(root / place), readonly=True)
    if places:
        text += f"[storage.options]\nadditionalimagestores = {json.dumps([f'/{place}' for place in places])}\n"
    conf = root / STORAGE_CONF[name]
    for folder in reversed([folder for folder in conf.parents if not folder.exists()]):
        folder.mkdir()
        os.chown(folder, UID, UID)
    conf.write_text(text, encoding="ascii")


def _limits(root: Path) -> None:
    """Tell root's podman to ask for no limit that this machine cannot give: crun refuses to start otherwise."""
    lines = ["[containers]"]
    if not can_raise_limits():
        limits = ((name, resource.getrlimit(number)[1]) for name, number in LIMITS.items())
        lines.append(f"default_ulimits = {json.dumps([f'{name}={hard}:{hard}' for name, hard in limits])}")
    controllers = (root / "sys/fs/cgroup/cgroup.controllers").read_text(encoding="ascii").split()
    if "pids" not in controllers:
        lines.append("pids_limit = 0")
    place = root / "etc/containers/containers.conf.d/limits.conf"
    place.write_text("\n".join([*lines, ""]), encoding="ascii")


def can_raise_limits() -> bool:
    """Say whether this process has CAP_SYS_RESOURCE."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    effective = int(status.partition("CapEff:\t")[2].partition("\n")[0], 16)
    return bool(effective >> CAP_SYS_RESOURCE & 1)


def _write_entry(root: Path, entry: Entry) -> None:
    """Leave for init what it is to run."""
    text = json.dumps(
        {
            "argv": entry.argv,
            "as_root": entry.as_root,
            "cwd": entry.cwd,
            "environment": entry.environment,
            "world": entry.world,
        }
    )
    (root / ENTRY_FILE[1:]).write_text(text, encoding="utf-8")
