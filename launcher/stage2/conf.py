"""What the launcher tells stage 2: /run/card/stage2.conf as a value, read strictly.

Records (see oci.records). An unknown key, a missing one or a value of the wrong shape is a Refusal: the file is ours,
so anything odd in it means that it is not the file this code was made for.
"""

from launcher.stage2.landlock import Policy
from oci import records
from oci.refusal import Refusal, Refused

SCHEMA = "1"
# key -> whether it may come more than once; what is not here is refused
KEYS = {
    "schema": False,
    "run": False,
    "argv": True,
    "cwd": False,
    "network": False,
    "route4": False,
    "route6": False,
    "read": True,
    "noexec": True,
    "write": True,
    "private": True,
    "closed": True,
    "hidden": True,
    "probe4": True,
    "probe6": True,
    "port": False,
    "landlock": False,
    "loopback": False,
    "outside": True,
    "rlimit": True,
    "identity": True,
    "measure": True,
    "link": False,
    "unattended": False,
}
# Without a probe of each family there would be no egress self-test, and nothing would say so.
REQUIRED = (
    "schema",
    "run",
    "argv",
    "cwd",
    "network",
    "route4",
    "route6",
    "landlock",
    "loopback",
    "probe4",
    "probe6",
    "port",
)
CHOICES = {
    "schema": (SCHEMA,),
    "network": ("0", "1"),
    "route4": ("0", "1"),
    "route6": ("0", "1"),
    "landlock": ("clamp", "exact"),
    "loopback": ("0", "1"),
    "unattended": ("1",),
}
PATHS = ("cwd", "read", "noexec", "write", "private", "closed", "hidden", "outside")


class Conf:
    """The configuration; see the module. `rlimits` are (name, soft, hard) with -1 for unlimited.

    `identities` are (device, inode, path) of what must be mounted; `closed` is read-only in what may be written, and
    below `hidden` nothing of the bench is seen; `measures` name limits to read back; `link` names
    the interface whose other end is told. `unattended` marks a card that was prepared for podman alone.
    """

    __slots__ = (
        "argv",
        "closed",
        "cwd",
        "hidden",
        "identities",
        "link",
        "measures",
        "network",
        "outside",
        "policy",
        "port",
        "probes4",
        "probes6",
        "rlimits",
        "route4",
        "route6",
        "run",
        "unattended",
    )

    def __init__(self, values: "dict[str, list[str]]", policy: Policy) -> None:
        self.run = values["run"][0]
        self.argv = tuple(values["argv"])
        self.cwd = values["cwd"][0]
        self.network = values["network"] == ["1"]
        self.route4 = values["route4"] == ["1"]
        self.route6 = values["route6"][0] == "1"
        self.probes4 = tuple(values.get("probe4", ()))
        self.probes6 = tuple(values.get("probe6", ()))
        self.port = int(values["port"][0])
        self.outside = tuple(values.get("outside", ()))
        self.rlimits = tuple(_rlimit(text) for text in values.get("rlimit", ()))
        self.identities = tuple(_identity(text) for text in values.get("identity", ()))
        self.closed = tuple(values.get("closed", ()))
        self.hidden = tuple(values.get("hidden", ()))
        self.link = values.get("link", [""])[0]
        self.unattended = "unattended" in values
        self.measures = tuple(values.get("measure", ()))
        self.policy = policy


def parse(data: bytes) -> Conf:
    """Return the configuration; raises Refused with every problem at once."""
    try:
        values = records.load(data)
    except ValueError as error:
        raise Refused([Refusal("conf-malformed", f"stage2.conf: {error}")]) from error
    problems = [*_keys(values), *_choices(values), *_paths(values)]
    if problems:
        raise Refused([Refusal("conf-malformed", f"stage2.conf: {problem}") for problem in problems])
    try:
        return Conf(values, _policy(values))
    except ValueError as error:
        raise Refused([Refusal("conf-malformed", f"stage2.conf: {error}")]) from error


def _keys(values: "dict[str, list[str]]") -> "list[str]":
    problems = [f"unknown key {key!r}" for key in values if key not in KEYS]
    problems += [f"missing key {key!r}" for key in REQUIRED if key not in values]
    return problems + [f"{key!r} comes twice" for key in values if not KEYS.get(key, True) and len(values[key]) > 1]


def _choices(values: "dict[str, list[str]]") -> "list[str]":
    return [
        f"{key}={value!r} is none of {', '.join(choices)}"
        for key, choices in CHOICES.items()
        for value in values.get(key, ())
        if value not in choices
    ]


def _paths(values: "dict[str, list[str]]") -> "list[str]":
    return [
        f"{key}={path!r} is not an absolute, normal path"
        for key in PATHS
        for path in values.get(key, ())
        if not normal(path)
    ]


def normal(path: str) -> bool:
    """Return whether a path is absolute and has no empty, `.` or `..` part, as the rules' comparisons need."""
    return path == "/" or (path.startswith("/") and not {"", ".", ".."} & set(path[1:].split("/")))


def _policy(values: "dict[str, list[str]]") -> Policy:
    return Policy(
        read=tuple(values.get("read", ())),
        noexec=tuple(values.get("noexec", ())),
        write=tuple(values.get("write", ())),
        private=tuple(values.get("private", ())),
        loopback=values["loopback"] == ["1"],
        exact=values["landlock"] == ["exact"],
    )


def _identity(text: str) -> "tuple[int, int, str]":
    device, inode, path = text.split(":", 2)
    return int(device), int(inode), path


def _rlimit(text: str) -> "tuple[str, int, int]":
    name, soft, hard = text.split(":")
    return name, int(soft), int(hard)
