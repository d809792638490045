"""What the cards of an executor are, beside their access profile; and what one command may say for itself.

Values only: what they mean, and whether they are good, is card-run's own judgement, told as refusals.
"""

from collections.abc import Mapping
from typing import TypedDict

from launcher.request import DEFAULT_IMAGE
from launcher.value import Value

OUTPUT_LIMIT = 16 << 20


class Settings(Value):
    """What every card of an executor set is made of: image, network, limits, as card-run(1) has them.

    `env` are variables for every command; nothing else crosses. `stop_seconds` is how long a command has from SIGTERM
    until it is killed. `protect` and `secret` are card-run's `--protect` and `--secret`.
    """

    image: str = DEFAULT_IMAGE
    user: str = "keep-id"
    net: str = "pasta"
    dns: str = "question"
    hosts: tuple[str, ...] = ()
    model_host: str | None = None
    egress: str | None = None
    resolver: str | None = None
    protect: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    memory: str | None = None
    cpus: float | None = None
    pids: int | None = None
    nofile: int | None = None
    shm_size: str | None = None
    stop_seconds: float = 5.0


class CommandOptions(TypedDict, total=False):
    """What one command may say for itself, all of it optional.

    `cwd`: where it starts, the workspace if not said. `env`: variables besides the set's own. `timeout`: seconds after
    which it is ended, its result then `timed_out`. `hosts`: further hosts of the policy file. `run_id`: its run id.
    `output_limit`: bytes of each of stdout and stderr that are kept (16 MiB); what comes after them is read and
    dropped, the command goes on, and its result is `truncated`; also the longest line that `readline` takes.
    `stdin`: whether a started process has one to write to. `terminal`: give it a terminal of so many rows and columns;
    its stdin, stdout and stderr are then that. What is handed over is then as if typed: echoed, in lines of 4095 bytes
    at the most until the command sets its terminal otherwise; and the end of input is the key for that, Ctrl-D
    (termios(3), VEOF).
    """

    cwd: str | None
    env: Mapping[str, str]
    timeout: float | None
    hosts: tuple[str, ...]
    run_id: str | None
    output_limit: int
    stdin: bool
    terminal: tuple[int, int] | None
