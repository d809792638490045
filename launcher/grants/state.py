"""The grant state of a user on this bench: a directory that is theirs alone, and files that appear whole or not at all.

`${XDG_STATE_HOME:-~/.local/state}/card-run/grants/` holds `keys.json`, the `issued` grants and the `spent` nonces. The
rule: what others could read or write is not used. Whoever can read it can mint grants, so no card may reach it.
"""

import contextlib
import fcntl
import os
import stat

from launcher.fs.paths import state_home
from oci.refusal import Refusal, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LIMIT = 1 << 20


def directory() -> str:
    """Return where the state is kept, whether it is there or not."""
    return f"{state_home()}/card-run/grants"


class State:
    """The state directory, open and found to be ours alone. Everything in it is reached through the descriptor."""

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd

    def sub(self, name: str) -> int:
        """Return a descriptor of a directory in it, made where it is missing."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=self.fd)
        try:
            fd = os.open(name, _DIRECTORY, dir_fd=self.fd)
        except OSError as error:
            raise _refused(f"{self.path}/{name}: {os.strerror(error.errno or 0)}") from None
        _ours(fd, f"{self.path}/{name}", stat.S_ISDIR)
        return fd

    def read(self, name: str, *, at: int | None = None) -> bytes | None:
        """Return a file's bytes, or None when it is not there; raises Refused when it is not ours alone."""
        try:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._at(at))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _refused(f"{self.path}/{name}: {os.strerror(error.errno or 0)}") from None
        try:
            _ours(fd, f"{self.path}/{name}", stat.S_ISREG)
            return os.read(fd, _LIMIT)
        finally:
            os.close(fd)

    def write(self, name: str, data: bytes, *, at: int | None = None) -> None:
        """Put a file in place, durably: whoever reads it meanwhile has the old one or the new one, whole.

        Raises Refused when that is not possible, and then the old one stands.
        """
        temporary = f".{name}.{os.getpid()}.{os.urandom(4).hex()}"
        try:
            self.create(temporary, data, at=at)
            os.rename(temporary, name, src_dir_fd=self._at(at), dst_dir_fd=self._at(at))
            os.fsync(self._at(at))
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=self._at(at))
            raise _refused(f"{self.path}/{name}: {os.strerror(error.errno or 0)}") from None

    def create(self, name: str, data: bytes, *, at: int | None = None) -> None:
        """Make a file that was not there, durably; raises OSError, FileExistsError for all but one of those who try."""
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self._at(at))
        try:
            os.write(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.fsync(self._at(at))

    @contextlib.contextmanager
    def locked(self) -> "Generator[None, None, None]":
        """Hold the state's lock, which the kernel lets go of when its holder dies."""
        fd = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self.fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def close(self) -> None:
        """Let go of the directory."""
        os.close(self.fd)

    def _at(self, at: int | None) -> int:
        return self.fd if at is None else at


@contextlib.contextmanager
def opened() -> "Generator[State, None, None]":
    """Give the state directory, made where it is missing; raises Refused (`grant-state`) when it is not ours alone."""
    path = directory()
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        state = State(path, os.open(path, _DIRECTORY))
    except OSError as error:
        raise _refused(f"{path}: {os.strerror(error.errno or 0)}") from None
    try:
        _ours(state.fd, path, stat.S_ISDIR)
        yield state
    finally:
        state.close()


def _ours(fd: int, path: str, kind: "Callable[[int], bool]") -> None:
    found = os.fstat(fd)
    if not kind(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise _refused(f"{path} is not yours alone: whoever can read it can grant what you can")


def _refused(text: str) -> Refused:
    return Refused([Refusal("grant-state", text, "make it yours with mode 0700, files 0600, and rotate the key")])
