"""The run's own hooks.d, and the FIFOs by which its hooks ask the keeper (hooks/client.sh has the other end).

Made before podman is spawned, held open by the keeper alone: an end of file tells a hook that nobody will answer. They
lie in the run directory, which is its owner's and no part of the card.
"""

import os

from launcher.run.directory import HOOKS_DIRECTORY, RunDirectory
from oci import hooksd

SHELL = "/bin/sh"
ASK = "ask"
VERBS = ("prestart", "poststop")


class Exchange:
    """Our ends: what the hooks ask comes out of `ask`, and what goes into `answers[verb]` is their exit status."""

    __slots__ = ("answers", "argv", "ask")

    def __init__(self, run: RunDirectory, *, client: str, hook: tuple[str, ...]) -> None:
        """Make all of it in the run directory; `hook` is the ordinary hook's command, the verb left out."""
        self.argv = ("sh", client, run.path, *hook)
        os.mkdir(run / HOOKS_DIRECTORY, 0o700)
        for file in hooksd.pair(path=SHELL, args=self.argv):
            run.write(f"{HOOKS_DIRECTORY}/{file.name}", hooksd.render(file).encode())
        self.ask = _fifo(run / ASK)
        self.answers = {verb: _fifo(run / f"{verb}.answer") for verb in VERBS}

    def command(self, verb: str) -> tuple[str, ...]:
        """Return the whole command of one of the hooks."""
        return (*self.argv, verb)

    def close(self) -> None:
        """Let go of every end that this process has."""
        for fd in (self.ask, *self.answers.values()):
            os.close(fd)


def _fifo(path: str) -> int:
    """Make a FIFO and return a descriptor of both its ends: opening one alone would wait for the other (fifo(7))."""
    os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)
