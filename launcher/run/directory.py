"""The run directory: where a run's plan, proof, pin and ledger live while it lives (DESIGN "Run directory").

Owner-only, made fresh, consumed by its run. Two locks (flock(2)), which the kernel drops if their holder dies: the one
on `plan.lock` tells the hook that the plan is not whole yet; the one on the directory itself says that somebody answers
for the run, and is held by whoever runs it or cleans up after it.
"""

import fcntl
import os
import stat
import time

from oci.refusal import Refusal, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

STAGE2_DIRECTORY = "card"
HOOKS_DIRECTORY = "hooks.d"
# There once the worker was released: what was measured of its walls, for `card show`.
RELEASED = "released"
# An empty file that is there while the run is a warm card that nobody has taken.
WARM_CARD = "warm"
RECORD = "record.json"
_MORE_REMOVALS, _REMOVAL_SECONDS = 20, 0.02
_TMP = "/tmp"  # noqa: S108 - where podman looks without a TMPDIR
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def parent() -> str:
    """Return the directory that holds run directories: XDG_RUNTIME_DIR, /run for root, or podman's own fallback.

    Raises Refused when there is none that is ours alone (podman-run(1), rootless: `$TMPDIR/podman-run-UID`).
    """
    found = parents()
    if found:
        return found[0]
    text = "there is no runtime directory that is yours alone"
    raise Refused([Refusal("no-runtime-directory", text, "log in with a session, or set XDG_RUNTIME_DIR")])


def parents() -> list[str]:
    """Return every directory that can hold run directories of this user, the one that is used now first."""
    uid = os.getuid()
    if uid == 0:
        return ["/run/card-run"]
    bases = [*_sessions(), *temporary()]
    return list(dict.fromkeys(f"{base}/card-run" for base in bases if _ours(base)))


def _sessions() -> list[str]:
    bases = (os.environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{os.getuid()}")
    return [base for base in bases if base.startswith("/")]


def temporary() -> list[str]:
    """Return where runtime directories are without a session, there or not.

    TMPDIR counts only where it is needed: it may lie in what a worker can write, who could make runs of its own there.
    """
    needed = not any(_ours(base) for base in _sessions())
    tops = [os.environ.get("TMPDIR") or _TMP] if needed else []
    return [f"{top}/podman-run-{os.getuid()}" for top in dict.fromkeys((*tops, _TMP)) if top.startswith("/")]


def _ours(path: str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


class RunDirectory:
    """One run's directory, with the lock on it, and the lock that says its plan is being written (-1 for none)."""

    def __init__(self, path: str, *, held: int, lock: int = -1) -> None:
        self.path = path
        self._held = held
        self._lock = lock

    def __truediv__(self, name: str) -> str:
        return f"{self.path}/{name}"

    def write(self, name: str, data: bytes) -> None:
        """Write one file; the directory's mode keeps it ours. Raises Refused when it cannot be written whole."""
        try:
            fd = os.open(self / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            with os.fdopen(fd, "wb") as file:
                file.write(data)
        except OSError as error:
            raise _unwritable(self / name, error) from None

    def read(self, name: str) -> bytes | None:
        """Return a file's bytes, or None when it was never written."""
        try:
            with open(self / name, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def release(self) -> None:
        """Tell the hook that the plan is as whole as it will get. Harmless when said twice."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def let_go(self) -> None:
        """Let go of both locks: whoever takes the directory's next answers for what is left of the run."""
        self.release()
        if self._held >= 0:
            os.close(self._held)
            self._held = -1

    def remove(self) -> list[str]:
        """Remove the directory and all in it, then let go; returns what could not be removed.

        A pin whose mount is in podman's mount namespace goes with its file (unlink(2) of a mount point detaches it
        everywhere else since Linux 3.18). The record goes last: as long as anything is left, it tells whose it is.
        """
        try:
            left = self._remove()
            for _ in range(_MORE_REMOVALS):
                # A hook that the runtime gave up may be writing its last word: it comes to an end by itself.
                if not left:
                    break
                time.sleep(_REMOVAL_SECONDS)
                left = self._remove()
            return left
        finally:
            self.let_go()

    def _remove(self) -> list[str]:
        left: list[str] = []
        for top, directories, files in os.walk(self.path, topdown=False):
            first = [name for name in files if name != RECORD]
            left += _try_each(os.unlink, [f"{top}/{name}" for name in first])
            left += _try_each(os.rmdir, [f"{top}/{name}" for name in directories])
        return left or _try_each(os.unlink, [self / RECORD]) + _try_each(os.rmdir, [self.path])


def _try_each(call: "Callable[[str], None]", paths: list[str]) -> list[str]:
    left: list[str] = []
    for path in paths:
        try:
            call(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            left.append(f"{path}: {os.strerror(error.errno or 0)}")
    return left


def create(run: str) -> RunDirectory:
    """Make the directory of a new run and take its lock; raises Refused when a run of that name lives."""
    top = parent()
    try:
        os.makedirs(top, mode=0o700, exist_ok=True)
    except OSError as error:
        raise _unwritable(top, error) from None
    if not _ours(top):
        raise Refused([Refusal("runtime-directory-not-ours", f"{top} is not a directory that is yours alone")])
    path = f"{top}/{run}"
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        hint = "wait for it, choose another --run, or run `card gc` when its card-run is gone"
        raise Refused([Refusal("run-exists", f"a run called {run} exists", hint)]) from None
    except OSError as error:
        raise _unwritable(path, error) from None
    held = os.open(path, _DIRECTORY)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        os.mkdir(f"{path}/{STAGE2_DIRECTORY}", 0o755)
        lock = os.open(f"{path}/plan.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        RunDirectory(path, held=held).remove()
        raise _unwritable(path, error) from None
    fcntl.flock(lock, fcntl.LOCK_EX)
    return RunDirectory(path, held=held, lock=lock)


def _unwritable(path: str, error: OSError) -> Refused:
    text = f"{path} cannot be written: {os.strerror(error.errno or 0)}"
    return Refused([Refusal("run-directory", text, "make room there, or set XDG_RUNTIME_DIR")])


_GLANCES = 5
_GLANCE_SECONDS = 0.01


def _lock(fd: int, *, wait: bool) -> None:
    """Lock a directory; raises BlockingIOError when it is held for longer than somebody's glance at the lock takes."""
    for _ in () if wait else range(_GLANCES):
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_GLANCE_SECONDS)
    return fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def take(path: str, *, wait: bool) -> RunDirectory | None:
    """Return a run directory that nobody answers for any more, its lock now ours; None when it is gone, or held.

    With `wait`, a holder is waited for.
    """
    try:
        held = os.open(path, _DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        _lock(held, wait=wait)
        # The one before us may have removed it, and a new run may have made one of the same name.
        if os.path.samestat(os.fstat(held), os.stat(path, follow_symlinks=False)):
            return RunDirectory(path, held=held)
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(held)
    return None
