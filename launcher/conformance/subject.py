"""What is tried: anything that runs commands and says what it claims; and a plain process, which claims nothing.

The shape that other people's executors are adapted to. Imports the standard library only.
"""

import os
import subprocess
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

_SECONDS = 120


class Ran(NamedTuple):
    """One finished command: its exit status (128 + N when signal N ended it), and what it wrote, to the byte."""

    status: int
    stdout: bytes
    stderr: bytes


class Target(NamedTuple):
    """A place of the network: an address or a name, a port, `tcp` or `udp`; a datagram counts once it is answered."""

    host: str
    port: int
    protocol: str = "tcp"
    payload: bytes = b"card"

    def __str__(self) -> str:
        return f"{self.protocol} {self.host} port {self.port}"


class Subject(Protocol):
    """An executor under trial, made for one scene."""

    @property
    def claims(self) -> Collection[str]:
        """Return the guarantee bits it claims (`launcher.conformance.claims.MEANING`), the same ones each time."""
        ...

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> Ran:
        """Run one command to its end, however it ends; `env` is added to what it would have, `cwd` is a path inside.

        Must raise, and never return a status, when the command was not run at all.
        """
        ...

    def close(self) -> None:
        """End and remove whatever it holds."""
        ...


class HostProcess:
    """A plain process of this machine, with no wall at all: what an attempt comes to when nothing stops it."""

    claims: Collection[str] = ()

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> Ran:
        """Run one command as a child; raises OSError when it cannot be executed, subprocess.TimeoutExpired."""
        done = subprocess.run(
            list(argv),
            input=stdin,
            capture_output=True,
            check=False,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            timeout=_SECONDS,
        )
        status = done.returncode if done.returncode >= 0 else 128 - done.returncode
        return Ran(status=status, stdout=done.stdout, stderr=done.stderr)

    def close(self) -> None:
        """Do nothing: each process has ended."""
