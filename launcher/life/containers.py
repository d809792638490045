"""The containers of runs, as podman's command line tells of them: look, remove, and what was recorded of their end.

The rule: a container is a run's only when its annotations say so, the run id and the directory both; whatever has its
name or a recorded id without them is somebody else's and is left alone. Asked by command, not by podman-py: this
works in a process that has nothing but the standard library, after everything else has gone wrong.
"""

from launcher.run import command
from launcher.suppress import suppress
from launcher.value import Value
from oci import annotations, strictjson

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any
else:
    Any = object

_SECONDS = 60
_MISSING = "no such container"
_TRIES = 3  # without its conmon a container is only ended by the first and removed by the next


class Unknown(Exception):
    """Podman could not say: nothing may be taken for gone. Its words."""


class Container(Value):
    """A container of a run: its id and name, the run and directory it was made for, and podman's state and times."""

    id: str
    name: str
    run: str
    directory: str
    status: str
    exit_code: int
    oom: bool
    created: str
    image: str

    @property
    def ended(self) -> bool:
        """Return whether its first process ran and has ended: only then is the exit code one."""
        return self.status in {"exited", "stopped"}


class Containers:
    """Podman as a command, with the environment that the run's own podman had, or ours."""

    def __init__(self, program: str, environment: dict[str, str]) -> None:
        self.program = program
        self._environment = environment

    def of(self, run: str, path: str, *, ids: list[str]) -> Container | None:
        """Return the container of a run directory, by the ids that were recorded for it, else by its name.

        None when podman has none with this run's annotations. Raises Unknown.
        """
        for name in (*ids, command.container(run)):
            found = self._look(name)
            if found is not None and (found.run, found.directory) == (run, path):
                return found
        return None

    def has(self, identity: str) -> bool:
        """Return whether podman has a container, whosever it is. Raises Unknown."""
        return self._look(identity) is not None

    def strays(self) -> list[Container]:
        """Return every container with our annotations under our name for it, whether it has a run directory or not."""
        words = ["ps", "--all", "--no-trunc", "--format={{.ID}}", f"--filter=name=^{command.container('')}"]
        found = [self._look(name) for name in self._run(words).split()]
        return [one for one in found if one is not None and one.directory and one.name == command.container(one.run)]

    def remove(self, identity: str) -> None:
        """End a container and remove it; harmless when it is gone. Raises Unknown when it is still there afterwards."""
        said = ""
        for _ in range(_TRIES):
            try:
                self._run(["rm", "--force", "--ignore", "--time=0", identity])
            except Unknown as error:
                said = str(error)
            if self._look(identity) is None:
                return
        raise Unknown(said or f"container {identity} is still there")

    def died(self, identity: str, *, since: float) -> int | None:
        """Return the status that podman recorded when the container ended, which outlives it; None when it has none.

        `since` is in seconds since the epoch.
        """
        import json  # slow, as all that asks podman is

        words = ["events", "--stream=false", f"--since={int(since)}", f"--filter=container={identity}"]
        try:
            said = self._run([*words, "--filter=event=died", "--format=json"])
            told: list[dict[str, Any]] = [json.loads(line) for line in said.splitlines()]
        except (Unknown, ValueError):
            return None  # a bench whose podman keeps no events
        codes = [one.get("ContainerExitCode") for one in told if one.get("ID") == identity]
        return next((code for code in codes if isinstance(code, int) and code >= 0), None)

    def forget(self, identity: str) -> None:
        """Have the OCI runtime end and delete a container that podman does not have; what it says is of no use."""
        with suppress(Unknown):
            runtime = self._run(["info", "--format={{.Host.OCIRuntime.Path}}"]).strip()
            self._run(["unshare", runtime, "delete", "--force", identity])

    def hook(self, argv: tuple[str, ...], state: dict[str, object]) -> None:
        """Run one of our hooks where podman's mounts are; raises Unknown with what it said when it fails."""
        self._run(["unshare", *argv], stdin=strictjson.dump(state))

    def _look(self, name: str) -> Container | None:
        import json

        try:
            (found,) = json.loads(self._run(["container", "inspect", name]))
        except Unknown as error:
            if _MISSING in str(error):
                return None
            raise
        config, state = found["Config"], found["State"]
        notes: dict[str, str] = config.get("Annotations") or {}
        return Container(
            id=str(found["Id"]),
            name=str(found.get("Name", "")),
            run=notes.get(annotations.RUN, ""),
            directory=notes.get(annotations.DIRECTORY, ""),
            status=str(state.get("Status", "")),
            exit_code=int(state.get("ExitCode", 0)),
            oom=bool(state.get("OOMKilled")),
            created=str(found.get("Created", "")),
            image=str(found.get("ImageName", "")),
        )

    def _run(self, words: list[str], *, stdin: str = "") -> str:
        import subprocess

        argv = [self.program, "--remote=false", *words]
        try:
            done = subprocess.run(
                argv, input=stdin, env=self._environment, capture_output=True, text=True, timeout=_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unknown(f"podman {words[0]}: {error}") from None
        if done.returncode:
            raise Unknown(done.stderr.strip() or f"podman {words[0]} ended with status {done.returncode}")
        return done.stdout
