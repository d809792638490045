"""Where the bench's parts lie: the checkout, and the cache folder below it that git ignores.

Everything that costs time to make is in the cache, named after the digest of what it was made from, and may be removed
at any time when no bench runs. Imports the standard library and `debian`.
"""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from infra.debian import say

CHECKOUT = Path(__file__).resolve().parents[2]
CACHE = CHECKOUT / ".cache" / "bench"
LOCK = CACHE / "lock"
STAGING = CACHE / "staging"
DEFAULT_WORLD = CHECKOUT / "infra/bench/worlds/default.toml"
DIGEST_LENGTH = 16


def digest(parts: Iterable[bytes]) -> str:
    """Return a short hex name for the parts; two lists that differ anywhere have different names."""
    total = hashlib.sha256()
    for part in parts:
        total.update(len(part).to_bytes(8, "little"))
        total.update(part)
    return total.hexdigest()[:DIGEST_LENGTH]


def sources(*folders: Path) -> list[Path]:
    """Return the files below the folders, sorted, without an interpreter's compiled ones."""
    found = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in found if "__pycache__" not in path.parts)


def digest_files(paths: Iterable[Path]) -> str:
    """Return the digest of the files' names below the checkout and their contents."""
    return digest(part for path in paths for part in (os.fsencode(path.relative_to(CHECKOUT)), path.read_bytes()))


def hold(path: Path, *, exclusive: bool, waiting: Callable[[], None] | None = None) -> int | None:
    """Take a flock(2) on a file or folder that exists and return its descriptor, which holds it until closed.

    With `waiting`, a lock that another has is waited for, after calling that; without, None is returned instead.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    operation = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        if waiting is None:
            os.close(descriptor)
            return None
        waiting()
        fcntl.flock(descriptor, operation)
    return descriptor


def folder(kind: str, name: str) -> Path:
    """Return where the made thing of that kind and name is, or will be."""
    return CACHE / f"{kind}-{name}"


def made(kind: str, name: str, make: Callable[[Path], None], *, keep: int = 0) -> Path:
    """Return CACHE/kind-name, made by `make` if it is not there, and held (shared) until this process ends.

    It is made aside and renamed: what carries the name is complete, and a failure leaves nothing under that name.
    Making one may not make another. Older ones of the kind are removed, but the newest `keep` and what a run holds.
    """
    path = folder(kind, name)
    if _held(path):
        return path
    CACHE.mkdir(parents=True, exist_ok=True)
    building = CACHE / "building"
    building.touch()
    lock = hold(building, exclusive=True, waiting=lambda: say("bench", "waiting for another build"))
    assert lock is not None  # noqa: S101 - hold() waits when it is told what to call
    try:
        if not path.is_dir():
            _make_aside(kind, path, make)
            _remove_older(kind, path, keep)
        hold(path, exclusive=False, waiting=lambda: None)
    finally:
        os.close(lock)
    return path


def _held(path: Path) -> bool:
    """Hold a made folder if it is there: it was not removed before it was held, and cannot be from then on."""
    try:
        lock = hold(path, exclusive=False)
        return lock is not None and os.path.samestat(os.fstat(lock), path.stat())
    except FileNotFoundError:
        return False


def _make_aside(kind: str, path: Path, make: Callable[[Path], None]) -> None:
    """Make a folder beside `path` and give it that name when it is complete."""
    aside = Path(tempfile.mkdtemp(prefix=f".{kind}-", dir=CACHE))
    try:
        aside.chmod(0o755)
        make(aside)
        aside.rename(path)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def _remove_older(kind: str, path: Path, keep: int) -> None:
    """Remove the other folders of this kind, also half-made ones, that no run holds."""
    others = sorted((old for old in CACHE.glob(f"{kind}-*") if old != path), key=lambda old: -old.stat().st_mtime)
    for old in (*others[keep:], *CACHE.glob(f".{kind}-*")):
        lock = hold(old, exclusive=True)
        if lock is not None:
            shutil.rmtree(old, ignore_errors=True)
            os.close(lock)
