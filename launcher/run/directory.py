"""The run directory: where a run's plan, proof, pin and ledger live while it lives (DESIGN "Run directory").

Owner-only, made fresh, consumed by its run. The lock held on `plan.lock` tells the hook that the plan is not whole
yet; the kernel drops it if card-run dies.
"""

import fcntl
import os
import stat

from oci.refusal import Refusal, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

STAGE2_DIRECTORY = "card"


def parent() -> str:
    """Return the directory that holds run directories: XDG_RUNTIME_DIR, /run for root, or podman's own fallback.

    Raises Refused when there is none that is ours alone (podman-run(1), rootless: `$TMPDIR/podman-run-UID`).
    """
    uid = os.getuid()
    if uid == 0:
        return "/run/card-run"
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    for base in (runtime, f"/run/user/{uid}", f"{os.environ.get('TMPDIR', '/tmp')}/podman-run-{uid}"):  # noqa: S108
        if base.startswith("/") and _ours(base):
            return f"{base}/card-run"
    text = "there is no runtime directory that is yours alone"
    raise Refused([Refusal("no-runtime-directory", text, "log in with a session, or set XDG_RUNTIME_DIR")])


def _ours(path: str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


class RunDirectory:
    """One run's directory, and the lock that says its plan is being written."""

    def __init__(self, path: str, lock: int) -> None:
        self.path = path
        self._lock = lock

    def __truediv__(self, name: str) -> str:
        return f"{self.path}/{name}"

    def write(self, name: str, data: bytes) -> None:
        """Write one file, whole; the directory's mode keeps it ours."""
        fd = os.open(self / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        with os.fdopen(fd, "wb") as file:
            file.write(data)

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

    def forget(self) -> None:
        """Take the lock's descriptor for closed, as it is in a process that closed everything."""
        self._lock = -1

    def remove(self) -> list[str]:
        """Remove the directory and all in it; returns what could not be removed (a pin still mounted, say)."""
        self.release()
        left: list[str] = []
        for top, directories, files in os.walk(self.path, topdown=False):
            left += _try_each(os.unlink, [f"{top}/{name}" for name in files])
            left += _try_each(os.rmdir, [f"{top}/{name}" for name in directories])
        return left + _try_each(os.rmdir, [self.path])


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
    os.makedirs(top, mode=0o700, exist_ok=True)
    if not _ours(top):
        raise Refused([Refusal("runtime-directory-not-ours", f"{top} is not a directory that is yours alone")])
    path = f"{top}/{run}"
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        hint = f"wait for it, choose another --run, or remove {path} when nothing runs"
        raise Refused([Refusal("run-exists", f"a run called {run} exists", hint)]) from None
    os.mkdir(f"{path}/{STAGE2_DIRECTORY}", 0o755)
    lock = os.open(f"{path}/plan.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return RunDirectory(path, lock)
