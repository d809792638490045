"""card-run as the bench runs it: this checkout's packages, copied and compiled by the bench's own interpreter.

Made again whenever a source changes. A copy, because the checkout is mounted read-only and may hold another
interpreter's compiled files. Imports the standard library and siblings.
"""

import shutil
from pathlib import Path

from infra.bench import layout
from infra.bench.rootfs import LIB, Root, inside
from infra.debian import BuildError, say

PACKAGES = ("oci", "hooks", "launcher", "infra")


def ensure(root: Root) -> Path:
    """Return the folder with the compiled packages, for the interpreter in the root filesystem `root`."""
    files = layout.sources(*(layout.CHECKOUT / name for name in PACKAGES))
    name = f"{layout.digest_files(files)}-{root.name.rpartition('-')[2][:8]}"

    def make(folder: Path) -> None:
        for file in files:
            target = folder / file.relative_to(layout.CHECKOUT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
        argv = [
            root.python,
            "-I",
            "-m",
            "compileall",
            "-q",
            "--invalidation-mode",
            "unchecked-hash",
            LIB,
        ]
        try:
            inside(root, argv, bind=(folder, LIB))
        except BuildError as error:
            say("bench", f"not all of card-run compiles, it goes in as it is ({error})")

    return layout.made(f"lib_{root.suite.name}", name, make)
