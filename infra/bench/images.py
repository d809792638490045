"""The images that every run finds: the card image, trusting the test CA, and a busybox image with no Python in it.

On demand also one with the tools that people run in cards. Built once, by the bench's own podman, into a store for its
user and one for root. Runs see the stores read-only, as podman's additional image stores: many runs can share them,
and none can spoil them. Imports the standard library and siblings.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from infra.bench import enter, layout, parts, view, world
from infra.bench.rootfs import UID, Root
from infra.debian import BuildError, say
from infra.image import image

TAR, CA = "/run/card.tar", "/run/ca.crt"
RECIPE = (
    "infra/bench/fill.py",
    "infra/bench/images.py",
    "infra/bench/Containerfile.busybox",
    "infra/image/Containerfile",
    "infra/image/image.py",
)


@dataclass(frozen=True, slots=True)
class Kind:
    """An image made from Debian packages: the names of its stores and of its tar, its tag, whose stores there are."""

    stores: str
    tar: str
    tag: str
    packages: tuple[str, ...]
    for_root: bool


CARD = Kind("images", "rootfs", image.TAG, image.PACKAGES, for_root=True)
TOOLS = Kind(
    "tools",
    "tools",
    "localhost/card-run/tools:latest",
    (
        *image.PACKAGES,
        *("python3-venv", "python3-pip", "python3-setuptools", "python3-wheel", "python3-pytest-xdist"),
        *("gcc", "libc6-dev", "make", "musl-tools", "nodejs", "npm", "bubblewrap"),
    ),
    for_root=False,  # a gigabyte for each
)


def ensure(root: Root, library: Path, kind: Kind = CARD) -> Path:
    """Return the folder with the kind's stores, `user` and `root`, built when the recipe has no build yet."""
    authority = parts.ca(root)
    document = world.document(layout.DEFAULT_WORLD)
    surroundings = parts.ensure(root, world.build(document))
    names = [root.name, authority.name, image.recipe(kind.packages), repr(kind)]
    recipe = [name.encode() for name in names] + [(layout.CHECKOUT / path).read_bytes() for path in RECIPE]

    def make(folder: Path) -> None:
        tar = image.rootfs_tar(kind.packages, kind.tar)
        say("bench", f"building the {kind.stores}, once for the user{' and once for root' if kind.for_root else ''}")
        for name, owner in (("user", UID), ("root", 0)):
            (folder / name).mkdir()
            os.chown(folder / name, owner, owner)
        binds = ((tar, TAR), (authority / "ca.crt", CA))
        for as_root in _users(root, kind):
            entry = view.Entry(
                argv=("python3", "-I", "-c", view.start("infra.bench.fill"), TAR, CA, kind.tag),
                as_root=as_root,
                rootfs=root.path,
                lib=library,
                storage=folder,
                images=(),
                world=document,
                parts=surroundings,
                trust=authority / "bundle.crt",
                binds=binds,
                cwd="/",
                environment=view.environment(as_root=as_root),
            )
            _fill(entry)

    return layout.made(f"{kind.stores}_{root.suite.name}", layout.digest(recipe), make)


def _users(root: Root, kind: Kind) -> tuple[bool, ...]:
    """Return for whom images can be built: the user, and root where its crun could start containers at all."""
    if not kind.for_root:
        return (False,)
    if root.suite.root_raises_limits and not view.can_raise_limits():
        say("bench", f"no images for root: {root.suite.name}'s crun needs CAP_SYS_RESOURCE to start root's containers")
        return (False,)
    return (False, True)


def _fill(entry: view.Entry) -> None:
    """Run `fill` in the bench; in a child, since entering cannot be undone. Raises BuildError when it fails."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.dup2(2, 1)
            status = enter.run(entry, scratch=None)
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise BuildError("the images cannot be built in the bench")
