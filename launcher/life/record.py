"""The record of a run: who started it, when, and of what, kept in its run directory from before podman is spawned.

Everything that later asks about a run, or cleans up after it, starts here. The rule: a record is written once and
never changed. What happens afterwards is told by the other files (`launcher.life.runs`). On the hot path.
"""

from launcher.life import identity
from launcher.life.identity import Identity
from launcher.value import Value
from oci import strictjson

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SCHEMA = 1


class Record(Value):
    """What is known of a run before it starts. `launcher` is None for a run that was only prepared.

    `started` is in seconds since the epoch; `names` are the hosts that it may reach; `card` is its card file's name.
    `stop_timeout` is in seconds, from SIGTERM until its launcher kills it.
    """

    run: str
    boot_id: str
    launcher: Identity | None
    started: float
    image: str
    command: tuple[str, ...]
    net: str
    names: tuple[str, ...]
    detached: bool = False
    stop_timeout: float = 10
    card: str | None = None

    @property
    def owned(self) -> bool:
        """Return whether the card-run that answers for this run still lives, in this boot."""
        return self.launcher is not None and self.boot_id == identity.boot_id() and identity.alive(self.launcher)

    def to_json(self) -> bytes:
        """Return the record as the bytes of its file."""
        launcher = self.launcher.as_dict() if self.launcher else None
        return strictjson.dump({"schema": SCHEMA, **self.as_dict(), "launcher": launcher}).encode()


def parse(data: bytes) -> Record:
    """Return the record in `data`; raises ValueError when it is not one that this card-run writes."""
    members: "Any" = strictjson.parse(data)
    if not isinstance(members, dict) or members.get("schema") != SCHEMA:  # pyright: ignore[reportUnknownMemberType]
        raise ValueError("not a record of this schema")
    try:
        return _record(members)  # pyright: ignore[reportUnknownArgumentType]
    except (TypeError, KeyError) as error:
        raise ValueError(f"not a record: {error}") from None


def _record(members: "dict[str, Any]") -> Record:
    launcher = members["launcher"]
    fields: "dict[str, Any]" = {name: value for name, value in members.items() if name != "schema"}
    fields["launcher"] = Identity(pid=int(launcher["pid"]), start=int(launcher["start"])) if launcher else None
    fields["command"], fields["names"] = tuple(map(str, members["command"])), tuple(map(str, members["names"]))
    return Record(**fields)
