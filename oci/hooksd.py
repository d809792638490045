"""podman's and CRI-O's hooks.d files as values (oci-hooks(5), schema 1.0.0).

Exactly one stage per file: podman 5 rewrites `prestart` to `createRuntime`, so a file that names both runs its hook
twice. `env` is always given, because without it the hook inherits the caller's whole environment; and the name always
ends in `.json`, because podman skips any other name without a word.
"""

from oci import annotations, strictjson
from oci.refusal import Refusal, Refused

VERSION = "1.0.0"
CREATE_RUNTIME = "createRuntime"
POSTSTOP = "poststop"
PRESTART_FILE = "50-card-run-prestart.json"
POSTSTOP_FILE = "50-card-run-poststop.json"
PRESTART_TIMEOUT = 75
POSTSTOP_TIMEOUT = 15
_ENV = ("PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C")


class HookFile:
    """One hooks.d file: its name, its stage, and the program with arguments (argv[0] included), env and timeout."""

    __slots__ = ("args", "env", "name", "path", "stage", "timeout")

    def __init__(  # noqa: PLR0913 - the members of the format
        self,
        *,
        name: str,
        stage: str,
        path: str,
        args: "tuple[str, ...]",
        timeout: int,
        env: "tuple[str, ...]" = _ENV,
    ) -> None:
        self.name = name
        self.stage = stage
        self.path = path
        self.args = args
        self.timeout = timeout
        self.env = env
        problems = _problems(self)
        if problems:
            raise Refused([Refusal("hook-file-malformed", f"{name}: {problem}") for problem in problems])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HookFile) and _members(self) == _members(other)

    def __hash__(self) -> int:
        return hash(_members(self))


def _members(file: HookFile) -> "tuple[object, ...]":
    return (file.name, file.stage, file.path, file.args, file.timeout, file.env)


def _problems(file: HookFile) -> "list[str]":
    found: "list[str]" = []
    if not file.name.endswith(".json") or "/" in file.name:
        found.append("the name is not a plain one that ends in .json: podman would skip the file")
    if file.stage not in (CREATE_RUNTIME, POSTSTOP):
        found.append(f"the stage {file.stage!r} is not one of ours")
    if not file.path.startswith("/"):
        found.append("the program is not an absolute path: podman would skip the hook")
    if not file.args:
        found.append("args must start with argv[0]")
    if not file.env or any("=" not in item for item in file.env):
        found.append("env must be given, as NAME=VALUE items: without it the caller's environment crosses")
    if file.timeout < 1:
        found.append("the timeout is not a positive number of seconds")
    return found


def pair(*, path: str, args: "tuple[str, ...]") -> "tuple[HookFile, HookFile]":
    """Return the prestart and poststop files for a program whose last argument will be the verb."""
    prestart = HookFile(
        name=PRESTART_FILE, stage=CREATE_RUNTIME, path=path, args=(*args, "prestart"), timeout=PRESTART_TIMEOUT
    )
    poststop = HookFile(
        name=POSTSTOP_FILE, stage=POSTSTOP, path=path, args=(*args, "poststop"), timeout=POSTSTOP_TIMEOUT
    )
    return prestart, poststop


def _when() -> "dict[str, object]":
    key = "^" + annotations.RUN.replace(".", "\\.") + "$"
    return {"annotations": {key: ".*"}}


def render(file: HookFile) -> str:
    """Return the file's JSON text."""
    hook = {"path": file.path, "args": file.args, "env": file.env, "timeout": file.timeout}
    return strictjson.dump({"version": VERSION, "hook": hook, "when": _when(), "stages": [file.stage]}) + "\n"


def parse(name: str, data: bytes) -> HookFile:
    """Return the value of a file that `render` wrote; raises Refused (`hook-file-malformed`) for any other."""
    try:
        file = _from_json(name, strictjson.parse(data))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Refused([Refusal("hook-file-malformed", f"{name} is not a hooks.d file of card-run")]) from None
    if render(file) != strictjson.dump(strictjson.parse(data)) + "\n":
        raise Refused([Refusal("hook-file-malformed", f"{name} says something that card-run's own file does not")])
    return file


def _from_json(name: str, value: object) -> HookFile:
    members = _object(value)
    hook = _object(members["hook"])
    stages = _texts(members["stages"])
    timeout = hook["timeout"]
    if len(stages) != 1 or not isinstance(timeout, int):
        raise ValueError("one stage, and a timeout in seconds")
    return HookFile(
        name=name,
        stage=stages[0],
        path=str(hook["path"]),
        args=_texts(hook["args"]),
        env=_texts(hook["env"]),
        timeout=timeout,
    )


def _object(value: object) -> "dict[str, object]":
    if not isinstance(value, dict):
        raise TypeError("not an object")
    return value  # pyright: ignore[reportUnknownVariableType]


def _texts(value: object) -> "tuple[str, ...]":
    if not isinstance(value, list):
        raise TypeError("not a list")
    return tuple(str(item) for item in value)  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
