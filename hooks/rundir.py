"""The run directory as the hooks see it: found from the annotations, checked, read and written by one descriptor.

The rule: the directory is opened once, without following a link, and everything else is relative to that descriptor,
so nothing can be swapped between check and use. Layout and names are DESIGN "Run directory".
"""

import fcntl
import os
import stat
import time

from hooks.egress import is_run_id
from oci import annotations
from oci.refusal import Refusal, Refused
from oci.state import State

PLAN = "plan.json"
LOCK = "plan.lock"
TABLE = "table.nft"
CARD = "card"
PROOF = "proof"
TAKEN = "taken"  # the second proof, of a warm card that a run has taken
NETNS = "netns"
HOOK = "hook.json"
LEDGER = "ledger.json"
UNREAD = "unread.json"  # why the poststop hook kept no ledger
# There once the kernel ended a process of the card for want of memory.
OOM = "oom"
OUTER = "outer"
UNATTENDED = "unattended"
CONSUMED = "run-consumed"
ABANDONED = "hook-abandoned"
EXECS = "execs"  # one byte for each process that came behind the walls later (`card exec`), with a self-test of its own
LOCK_DEADLINE = 30.0
_LOCK_STEP = 0.001
_LIMIT = 64 << 20


class RunDirectory:
    """An open run directory: its run id and path, and a descriptor that everything in it is reached through."""

    __slots__ = ("fd", "path", "run")

    def __init__(self, *, run: str, path: str, fd: int) -> None:
        self.run = run
        self.path = path
        self.fd = fd


def find(state: State) -> RunDirectory:
    """Return the run directory that the container's annotations name.

    Raises Refused: `no-run` (not a card of ours), `bad-run-id`, `run-directory` (missing, a link, not ours, not 0700).
    """
    run = state.annotations.get(annotations.RUN)
    path = state.annotations.get(annotations.DIRECTORY)
    if run is None or path is None:
        raise Refused([Refusal("no-run", "the container carries no run id or no run directory")])
    if not is_run_id(run):
        raise Refused([Refusal("bad-run-id", f"{run!r} is not a run id")])
    if not path.startswith("/") or os.path.normpath(path) != path or not path.endswith(f"/{run}"):
        raise _unusable(path, "is not the absolute path of this run's directory")
    return open_at(path)


def open_at(path: str) -> RunDirectory:
    """Return the run directory at a path, which ends in its run id; raises Refused (`run-directory`) as `find` does."""
    return RunDirectory(run=path.rpartition("/")[2], path=path, fd=_open_ours(path))


def self_tests(directory: int) -> int:
    """Return how many times the wall was felt from inside: by the worker's stage 2, and by each later one."""
    try:
        return 1 + os.stat(EXECS, dir_fd=directory, follow_symlinks=False).st_size
    except FileNotFoundError:
        return 1


def identity(directory: RunDirectory) -> "tuple[int, int]":
    """Return what identifies the directory itself, whatever path it was found by: its device and inode."""
    found = os.fstat(directory.fd)
    return found.st_dev, found.st_ino


def exists(directory: RunDirectory, name: str) -> bool:
    """Return whether the directory has an entry of that name, a link included."""
    return name in os.listdir(directory.fd)


def _unusable(path: str, why: str) -> Refused:
    return Refused([Refusal("run-directory", f"{path} {why}")])


def _open_ours(path: str, *, directory: "int | None" = None) -> int:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except OSError as error:
        raise _unusable(path, f"cannot be opened as a directory: {error.strerror}") from None
    found = os.fstat(fd)
    if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & 0o077 == 0:
        return fd
    os.close(fd)
    raise _unusable(path, f"is not ours alone (uid {found.st_uid}, mode {stat.S_IMODE(found.st_mode):o})")


def wait_for_plan(directory: RunDirectory, *, deadline: float = LOCK_DEADLINE) -> None:
    """Wait until the launcher has let go of the plan's lock, which it holds while it still writes.

    The shared lock is kept until this process ends. Raises Refused: `plan-missing` (no lock file), `plan-late`.
    """
    try:
        fd = os.open(LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory.fd)
    except OSError as error:
        raise Refused(
            [Refusal("plan-missing", f"{directory.path}/{LOCK} cannot be opened: {error.strerror}")]
        ) from None
    end = time.monotonic() + deadline
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise Refused([Refusal("plan-late", f"the plan was not complete after {deadline:g} s")]) from None
            time.sleep(_LOCK_STEP)
        else:
            return


def read(directory: RunDirectory, name: str) -> bytes:
    """Return a file's bytes; raises Refused (`plan-missing`) when it is missing, not a plain file of ours, or huge."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory.fd)
    except OSError as error:
        raise _missing(directory, name, error.strerror or "") from None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_size > _LIMIT:
            raise _missing(directory, name, "it is not a plain file of ours")
        return _read_all(fd)
    finally:
        os.close(fd)


def _read_all(fd: int) -> bytes:
    parts: "list[bytes]" = []
    while part := os.read(fd, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def _missing(directory: RunDirectory, name: str, why: str) -> Refused:
    return Refused([Refusal("plan-missing", f"{directory.path}/{name} cannot be read: {why}")])


def write(directory: RunDirectory, name: str, data: bytes) -> None:
    """Write a file so that a reader sees all of it or the one before; raises OSError, and then nothing changed."""
    temporary = f".{name}.{os.getpid()}"
    _create(temporary, data, directory.fd, mode=0o600)
    try:
        os.rename(temporary, name, src_dir_fd=directory.fd, dst_dir_fd=directory.fd)
    except OSError:
        os.unlink(temporary, dir_fd=directory.fd)
        raise


def _create(name: str, data: bytes, directory: int, *, mode: int) -> None:
    fd = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode, dir_fd=directory)
    try:
        os.fchmod(fd, mode)  # whatever umask the runtime has
        while data:
            data = data[os.write(fd, data) :]
    finally:
        os.close(fd)


def open_card(directory: RunDirectory) -> int:
    """Return a descriptor of `card/`, which the worker sees read-only; raises Refused (`run-directory`)."""
    try:
        return os.open(CARD, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory.fd)
    except OSError as error:
        raise _unusable(f"{directory.path}/{CARD}", f"cannot be opened as a directory: {error.strerror}") from None


def write_proof(card: int, data: bytes, *, name: str = PROOF) -> None:
    """Write the proof, once in the life of a run: link(2) fails when there is one already.

    Readable by all, because stage 2 may run as any user of the card; the run directory around it is ours alone.
    Raises Refused (`run-consumed`); nothing of this attempt is left then.
    """
    temporary = f".{name}.{os.getpid()}"
    _create(temporary, data, card, mode=0o444)
    try:
        os.link(temporary, name, src_dir_fd=card, dst_dir_fd=card)
    except FileExistsError:
        raise consumed() from None
    finally:
        os.unlink(temporary, dir_fd=card)


def forget_secrets(directory: RunDirectory) -> None:
    """Remove what a prepared card's stage 2 read, the worker's environment among it; harmless for any other."""
    try:
        os.unlink(f"{CARD}/{UNATTENDED}", dir_fd=directory.fd)
    except OSError:
        return  # there is none, or no card/ any more


def refuse_consumed(card: int, *, name: str = PROOF) -> None:
    """Raise Refused (`run-consumed`) when the run already has a proof of that name."""
    try:
        os.stat(name, dir_fd=card, follow_symlinks=False)
    except FileNotFoundError:
        return
    raise consumed()


def consumed() -> Refused:
    """Return the refusal of a second start."""
    return Refused([Refusal(CONSUMED, "this run was started before", "a run is one-shot: start the card anew")])
