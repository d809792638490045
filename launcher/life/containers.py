"""The containers of runs, as podman's command line tells of them: look, remove, and what was recorded of their end.

The rule: a container is a run's only when its annotations say so, the directory and with it the run's id; whatever has
its name or a recorded id without them is somebody else's and is left alone. Storage that was made for a container, of
which podman was killed before it knew of it, has nothing but its name. Asked by command, not by podman-py: this works
in a process that has nothing but the standard library, after everything else has gone wrong.
"""

import os

from hooks.egress import is_run_id
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
# How `podman ps --external` shows what has storage and no container, and buildah's among it.
_EXTERNAL, _BUILDAH = "storage", ["buildah"]
_TRIES = 3  # without its conmon a container is only ended by the first and removed by the next


class Unknown(Exception):
    """Podman could not say: nothing may be taken for gone. Its words."""


class Container(Value):
    """A container of a run: its id and name, the run and directory it was made for, and what podman says of it.

    Times are in seconds since the epoch, None for what podman saw not happen. `log` is the file of its output, if any.
    """

    id: str
    name: str
    run: str
    directory: str
    status: str
    exit_code: int
    oom: bool
    created: float | None
    started: float | None
    finished: float | None
    image: str
    network: str
    log: str

    @property
    def ended(self) -> bool:
        """Return whether its first process ran and was seen to end: only then is the exit code one.

        One that ran when the bench went down is exited for podman too, with status 0, and at no time.
        """
        return self.status in {"exited", "stopped"} and self.finished is not None


class Storage(Value):
    """Storage that was made for a container which podman does not have: its id, name, and the second it was made."""

    id: str
    name: str
    created: float


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

    def strays(self) -> tuple[list[Container], list[Storage]]:
        """Return every container with our annotations under our name for it, whether it has a run directory or not.

        And what storage has one of our names and no container. Raises Unknown.
        """
        whole, storage = self._listed(command.container(""))
        found = [self._look(one.id) for one in whole]
        mine = [one for one in found if one is not None and one.directory and one.name == command.container(one.run)]
        return mine, [one for one in storage if is_run_id(one.name.removeprefix(command.container("")))]

    def made(self, run: str) -> bool:
        """Return whether there is anything under the name of a run's container, whosever it is. Raises Unknown."""
        return any(one.name == command.container(run) for some in self._listed(command.container(run)) for one in some)

    def discard(self, run: str) -> None:
        """Remove the storage of a run's container that podman never came to know of; raises Unknown when it stays."""
        said = ""
        for _ in range(_TRIES):
            left = [one for one in self._listed(command.container(run))[1] if one.name == command.container(run)]
            if not left:
                return
            said = self._removed(left[0].id)
        raise Unknown(said or f"the storage of {command.container(run)} is still there")

    def remove(self, identity: str) -> None:
        """End a container and remove it; harmless when it is gone. Raises Unknown when it is still there afterwards."""
        said = ""
        for _ in range(_TRIES):
            said = self._removed(identity)
            if self._look(identity) is None:
                return
        raise Unknown(said or f"container {identity} is still there")

    def _removed(self, identity: str) -> str:
        """Have podman remove a container, or storage alone; return what it said when it would not."""
        try:
            self._run(["rm", "--force", "--ignore", "--time=0", identity])
        except Unknown as error:
            return str(error)
        return ""

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

    def _listed(self, beginning: str) -> tuple[list[Storage], list[Storage]]:
        """Return what has a name that begins so: podman's own containers, and storage without one.

        Buildah's working containers are storage without one too, and in use (buildah-from(1)).
        """
        import json

        words = ["ps", "--all", "--external", "--no-trunc", "--format=json"]
        told: list[dict[str, Any]] = json.loads(self._run(words)) or []
        whole: list[Storage] = []
        storage: list[Storage] = []
        for one in told:
            names: list[str] = one.get("Names") or []
            if not (names and names[0].startswith(beginning)):
                continue
            found = Storage(id=str(one["Id"]), name=names[0], created=float(one["Created"]))
            if one.get("State") != _EXTERNAL:
                whole.append(found)
            elif one.get("Command") != _BUILDAH:
                storage.append(found)
        return whole, storage

    def _look(self, name: str) -> Container | None:
        import json

        try:
            (found,) = json.loads(self._run(["container", "inspect", name]))
        except Unknown as error:
            if _MISSING in str(error):
                return None
            raise
        config, state = found["Config"], found["State"]
        host: dict[str, Any] = found.get("HostConfig") or {}
        log: dict[str, Any] = host.get("LogConfig") or {}
        notes: dict[str, str] = config.get("Annotations") or {}
        directory = notes.get(annotations.DIRECTORY, "")
        return Container(
            id=str(found["Id"]),
            name=str(found.get("Name", "")),
            # The control of a trial (launcher.registration.trial) leaves out what the hooks go by.
            run=notes.get(annotations.RUN) or os.path.basename(directory),
            directory=directory,
            status=str(state.get("Status", "")),
            exit_code=int(state.get("ExitCode", 0)),
            oom=bool(state.get("OOMKilled")),
            created=_seconds(found.get("Created")),
            started=_seconds(state.get("StartedAt")),
            finished=_seconds(state.get("FinishedAt")),
            image=str(found.get("ImageName", "")),
            network=str(host.get("NetworkMode", "")),
            log=str(log.get("Path") or ""),
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


def _seconds(text: object) -> float | None:
    """Return a time of podman's (RFC 3339) in seconds since the epoch; None for none, which Go writes as the year 1."""
    from datetime import datetime

    try:
        found = datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return None
    return found if found > 0 else None
