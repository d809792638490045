"""The bench's root filesystem: Debian packages, the Python packages that card-run and its tests need, a few files.

Built once per recipe under the cache and never written to afterwards: a run sees it through an overlay. Nothing in it
comes from anywhere but the machine's own package mirror and pip settings. Imports the standard library and siblings.
"""

import os
import shutil
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from infra import debian
from infra.bench import layout
from infra.debian import bootstrap, checked, install_missing, say
from infra.packaging import entry

USER = "card"
UID = 1000
SUBUIDS = "100000:65536"
PACKAGES = (
    # the container stack under test
    *("podman", "crun", "nftables", "uidmap", "catatonit", "netavark", "aardvark-dns", "slirp4netns"),
    *("fuse-overlayfs", "python3"),
    # the world: links, certificates, repositories
    *("iproute2", "openssl", "git", "curl", "ca-certificates"),
    # for tests and people
    *("busybox-static", "procps", "less", "iputils-ping", "util-linux-extra", "make"),
)
# not card-run's own dependencies; all versions are read from pyproject.toml
TEST_DEPENDENCIES = ("dnspython", "hypothesis", "pytest")
FILES = {
    "etc/hostname": "bench\n",
    "etc/hosts": "127.0.0.1 localhost bench\n::1 localhost\n",
    "etc/resolv.conf": "",
    "etc/subuid": f"{USER}:{SUBUIDS}\n",
    "etc/subgid": f"{USER}:{SUBUIDS}\n",
    "etc/gitconfig": (
        f"[safe]\n\tdirectory = *\n[user]\n\tname = {USER}\n\temail = {USER}@bench.example\n"
        "[init]\n\tdefaultBranch = main\n[advice]\n\tdetachedHead = false\n"
    ),
    # no systemd and no journal in the bench; podman 4 takes a storage with images in it for one from the days of CNI;
    # everything else is as the packages have it
    "etc/containers/containers.conf.d/bench.conf": (
        '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n[network]\nnetwork_backend = "netavark"\n'
    ),
    # no short name resolves: nothing is ever pulled here
    # The world's "internet" is made of documentation addresses; only a bench that says so may pin one.
    "etc/card-run/config.toml": "documentation_ranges = true\n",
    "etc/containers/registries.conf": "unqualified-search-registries = []\n",
}
LIB = "/opt/card-run/lib"
COMMANDS = {**entry.COMMANDS, "world-seen": "infra.bench.seen"}


