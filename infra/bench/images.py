"""The images that every run finds: the card image, trusting the test CA, and a busybox image with no Python in it.

Built once, by the bench's own podman, into one store for its user and one for root. Runs see the stores read-only, as
podman's additional image stores: many runs can share them, and none can spoil them. Imports the standard library and
siblings.
"""

import os
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


def ensure(root: Root, library: Path) -> Path:
    """Return the folder with the image stores `user` and `root`, built when the recipe has no build yet."""
    authority = parts.ca(root)
    document = world.document(layout.DEFAULT_WORLD)
    surroundings = parts.ensure(root, world.build(document))
    names = [root.name, authority.name, image.RECIPE]
    recipe = [name.encode() for name in names] + [(layout.CHECKOUT / path).read_bytes() for path in RECIPE]

    def make(folder: Path) -> None:
        tar = image.rootfs_tar()
        say("bench", "building the images, once for the user and once for root")
        for name, owner in (("user", UID), ("root", 0)):
            (folder / name).mkdir()
            os.chown(folder / name, owner, owner)
        binds = ((tar, TAR), (authority / "ca.crt", CA))
        for as_root in _users(root):
            entry = view.Entry(
                argv=("python3", "-I", "-c", view.start("infra.bench.fill"), TAR, CA),
                as_root=as_root,
                rootfs=root.path,
                lib=library,
                storage=folder,
                images=None,
                world=document,
                parts=surroundings,
                trust=authority / "bundle.crt",
                binds=binds,
                cwd="/",
                environment=view.environment(as_root=as_root),
            )
            _fill(entry)

    return layout.made(f"images_{root.suite.name}", layout.digest(recipe), make)


def _users(root: Root) -> tuple[bool, ...]:
    """Return for whom images can be built: the user, and root where its crun could start containers at all."""
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
