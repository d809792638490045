"""The command line of infra/bench/run: build what is missing, then enter. Imports the standard library and siblings."""

import argparse
import os
import shutil
import stat
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from infra.bench import enter, images, layout, lib, parts, rootfs, view, world
from infra.debian import BuildError, install_missing, say
from infra.image import image

EXIT_USAGE = 2
EXIT_CANNOT_BUILD = 125
EPILOG = """examples:
  infra/bench/run                                  a shell as the bench's user
  infra/bench/run card-run -- true                 one card
  infra/bench/run --root nft list ruleset          as root
  infra/bench/run --bind /tmp/out:/out make -C /src test"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parsing = argparse.ArgumentParser(
        prog="infra/bench/run",
        description="Run a command on the test bench, in a fresh world.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parsing.add_argument("--root", action="store_true", help="run the command as root, not as the bench's user")
    parsing.add_argument(
        "--world", metavar="FILE", default=layout.DEFAULT_WORLD, help="another description of the world (TOML)"
    )
    parsing.add_argument("--bind", metavar="SRC:DST", action="append", default=[], help="show SRC at DST, writable")
    parsing.add_argument("--fresh", action="store_true", help="with an empty podman storage, beside other runs")
    parsing.add_argument("--images", choices=("tools",), help="with the image of users' tools too, which is large")
    suites = tuple(rootfs.SUITES)
    parsing.add_argument("--release", choices=suites, default=rootfs.DEFAULT_SUITE, help="the Debian release to be")
    parsing.add_argument("command", nargs=argparse.REMAINDER, metavar="CMD", help="what to run; default: a shell")
    return parsing


def main(arguments: list[str]) -> int:
    """Run the command line and return the exit status."""
    options = parser().parse_args(arguments)
    if os.geteuid() != 0:
        say("bench", "needs root (it makes namespaces and device nodes): try sudo infra/bench/run ...")
        return EXIT_USAGE
    os.umask(0o022)  # what is built here is for the bench's user too
    try:
        return _run(options)
    except (BuildError, OSError) as error:
        say("bench", str(error))
        return EXIT_CANNOT_BUILD


def _run(options: argparse.Namespace) -> int:
    """Build, take the storage, enter."""
    _check_readable()
    root = _build_both(rootfs.SUITES[options.release])
    library = lib.ensure(root)
    command: list[str] = options.command
    if command[:1] == ["--"]:
        command = command[1:]
    try:
        document = world.document(_world_file(options.world))
        description = world.build(document)
    except world.WorldError as error:
        raise BuildError(f"--world {options.world}:\n{error}") from error
    made = parts.ensure(root, description)
    stores = [images.ensure(root, library)]
    stores += [images.ensure(root, library, images.TOOLS)] if options.images == "tools" else []
    storage, scratch = _storage(options.release, fresh=options.fresh)
    entry = view.Entry(
        argv=tuple(command) or ("bash",),
        as_root=options.root,
        rootfs=root.path,
        lib=library,
        storage=storage,
        images=tuple(stores),
        world=document,
        parts=made,
        trust=parts.ca(root) / "bundle.crt",
        binds=tuple(_bind(text) for text in options.bind),
        cwd=_cwd(as_root=options.root),
        environment=view.environment(as_root=options.root),
    )
    return enter.run(entry, scratch=scratch)


def _world_file(text: str) -> Path:
    """Return the world file that a path, or the bare name of one of ours, means."""
    ours = layout.DEFAULT_WORLD.parent / f"{text}.toml"
    return ours if "/" not in str(text) and ours.is_file() else Path(text)


def _check_readable() -> None:
    """Raise BuildError when the bench's user could not read the checkout: it is shown with the modes that it has."""
    for path in (layout.CHECKOUT, layout.CHECKOUT / "pyproject.toml"):
        if not path.stat().st_mode & stat.S_IROTH:
            raise BuildError(
                f"others cannot read {path}, so the bench's user could not: chmod -R o+rX {layout.CHECKOUT}"
            )


def _build_both(suite: rootfs.Suite) -> rootfs.Root:
    """Return the root filesystem, and have the card image's made meanwhile when both are missing: they take longest."""
    if rootfs.built(suite):
        return rootfs.ensure(suite)
    install_missing("bench")
    with ThreadPoolExecutor(max_workers=1) as pool:
        tar = pool.submit(image.rootfs_tar)
        root = rootfs.ensure(suite)
        tar.result()
    return root


def _storage(suite: str, *, fresh: bool) -> tuple[Path, Path | None]:
    """Return podman's storage for this run, held against other runs, and the folder to remove afterwards."""
    if fresh:
        runs = layout.CACHE / "runs"
        runs.mkdir(exist_ok=True)
        _remove_left_over(runs)
        place = Path(tempfile.mkdtemp(prefix="run-", dir=runs))
        place.chmod(0o755)
        layout.hold(place, exclusive=True)
    else:
        place = layout.CACHE / f"storage_{suite}"
        place.mkdir(exist_ok=True)
        layout.hold(place, exclusive=True, waiting=lambda: say("bench", "waiting for another bench run"))
    for name, owner in (("user", rootfs.UID), ("root", 0)):
        (place / name).mkdir(exist_ok=True)
        os.chown(place / name, owner, owner)
    return place, place if fresh else None


def _remove_left_over(runs: Path) -> None:
    """Remove the storage of fresh runs that no process holds any more: their sweeper was killed too."""
    for place in runs.iterdir():
        lock = layout.hold(place, exclusive=True)
        if lock is not None:
            shutil.rmtree(place, ignore_errors=True)
            os.close(lock)


def _bind(text: str) -> tuple[Path, str]:
    """Return the two ends of a --bind; raises BuildError when it is not SRC:DST with SRC there and DST absolute."""
    source, colon, target = text.rpartition(":")
    if not colon or not target.startswith("/") or not Path(source).exists():
        raise BuildError(f"--bind {text}: not SRC:DST with an existing SRC and an absolute DST")
    return Path(source).resolve(), target


def _cwd(*, as_root: bool) -> str:
    """Return where to start: the same folder of the checkout as here, else the user's home."""
    here = Path.cwd().resolve()
    if here.is_relative_to(layout.CHECKOUT):
        return str("/src" / here.relative_to(layout.CHECKOUT))
    return "/root" if as_root else f"/home/{rootfs.USER}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
