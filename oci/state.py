"""The state that an OCI runtime writes on a hook's standard input (runtime-spec "State").

Strict about what we use and silent about the rest, which runtimes extend (crun adds `root`). A poststop state carries
no pid (podman runs that hook itself, after the container is gone), so 0 stands for none.
"""

import os

from oci import strictjson
from oci.refusal import Refusal, Refused

_LIMIT = 1 << 20
_STATUSES = ("creating", "created", "running", "stopped")


class State:
    """A container as its runtime describes it: id, pid (0 when there is none), bundle path, status, annotations."""

    __slots__ = ("annotations", "bundle", "id", "pid", "status")

    def __init__(
        self,
        *,
        id: str,  # noqa: A002 - the specification's word
        pid: int,
        bundle: str,
        status: str,
        annotations: "dict[str, str]",
    ) -> None:
        self.id = id
        self.pid = pid
        self.bundle = bundle
        self.status = status
        self.annotations = annotations


def read(fd: int) -> State:
    """Return the state that a descriptor holds to its end; raises Refused (`state-malformed`)."""
    data = b""
    while len(data) < _LIMIT and (part := os.read(fd, 65536)):
        data += part
    return parse(data)


def parse(data: bytes) -> State:
    """Return the state in `data`; raises Refused (`state-malformed`) with everything that is wrong with it."""
    try:
        value = strictjson.parse(data)
    except ValueError as error:
        raise Refused([Refusal("state-malformed", f"the hook's state is not JSON: {error}")]) from None
    if not isinstance(value, dict):
        raise Refused([Refusal("state-malformed", "the hook's state is not a JSON object")])
    members: "dict[str, object]" = value  # pyright: ignore[reportUnknownVariableType]
    problems = _problems(members)
    if problems:
        raise Refused([Refusal("state-malformed", f"the hook's state {problem}") for problem in problems])
    return State(
        id=str(members["id"]),
        pid=_pid(members),
        bundle=str(members["bundle"]),
        status=str(members["status"]),
        annotations=_annotations(members) or {},
    )


def _problems(members: "dict[str, object]") -> "list[str]":
    found = [f"has no {key}" for key in ("id", "bundle", "status") if not _text(members.get(key))]
    if not found and members["status"] not in _STATUSES:
        found.append(f"has the status {members['status']!r}, which the specification does not define")
    if not found and not str(members["bundle"]).startswith("/"):
        found.append("has a bundle that is not an absolute path")
    if _pid(members) < 0:
        found.append("has a pid that is not a positive number")
    if _annotations(members) is None:
        found.append("has annotations that are not strings")
    return found


def _text(value: object) -> bool:
    return isinstance(value, str) and value != "" and "\0" not in value


def _pid(members: "dict[str, object]") -> int:
    pid = members.get("pid", 0)
    return pid if isinstance(pid, int) and not isinstance(pid, bool) else -1


def _annotations(members: "dict[str, object]") -> "dict[str, str] | None":
    value = members.get("annotations")
    if value is None:
        return {}
    if not isinstance(value, dict):
        return None
    found: "dict[str, str]" = {}
    for key, text in value.items():  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(key, str) or not isinstance(text, str):
            return None
        found[key] = text
    return found
