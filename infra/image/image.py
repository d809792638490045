"""Building the card image: a root filesystem tar from Debian packages, and podman's build of the Containerfile over it.

The tar is cached under the checkout by its recipe's digest. Works with any podman, rootless too; the packages come from
the machine's own mirror. Imports the standard library and siblings.
"""

import argparse
import fcntl
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from infra import debian
from infra.debian import SUITE, BuildError, bootstrap, checked, install_missing, say

PACKAGES = ("git", "python3", "curl", "ca-certificates")
TAG = "localhost/card-run/card:latest"
HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[1] / ".cache" / "image"
CONTAINERFILE = HERE / "Containerfile"
EXIT_CANNOT_BUILD = 1


def recipe(packages: tuple[str, ...] = PACKAGES) -> str:
    """Return everything that a root filesystem of those packages is made from."""
    return repr((SUITE, packages, Path(debian.__file__).read_text(encoding="utf-8")))


def rootfs_tar(packages: tuple[str, ...] = PACKAGES, kind: str = "rootfs") -> Path:
    """Return a root filesystem's tar, made if its recipe has none yet; older ones of its kind are removed."""
    path = CACHE / f"{kind}-{hashlib.sha256(recipe(packages).encode()).hexdigest()[:16]}.tar"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.is_file():
            _make_tar(path, packages, kind)
    return path


def _make_tar(path: Path, packages: tuple[str, ...], kind: str) -> None:
    """Make the tar aside, and give it its name when it is complete."""
    install_missing("image")
    say("image", f"making the root filesystem ({SUITE}: {', '.join(packages)}), once")
    with tempfile.TemporaryDirectory(dir=CACHE) as aside:
        made = Path(aside) / path.name
        bootstrap(made, packages)
        for old in CACHE.glob(f"{kind}-*.tar"):
            old.unlink()
        made.rename(path)


def build(tar: Path, authorities: list[Path], tag: str) -> None:
    """Build the image with the podman on PATH, from that tar, trusting those authorities too."""
    podman = shutil.which("podman")
    if podman is None:
        raise BuildError("no podman on PATH")
    with tempfile.TemporaryDirectory(prefix="card-image-") as context:
        trust = Path(context) / "trust"
        trust.mkdir()
        for authority in authorities:
            shutil.copy(authority, trust)
        _link_or_copy(tar, Path(context) / "rootfs.tar")
        argv = [podman, "build", "--quiet", "--pull=never", "--network=none", "--file", str(CONTAINERFILE)]
        checked([*argv, "--tag", tag, context])


def _link_or_copy(source: Path, target: Path) -> None:
    """Give the build a file of its own: a second name where that can be had, since podman follows no link out."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parsing = argparse.ArgumentParser(prog="infra/image/build", description="Build the card image with podman.")
    parsing.add_argument("--rootfs", metavar="TAR", type=Path, help="a root filesystem made before; default: make one")
    parsing.add_argument("--ca", metavar="FILE", type=Path, action="append", default=[], help="an authority to trust")
    parsing.add_argument("--tag", metavar="NAME", default=TAG, help=f"the image's name; default: {TAG}")
    return parsing


def main(arguments: list[str]) -> int:
    """Run the command line and return the exit status."""
    options = parser().parse_args(arguments)
    try:
        build(options.rootfs or rootfs_tar(), options.ca, options.tag)
    except BuildError as error:
        say("image", str(error))
        return EXIT_CANNOT_BUILD
    say("image", f"built {options.tag}")
    return 0
