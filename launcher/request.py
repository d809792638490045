"""What was asked: the flags of one run, as text, before anything is judged.

Of a card file and a user's defaults too, once they are merged (`launcher.cardfile.merge`): the fields are then whole,
and `merged` says which layer each value came from.
"""

from launcher.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from launcher.access.profile import Profile
    from launcher.cardfile.merge import Merged
    from launcher.roots import Opened

DEFAULT_IMAGE = "localhost/card-run/card:latest"


class Request(Value):
    """The command line of one card as it was given; every judgement on it is `launcher.launch`'s.

    `profile` is the access profile that the card states; without one the flags themselves are what is allowed. `grant`
    are tokens as they were given, `executor` whose they are on this bench, and `opened` what they came to.
    """

    command: tuple[str, ...]
    image: str = DEFAULT_IMAGE
    run: str | None = None
    read: tuple[str, ...] = ()
    read_noexec: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    protect: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()
    git_writable: bool = False
    cwd: str | None = None
    model_host: str | None = None
    allow_host: tuple[str, ...] = ()
    egress: str | None = None
    resolver: str | None = None
    resolve_timeout: float = 3.0
    dns: str = "question"
    env: tuple[str, ...] = ()
    env_file: tuple[str, ...] = ()
    env_host: bool = False
    home: str = "isolated"
    keep: str | None = None
    landlock: str = "clamp"
    tmp_size: str | None = None
    memory: str | None = None
    cpus: str | None = None
    pids: str | None = None
    timeout: str | None = None
    stop_timeout: str | None = None
    shm_size: str | None = None
    nofile: str | None = None
    limits: str = "strict"
    net: str = "pasta"
    user: str = "keep-id"
    plan: bool = False
    json: str | None = None
    events: str | None = None
    lifeline: str | None = None
    quiet: bool = False
    detach: bool = False
    interactive: bool = False
    tty: bool = False
    podman_arg: tuple[str, ...] = ()
    card_name: str | None = None
    description: str | None = None
    profile: "Profile | None" = None
    merged: "Merged | None" = None
    grant: tuple[str, ...] = ()
    executor: str = ""
    opened: "Opened | None" = None
