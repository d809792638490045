"""The bench's root filesystem: Debian packages, the Python packages that card-run and its tests need, a few files.

Built once per recipe under the cache and never written to afterwards: a run sees it through an overlay. Nothing in it
comes from anywhere but the machine's own package mirror and pip settings. Imports the standard library and siblings.
"""

import os
import shutil
import sys
import tomllib
from pathlib import Path

from infra.bench import layout
from infra.debian import SUITE, bootstrap, checked, install_missing, say

PYTHON = "3.13"
USER = "card"
UID = 1000
SUBUIDS = "100000:65536"
PACKAGES = (
    # the container stack under test
    *("podman", "crun", "passt", "nftables", "uidmap", "catatonit", "netavark", "aardvark-dns", "slirp4netns"),
    *("fuse-overlayfs", "python3"),
    # the world: links, certificates, repositories
    *("iproute2", "openssl", "git", "curl", "ca-certificates"),
    # for tests and people
    *("busybox-static", "procps", "less", "iputils-ping", "util-linux-extra", "make"),
)
# not card-run's own dependencies: those, and pytest and hypothesis, are read from pyproject.toml
TEST_DEPENDENCIES = ("pytest", "hypothesis")
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
    # no systemd and no journal in the bench; everything else is as the packages have it
    "etc/containers/containers.conf.d/bench.conf": '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n',
    # no short name resolves: nothing is ever pulled here
    "etc/containers/registries.conf": "unqualified-search-registries = []\n",
}
WRAPPER = """#!/usr/bin/python3 -I
import sys
sys.path.insert(0, "/opt/card-run/lib")
from {module} import main
if __name__ == "__main__":
    sys.exit(main())
"""
WRAPPERS = {"card-run": "launcher.cli", "card": "launcher.card", "world-seen": "infra.bench.seen"}


def dependencies() -> list[str]:
    """Return what pip must put into the bench, from pyproject.toml."""
    project = tomllib.loads((layout.CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras: list[str] = [line for line in project["optional-dependencies"]["dev"] if line.startswith(TEST_DEPENDENCIES)]
    return [*project["dependencies"], *extras]


def recipe() -> str:
    """Return the digest of what the root filesystem is made from: this file and the dependencies."""
    return layout.digest([Path(__file__).read_bytes(), *(line.encode() for line in dependencies())])


def built() -> bool:
    """Say whether the root filesystem is there already."""
    return layout.folder("rootfs", recipe()).is_dir()


def ensure() -> Path:
    """Return the root filesystem's folder, built when the recipe has no build yet."""
    return layout.made("rootfs", recipe(), _build)


def inside(root: Path, argv: list[str], *, bind: tuple[Path, str]) -> None:
    """Run a program of the root filesystem, with a folder to write to; the root filesystem itself stays as it is.

    The folder is seen at a place that exists in the root filesystem. Raises BuildError when the program fails.
    """
    script = 'mount --bind "$1" "$2$3" && exec chroot "$2" /usr/bin/env -i PATH=/usr/bin:/usr/sbin "${@:4}"'
    checked(["unshare", "--mount", "bash", "-c", script, "bash", str(bind[0]), str(root), bind[1], *argv])


def _build(root: Path) -> None:
    """Build the root filesystem in an empty folder."""
    install_missing("bench")
    say("bench", f"building the root filesystem ({SUITE}, {len(PACKAGES)} packages), once")
    bootstrap(root, PACKAGES)
    root.chmod(0o755)
    _add_user(root)
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


def _write_files(root: Path) -> None:
    """Write the configuration and the commands, and make the folders that a run mounts on."""
    for name, text in FILES.items():
        path = root / name
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for command, module in WRAPPERS.items():
        path = root / "usr/local/bin" / command
        path.write_text(WRAPPER.format(module=module), encoding="utf-8")
        path.chmod(0o755)
    for name in ("src", "opt/card-run/lib", "opt/bench", "var/lib/containers"):
        (root / name).mkdir(parents=True, exist_ok=True)


def _add_python_packages(root: Path) -> None:
    """Install the Python packages where the bench's own interpreter looks (with -I as well), compiled."""
    say("bench", "installing the Python packages")
    target = f"usr/local/lib/python{PYTHON}/dist-packages"
    argv = [sys.executable, "-m", "pip", "install", "-qq", "--root-user-action=ignore", "--no-compile"]
    argv += ["--target", str(root / target), "--python-version", PYTHON, "--implementation", "cp"]
    argv += ["--only-binary=:all:", "--no-warn-script-location", *dependencies()]
    checked(argv)
    shutil.rmtree(root / target / "bin", ignore_errors=True)
    checked(["chroot", str(root), f"/usr/bin/python{PYTHON}", "-I", "-m", "compileall", "-q", f"/{target}"])
