"""What was asked: the flags of one run, as text, before anything is judged."""

from launcher.value import Value

DEFAULT_IMAGE = "localhost/card-run/card:latest"


class Request(Value):
    """The command line of one card as it was given; every judgement on it is `launcher.launch`'s."""

    command: tuple[str, ...]
    image: str = DEFAULT_IMAGE
    run: str | None = None
    read: tuple[str, ...] = ()
    read_noexec: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    cwd: str | None = None
    model_host: str | None = None
    allow_host: tuple[str, ...] = ()
    egress: str | None = None
    resolver: str | None = None
    resolve_timeout: float = 3.0
    dns: str = "question"
    env: tuple[str, ...] = ()
    net: str = "pasta"
    user: str = "keep-id"
    plan: bool = False
    json: str | None = None
    quiet: bool = False
    interactive: bool = False
    tty: bool = False
    podman_arg: tuple[str, ...] = ()
