"""How a token reaches card-run: `--grant TOKEN`, `--grant @FILE`, or `--grant fd:N`.

The rule: a token is never put into an argv of ours. One that is on the command line already is taken, and noted: other
processes of the user can read it there until the run has used it up.
"""

import contextlib
import os
import stat

from launcher.grants.token import MOST
from oci.refusal import Refusal, Refused

FILE, DESCRIPTOR = "@", "fd:"
NOTE = "--grant: the token was on the command line, where other processes can read it; --grant @FILE or fd:N hides it"


def read(word: str) -> tuple[str, str]:
    """Return the token that a word means, and a note or ""; raises Refused (`malformed`) when it cannot be read."""
    if word.startswith(FILE):
        return _file(word[len(FILE) :]), ""
    if word.startswith(DESCRIPTOR):
        return _descriptor(word[len(DESCRIPTOR) :]), ""
    return word.strip(), NOTE


def _file(path: str) -> str:
    try:
        # A pipe without a writer must not hold up the run.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        raise _unreadable(f"{FILE}{path}", error) from None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise _unreadable(f"{FILE}{path}", OSError(0, "it is not a regular file"))
        return _text(fd)
    finally:
        os.close(fd)


def _descriptor(number: str) -> str:
    """Read a descriptor to its end and close it, so that nobody after us has it."""
    if not number.isascii() or not number.isdigit() or len(number) > 6 or int(number) <= 2:
        raise _unreadable(f"{DESCRIPTOR}{number}", OSError(0, "it is not a descriptor above 2"))
    fd = int(number)
    try:
        return _text(fd)
    except OSError as error:
        raise _unreadable(f"{DESCRIPTOR}{number}", error) from None
    finally:
        with contextlib.suppress(OSError):  # it may be none
            os.close(fd)


def _text(fd: int) -> str:
    data = b""
    while len(data) <= MOST and (more := os.read(fd, MOST + 1)):
        data += more
    return data.decode("ascii", "replace").strip()


def _unreadable(word: str, error: Exception) -> Refused:
    why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error.args[-1])
    return Refused([Refusal("malformed", f"--grant {word}: {why}", "name a file or descriptor that holds a token")])
