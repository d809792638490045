"""The keys of this bench's grants: made when first needed, rotated, and good for a grace period after that.

One file, written whole under the state's lock. A key's id is a digest of it. The secret is in no message, and in no
value's text.
"""

import os

from hooks.plan import sha256
from launcher.grants.state import State
from launcher.life import exposed
from launcher.value import Value
from oci import strictjson
from oci.refusal import Refusal, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FILE = "keys.json"
_SECRET_BYTES = 32
_ID_DIGITS = 16


class Key(Value):
    """One key: `made` and, once another took its place, `until`, after which it is good for nothing (epoch seconds)."""

    secret: bytes
    made: int
    until: int | None = None

    @property
    def id(self) -> str:
        """Return the key's id, which tells nothing of the key."""
        return sha256(b"card-run/grant-key-id" + self.secret)[:_ID_DIGITS]

    def __repr__(self) -> str:
        return f"Key(id={self.id})"

    __str__ = __repr__


def current(state: State, *, now: int) -> Key:
    """Return the key that signs, made where there is none; raises Refused (`grant-state`) for a file that is odd."""
    for key in _read(state):
        if key.until is None:
            return key
    with state.locked():
        keys = _read(state)
        found = next((key for key in keys if key.until is None), None)
        if found is None:
            _may_begin(state, keys)
            found = Key(secret=os.urandom(_SECRET_BYTES), made=now)
            _write(state, [*keys, found])
        return found


def find(state: State, key: str, *, now: int) -> Key | None:
    """Return the key of that id, while it is good."""
    return next((one for one in _read(state) if one.id == key and (one.until is None or now < one.until)), None)


def rotate(state: State, *, now: int, grace: int) -> Key:
    """Make a new key and return it; the one before is good for `grace` seconds more, and older ones end as they were.

    With no grace every token that is out there ends at once.
    """
    with state.locked():
        before = _read(state)
        _may_begin(state, before)
        kept = [key for key in before if key.until is None or now < key.until]
        kept = [key if key.until is not None else key.replace(until=now + grace) for key in kept]
        made = Key(secret=os.urandom(_SECRET_BYTES), made=now)
        _write(state, [*(key for key in kept if grace), made])
        return made


def _may_begin(state: State, keys: list[Key]) -> None:
    """Refuse to make the first key within reach of a card: once it is there no card may reach it."""
    if not keys:
        exposed.refuse(state.path, "grants-exposed", "the keys of your grants")


def _write(state: State, keys: list[Key]) -> None:
    rows = [{"secret": key.secret.hex(), "made": key.made, "until": key.until} for key in keys]
    state.write(FILE, strictjson.dump({"keys": rows}).encode())


def _read(state: State) -> list[Key]:
    data = state.read(FILE)
    if data is None:
        return []
    try:
        value: Any = strictjson.parse(data)
        return [_key(row) for row in value["keys"]]
    except (ValueError, KeyError, TypeError) as error:
        text = f"{state.path}/{FILE} is not as card-run writes it: {type(error).__name__}"
        hint = "remove it: every grant issued so far ends, and a key is made anew"
        raise Refused([Refusal("grant-state", text, hint)]) from None


def _key(row: "dict[str, Any]") -> Key:
    secret, until = bytes.fromhex(row["secret"]), row["until"]
    if len(secret) != _SECRET_BYTES:
        raise ValueError("a key of another length")
    return Key(secret=secret, made=int(row["made"]), until=None if until is None else int(until))
