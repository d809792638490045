"""Every key of a card file and of a user's defaults: the one table that validator, schema, manual page and plan share.

A key is the command line's option under another spelling (`field` is the request's own), so whoever knows one knows
both. What is no key of a card, and why, is here too: what opens the bench is said by whoever runs the card.
"""

from launcher.cardfile import kinds
from launcher.cardfile.kinds import Kind
from launcher.value import Value

ACCESS = "access"


class Key(Value):
    """One key: the table it stands in ("" for the top), its name, kind, the request's field, and its meaning.

    `card` and `defaults` say in which of the two files it may stand.
    """

    table: str
    name: str
    kind: Kind
    field: str
    help: str
    card: bool = True
    defaults: bool = False

    @property
    def where(self) -> tuple[str, ...]:
        """Return the keys that lead to it."""
        return (self.table, self.name) if self.table else (self.name,)

    @property
    def dotted(self) -> str:
        """Return it as `card set` takes it."""
        return ".".join(self.where)


def _top(name: str, kind: Kind, help: str, *, field: str = "", defaults: bool = False) -> Key:  # noqa: A002
    return Key(table="", name=name, kind=kind, field=field or name, help=help, defaults=defaults)


def _limit(name: str, kind: Kind, help: str, *, field: str = "") -> Key:  # noqa: A002 - it is the key's help
    return Key(table="limits", name=name, kind=kind, field=field or name, help=help, defaults=True)


KEYS = (
    _top(
        "name",
        kinds.NAME,
        "what the card is called (default: the file's name, or its directory's for card.toml)",
        field="card_name",
    ),
    _top("image", kinds.IMAGE, "full reference of a local image", defaults=True),
    _top("command", kinds.COMMAND, "what to run, word by word, when none stands after `--`"),
    _top("cwd", kinds.PATH, "working directory (default: the first of `write`)"),
    _top("read", kinds.PATHS, "readable and executable inside, at the same path"),
    _top("read_noexec", kinds.PATHS, "readable, mounted noexec"),
    _top("write", kinds.PATHS, "writable directories; the first is the working directory"),
    _top("protect", kinds.PATHS, "read-only inside a writable directory, and held in place"),
    _top("secret", kinds.PATHS, "refuse the run if one of these is inside anything it may reach", defaults=True),
    _top("hosts", kinds.HOSTS, "further hosts, from the policy file", field="allow_host", defaults=True),
    _top("net", kinds.choice("pasta", "slirp", "bridge", "none"), "the card's network", defaults=True),
    _top("dns", kinds.choice("question", "none"), "may the card ask DNS, for its own names", defaults=True),
    _top("env", kinds.ENV, "variables: NAME passes yours, NAME=VALUE this one; nothing crosses unasked"),
    _top("env_file", kinds.PATHS, "files of NAME=VALUE lines to pass"),
    _top("home", kinds.choice("isolated", "real"), "HOME: the card's own, or yours", defaults=True),
    _top("user", kinds.choice("keep-id", "root"), "who the worker is inside: you, or uid 0", defaults=True),
    _top("interactive", kinds.FLAG, "pass standard input to the worker"),
    _top("tty", kinds.FLAG, "give the worker a terminal"),
    Key(table="worker", name="description", kind=kinds.LINE, field="description", help="who the worker is, for people"),
    Key(
        table="worker",
        name="model_host",
        kind=kinds.HOST,
        field="model_host",
        help="the one model host, from the policy file",
    ),
    _limit("memory", kinds.SIZE, "memory and swap together"),
    _limit("cpus", kinds.AMOUNT, "processors' worth of time"),
    _limit("pids", kinds.COUNT, "processes and threads"),
    _limit("nofile", kinds.COUNT, "open descriptors of one process"),
    _limit("tmp_size", kinds.SIZE, "each of /tmp, /var/tmp and HOME"),
    _limit("shm_size", kinds.SIZE, "shared memory"),
    _limit("timeout", kinds.AMOUNT, "seconds after which the worker is ended, with status 124"),
    _limit("stop_timeout", kinds.AMOUNT, "seconds from SIGTERM until the card is killed"),
    _limit(
        "enforce",
        kinds.choice("strict", "best-effort"),
        "refuse a limit that cannot be enforced, or note",
        field="limits",
    ),
    Key(
        table="",
        name="resolver",
        kind=kinds.ADDRESS,
        field="resolver",
        help="ask this DNS server instead of the bench's",
        card=False,
        defaults=True,
    ),
)
TABLES = ("worker", "limits")
# What a card says on the command line only, and why; a worker or a stranger may have written a card.
ELSEWHERE = {
    "egress": "the policy file bounds every card, so no card names its own: use --egress",
    "resolver": "who answers for names is not a card's to say: use --resolver, or your config.toml",
    "resolve_timeout": "it is the bench's network that needs it: use --resolve-timeout",
    "env_host": "it passes nearly every variable you have: use --env-host, or name them in env",
    "git_writable": "it lets a worker choose what git runs on the bench: use --git-writable",
    "landlock": "it is about this bench's kernel: use --landlock",
    "podman_arg": "it is about this bench's podman: use --podman-arg",
    "run": "a run id belongs to one run: use --run",
    "grant": "a grant belongs to one run: use --grant",
    "json": "where the receipt goes is for whoever runs the card: use --json",
    "keep": "what outlives a run is for whoever runs the card: use --keep",
    "events": "it is for the program that runs the card: use --events",
    "executor": "it is for the program that runs the card: use --executor",
    "lifeline": "it is for the program that runs the card: use --lifeline",
    "plan": "use card plan, or --plan",
    "quiet": "use -q",
    "detach": "use -d",
    "card": "a card does not include another",
}
# Other spellings that people bring along.
RENAMED = {
    "allow_host": "hosts",
    "allow_hosts": "hosts",
    "model_host": "worker.model_host",
    "model": "worker.model_host",
    "network": "net",
    "cmd": "command",
    "workdir": "cwd",
    "working_dir": "cwd",
    "environment": "env",
    "secrets": "secret",
    "volumes": "write",
    "mounts": "write",
}


def of(*, defaults: bool) -> tuple[Key, ...]:
    """Return the keys of a user's defaults, or those of a card file."""
    return tuple(key for key in KEYS if (key.defaults if defaults else key.card))


def find(dotted: str) -> Key | None:
    """Return the card's key of that dotted name."""
    return next((key for key in of(defaults=False) if key.dotted == dotted), None)
