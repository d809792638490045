"""What was issued, for whoever asks later: a file for each grant until it expires. Nothing here opens anything.

A record has neither token nor MAC, so that listing grants gives none away.
"""

import contextlib
import os

from launcher.grants import spent
from launcher.grants.state import State
from launcher.grants.token import Grant
from launcher.value import Value
from oci import strictjson
from oci.refusal import Refusal, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DIRECTORY = "issued"
SHOWN = (
    "cls",
    "target",
    "run",
    "executor",
    "cwd",
    "profile",
    "route",
    "guarantees",
    "key",
    "issued",
    "expires",
    "nonce",
)


class Issued(Value):
    """One grant as it was issued, and what became of it: `open`, `used`, `revoked` or `expired`."""

    grant: dict[str, "Any"]
    summary: str
    state: str

    @property
    def id(self) -> str:
        """Return what the grant is called."""
        return str(self.grant["nonce"])[:12]

    def to_json(self) -> dict[str, "Any"]:
        """Return the record as a JSON object."""
        return {"id": self.id, "state": self.state, "command": self.summary, **self.grant}


def add(state: State, grant: Grant, *, summary: str, now: int) -> None:
    """Record a grant, and remove the records of those that have expired."""
    fd = state.sub(DIRECTORY)
    try:
        shown = {name: getattr(grant, name) for name in SHOWN}
        state.write(_name(grant), strictjson.dump({"grant": shown, "summary": summary}).encode(), at=fd)
        for name in spent.over(fd, now=now):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=fd)
    finally:
        os.close(fd)


def listed(state: State, *, now: int) -> list[Issued]:
    """Return the grants that were issued here and are not long over, the oldest first."""
    fd = state.sub(DIRECTORY)
    try:
        found = [_read(state, fd, name, now) for name in os.listdir(fd) if not name.startswith(".")]
    finally:
        os.close(fd)
    return sorted(filter(None, found), key=lambda one: (one.grant["issued"], one.id))


def find(state: State, text: str, *, now: int) -> Issued:
    """Return the one grant whose id begins so; raises Refused (`unknown-grant`) for none or several."""
    found = [one for one in listed(state, now=now) if text and str(one.grant["nonce"]).startswith(text)]
    if len(found) == 1:
        return found[0]
    why = "several begin so" if found else "none was issued here, or it is over"
    raise Refused([Refusal("unknown-grant", f"{text!r} is no grant's id: {why}", "`card grant list` has them")])


def _read(state: State, fd: int, name: str, now: int) -> Issued | None:
    data = state.read(name, at=fd)
    if data is None:
        return None
    try:
        value: Any = strictjson.parse(data)
        grant, summary = dict(value["grant"]), str(value["summary"])
        known = set(grant) == set(SHOWN)
    except (ValueError, KeyError, TypeError):
        known = False
        grant, summary = {}, ""
    if not known:
        raise Refused(
            [Refusal("grant-state", f"{state.path}/{DIRECTORY}/{name} is not as card-run writes it", "remove it")]
        )
    what = spent.what(state, grant["nonce"], expires=grant["expires"])
    return Issued(grant=grant, summary=summary, state=what or ("expired" if grant["expires"] <= now else "open"))


def _name(grant: Grant) -> str:
    return f"{grant.expires}.{grant.nonce}"