def dependencies() -> list[str]:
    """Return what pip must put into the bench, from pyproject.toml."""
    project = tomllib.loads((layout.CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras: list[str] = [line for line in project["optional-dependencies"]["dev"] if line.startswith(TEST_DEPENDENCIES)]
    return [*project["dependencies"], *extras]


@dataclass(frozen=True, slots=True)
class Suite:
    """A Debian release to make the bench of: its own Python's version, and packages that only it needs."""

    name: str
    python: str
    packages: tuple[str, ...] = ()
    root_raises_limits: bool = False  # crun before 1.9 raises RLIMIT_MEMLOCK to start root's containers


# trixie has podman 5.4, nft 1.1 and pasta; bookworm podman 4.3, nft 1.0.6 and slirp4netns alone, and a netavark that
# calls iptables
TRIXIE = Suite("trixie", "3.13", ("passt",))
BOOKWORM = Suite("bookworm", "3.11", ("iptables",), root_raises_limits=True)
SUITES = {suite.name: suite for suite in (TRIXIE, BOOKWORM)}
DEFAULT_SUITE = "trixie"


@dataclass(frozen=True, slots=True)
class Root:
    """A built root filesystem."""

    path: Path
    suite: Suite

    @property
    def name(self) -> str:
        """Its name, which changes with its recipe."""
        return self.path.name

    @property
    def python(self) -> str:
        """Its own interpreter."""
        return f"/usr/bin/python{self.suite.python}"

    @property
    def packages(self) -> str:
        """The folder of the Python packages that are not Debian's."""
        return f"/usr/local/lib/python{self.suite.python}/dist-packages"


def recipe(suite: Suite) -> str:
    """Return the digest of what the root filesystem is made from: this code and the dependencies."""
    words = [repr(suite), *dependencies()]
    code = [Path(file).read_bytes() for file in (__file__, debian.__file__, entry.__file__)]
    return layout.digest([*code, *(word.encode() for word in words)])


def built(suite: Suite) -> bool:
    """Say whether the root filesystem is there already."""
    return layout.folder(f"rootfs_{suite.name}", recipe(suite)).is_dir()


def ensure(suite: Suite) -> Root:
    """Return the root filesystem, built when the recipe has no build yet."""

    def make(folder: Path) -> None:
        _build(Root(folder, suite))

    return Root(layout.made(f"rootfs_{suite.name}", recipe(suite), make), suite)


def inside(root: Root, argv: list[str], *, bind: tuple[Path, str]) -> None:
    """Run a program of the root filesystem, with a folder to write to; the root filesystem itself stays as it is.

    The folder is seen at a place that exists in the root filesystem. Raises BuildError when the program fails.
    """
    script = 'mount --bind "$1" "$2$3" && exec chroot "$2" /usr/bin/env -i PATH=/usr/bin:/usr/sbin "${@:4}"'
    checked(["unshare", "--mount", "bash", "-c", script, "bash", str(bind[0]), str(root.path), bind[1], *argv])


def _build(root: Root) -> None:
    """Build the root filesystem in an empty folder."""
    install_missing("bench")
    packages = (*PACKAGES, *root.suite.packages)
    say("bench", f"building the root filesystem ({root.suite.name}, {len(packages)} packages), once")
    bootstrap(root.path, packages, root.suite.name)
    root.path.chmod(0o755)
    _add_user(root.path)
    _write_files(root)
    _add_python_packages(root)


def _add_user(root: Path) -> None:
    """Add the unprivileged user, without a password and without asking the machine's own user database."""
    for name, line in (
        ("passwd", f"{USER}:x:{UID}:{UID}::/home/{USER}:/bin/bash\n"),
        ("group", f"{USER}:x:{UID}:\n"),
        ("shadow", f"{USER}:*:20000:0:99999:7:::\n"),
        ("gshadow", f"{USER}:!::\n"),
    ):
        with (root / "etc" / name).open("a", encoding="utf-8") as file:
            file.write(line)
    home = root / "home" / USER
    storage = home / ".local/share/containers"
    storage.mkdir(parents=True, exist_ok=True)
    for folder in (home, home / ".local", home / ".local/share", storage):
        os.chown(folder, UID, UID)


def _write_files(root: Root) -> None:
    """Write the configuration and the commands, and make the folders that a run mounts on."""
    for name, text in FILES.items():
        path = root.path / name
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for command, module in COMMANDS.items():
        path = root.path / "usr/local/bin" / command
        program = entry.text(module, python="/usr/bin/python3", lib=LIB, dependencies=[root.packages])
        path.write_text(program, encoding="utf-8")
        path.chmod(0o755)
    for name in ("src", LIB.lstrip("/"), "opt/bench", "var/lib/containers"):
        (root.path / name).mkdir(parents=True, exist_ok=True)


def _add_python_packages(root: Root) -> None:
    """Install the Python packages where the bench's own interpreter looks (with -I as well), compiled."""
    say("bench", "installing the Python packages")
    target = root.packages.lstrip("/")
    argv = [sys.executable, "-m", "pip", "install", "-qq", "--root-user-action=ignore", "--no-compile"]
    argv += ["--target", str(root.path / target), "--python-version", root.suite.python, "--implementation", "cp"]
    argv += ["--only-binary=:all:", "--no-warn-script-location", *dependencies()]
    checked(argv)
    shutil.rmtree(root.path / target / "bin", ignore_errors=True)
    checked(["chroot", str(root.path), root.python, "-I", "-m", "compileall", "-q", f"/{target}"])
