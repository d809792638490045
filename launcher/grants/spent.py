"""Which grants are used up: a file for each nonce, made by exactly one of all who try, and kept until after its expiry.

The rule: a grant is spent before the worker runs, and durably, so that no crash gives it back. What has expired is
removed; a mark of the latest such time is kept first, since with the clock set back a removed nonce would be unknown.
"""

import contextlib
import os

from launcher.grants.state import State
from oci.refusal import Refusal, Refused

DIRECTORY = "spent"
MARK = "mark"
USED, REVOKED = "used", "revoked"
_MANY = 256
_ABANDONED = 60


def spend(state: State, nonce: str, *, expires: int, now: int) -> None:
    """Use a grant up; raises Refused: `replay` when it was used before, `denied` when it was revoked, `expired`."""
    late(state, expires, now=now)
    _take(state, nonce, expires, USED)


def revoke(state: State, nonce: str, *, expires: int) -> None:
    """Use a grant up without a run; raises Refused, `replay` or `denied`, when it was used or revoked before."""
    _take(state, nonce, expires, REVOKED)


def look(state: State, nonce: str, *, expires: int, now: int) -> None:
    """Raise Refused as `spend` would, and spend nothing."""
    late(state, expires, now=now)
    found = what(state, nonce, expires=expires)
    if found:
        raise _gone(found)


def what(state: State, nonce: str, *, expires: int) -> str:
    """Return `used`, `revoked`, or "" for a grant that is neither."""
    fd = state.sub(DIRECTORY)
    try:
        data = state.read(_name(nonce, expires), at=fd)
    finally:
        os.close(fd)
    if data is None:
        return ""
    return REVOKED if data == REVOKED.encode() else USED


def late(state: State, expires: int, *, now: int) -> None:
    """Raise Refused (`expired`) for a grant whose time has come, by the clock or by the mark."""
    if expires <= max(now, mark(state)):
        raise Refused([Refusal("expired", "the grant's time is over", "issue it again")])


def mark(state: State) -> int:
    """Return the latest time whose spent grants were removed; a clock that is behind it was set back."""
    data = state.read(MARK) or b"0"
    return int(data) if data.isdigit() else 0


def prune(state: State, *, now: int) -> None:
    """Remove what has expired, the mark first."""
    fd = state.sub(DIRECTORY)
    try:
        gone = over(fd, now=now)
        if gone:
            with state.locked():
                state.write(MARK, str(max(now, mark(state))).encode())
        for name in gone:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=fd)
    finally:
        os.close(fd)


def forget(state: State, *, now: int) -> None:
    """Start anew: for a bench whose keys have all just been replaced, so that nothing signed before is good."""
    with state.locked():
        state.write(MARK, str(now).encode())


def _take(state: State, nonce: str, expires: int, how: str) -> None:
    fd = state.sub(DIRECTORY)
    try:
        state.create(_name(nonce, expires), how.encode(), at=fd)
        crowded = len(os.listdir(fd)) > _MANY
    except FileExistsError:
        found = what(state, nonce, expires=expires)
        raise (_gone(found) if how == USED else _no_more(found)) from None
    except OSError as error:
        text = f"{state.path}/{DIRECTORY}: {os.strerror(error.errno or 0)}: the use of a grant could not be recorded"
        raise Refused([Refusal("grant-state", text, "nothing was started")]) from None
    finally:
        os.close(fd)
    if crowded:
        import time

        prune(state, now=int(time.time()))


def _gone(how: str) -> Refused:
    if how == REVOKED:
        return Refused([Refusal("denied", "the grant was revoked", "issue it again, if it should be open after all")])
    return Refused([Refusal("replay", "the grant was used before, and a grant is for one run", "issue another")])


def _no_more(how: str) -> Refused:
    """Return why nothing can be taken back."""
    text = f"the grant was {how} already: there is nothing to take back"
    return Refused([Refusal("denied" if how == REVOKED else "replay", text)])


def _name(nonce: str, expires: int) -> str:
    return f"{expires}.{nonce}"


def over(fd: int, *, now: int) -> list[str]:
    """Return the names in a directory whose expiry has come, and those that are not ours.

    What another process is writing (`State.write`) is left to it, unless it died: then a minute is long.
    """
    return [
        name
        for name in os.listdir(fd)
        if _expires_of(name) <= now and not (name.startswith(".") and _fresh(fd, name, now=now))
    ]


def _fresh(fd: int, name: str, *, now: int) -> bool:
    try:
        return os.stat(name, dir_fd=fd, follow_symlinks=False).st_mtime > now - _ABANDONED
    except FileNotFoundError:
        return True  # it was put in its place meanwhile


def _expires_of(name: str) -> int:
    """Return the expiry that a file's name begins with; 0 for a name that is not one of ours."""
    number = name.partition(".")[0]
    return int(number) if number.isdigit() else 0
