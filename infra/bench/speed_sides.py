"""The two sides of every comparison: card-run, and plain `podman run` of the same image, command and podman flags.

Plain podman has neither the hooks nor stage 2, and a stand-in for each file of the run directory that is mounted. Its
environment is the caller's own, as a person's would be; `environment` is the one that card-run gives to its podman.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

CARD = ["card-run", "-q", *os.environ.get("CARD_OPTS", "").split()]
# The bench's one name server is as short of time as everybody when the machine is busy; its time is in the result.
PATIENT = [*CARD, "--resolve-timeout=30"]
_CARD_RUNS_OWN = ("--hooks-dir=", "--preserve-fds=", "--name=", "--annotation=", "--cidfile=")
_PROFILE = "--security-opt=seccomp="


@contextmanager
def scratch() -> Generator[str]:
    """Make a folder for receipts, with what plain podman mounts in the place of a run directory."""
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/card")
        for name in ("hosts", "resolv.conf"):
            Path(f"{folder}/{name}").write_text("127.0.0.1 localhost\n", encoding="ascii")
        yield folder


def plain_argv(folder: str, *options: str, command: tuple[str, ...] = ("true",)) -> list[str]:
    """Return the podman command of a card with these card-run options, the hooks and stage 2 left out."""
    words = [*CARD, *options, "--plan", "--json=-", "--", "true"]
    plan = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
    directory = f"{os.environ.get('XDG_RUNTIME_DIR', '/run')}/card-run/{plan['plan']['run']}"
    return plain(plan["podman"], directory, folder, command)


def plain(card: list[str], directory: str, folder: str, command: tuple[str, ...]) -> list[str]:
    """Return a card's podman command without what is card-run's own; its last word is the run that stage 2 is told."""
    words = [word.replace(directory, folder) for word in card[:-1] if not word.startswith(_CARD_RUNS_OWN)]
    entry = next(number for number, word in enumerate(words) if word.startswith("--entrypoint="))
    words[entry] = f"--entrypoint={json.dumps(command)}"
    return words


def environment(argv: list[str]) -> dict[str, str]:
    """Return the environment that card-run gives to its podman (launcher.run.perform), for a plain one."""
    return {"GOGC": "400", **os.environ, "CONTAINERS_CONF_OVERRIDE": f"{runtime_of(argv)}/containers.conf"}


def runtime_of(argv: list[str]) -> str:
    """Return the folder of the runtime whose seccomp profile a podman command names."""
    return os.path.dirname(next(word.removeprefix(_PROFILE) for word in argv if word.startswith(_PROFILE)))
