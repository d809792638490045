"""What enters a running card later (`card exec`): a process behind the worker's own walls, proved as the worker was.

podman starts the card's stage 2 once more (podman-exec(1) `--preserve-fds`), and that does for it all that it did for
the worker: the proof for this very start, the egress self-test, Landlock, seccomp. The rule: it is let go only when all
that the worker's release wanted was measured on it too, and it ends with us, by a lifeline of its own.

Each has a Landlock domain of its own, so neither may trace or signal the other. That is all it keeps apart: they are
one user, so either may set the other's limits and scheduling (prlimit(2), sched(7)), and a limit can end it.
"""

import os
import signal
import subprocess
from typing import Any

from hooks import rundir
from hooks.plan import sha256
from launcher.fs import searched
from launcher.life.runs import Run
from launcher.request import Request
from launcher.run import foreground
from launcher.run.channel import CONTAINER_FD, LIFELINE_FD, Channel, Lifeline
from launcher.run.receipt import Measured, lacking
from launcher.run.session import refusals_of
from launcher.value import Value
from oci import strictjson
from oci.refusal import Refusal, Refused

# podman's status for a command whose container went before it could be asked: it was killed with the card.
_UNTOLD, _KILLED = 255, 128 + signal.SIGKILL


class Card(Value):
    """What a run's plan says: digest, nonce, how stage 2 is started, whether commands `start`, HOME, the limits."""

    digest: str
    nonce: str
    argv: tuple[str, ...]
    start: str
    home: str
    limits: dict[str, str]


def card(run: Run) -> Card:
    """Return what is needed to enter a run; raises Refused (`run-ended`) when it is gone."""
    try:
        with open(f"{run.path}/{rundir.PLAN}", "rb") as file:
            data = file.read()
        plan: Any = strictjson.parse(data)
    except OSError:
        raise Refused([Refusal("run-ended", f"{run.run} has just ended")]) from None
    # Behind podman's init and its `--`.
    argv = tuple(plan["bundle"]["args"][2:])
    told = {name: plan[name] for name in ("nonce", "start", "home", "limits")}
    return Card(digest=sha256(data), argv=argv, **told)


def enter(run: Run, known: Card, asked: Request, *, env: tuple[tuple[str, str], ...], podman: str) -> int:
    """Run a command in a card and return its exit status; raises Refused when it was not let go.

    Of what is asked, command, directory, input and terminal are meant here; `env` comes on top of the image's.
    A terminal of ours is made raw by podman while it runs, where it is the command's too. What is sent to us is passed
    on to it.
    """
    channel, lifeline, container = Channel(), Lifeline(), run.container or ""
    child = foreground.start(
        _words(container, known, asked, podman),
        interactive=asked.interactive,
        tty=asked.tty,
        descriptors=((channel.theirs, CONTAINER_FD), (lifeline.theirs, LIFELINE_FD)),
    )
    channel.spawned()
    lifeline.spawned()
    try:
        process = _let_go(run, known, _said(run, known, asked, env), channel)
    except Refused:
        channel.close()  # stage 2 sees it, and refuses
        os.waitpid(child.pid, 0)
        raise
    status = foreground.wait(child, lambda number: signal.pidfd_send_signal(process, number))
    return _KILLED if status == _UNTOLD and not _exists(container, podman) else status


def _exists(container: str, podman: str) -> bool:
    """Return whether podman still has a container (podman-container-exists(1))."""
    words = [podman, "--remote=false", "container", "exists", container]
    return subprocess.run(words, capture_output=True, check=False, env=searched.environment()).returncode == 0


def _words(container: str, known: Card, asked: Request, podman: str) -> list[str]:
    # No keys to detach with: it would be left behind without us, and Ctrl-P is every shell's own.
    words = [podman, "--remote=false", "exec", "--preserve-fds=2", "--detach-keys=", "--workdir=/"]
    words += [f"--interactive={str(asked.interactive).lower()}", f"--tty={str(asked.tty).lower()}"]
    return [*words, container, *known.argv]


def _said(run: Run, known: Card, asked: Request, env: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    """Return what stage 2 is told: so that none of it is in an argv or in podman's state."""
    items = [("nonce", known.nonce), *(("argv", word) for word in asked.command)]
    items += [("taken", "1")] if os.path.exists(f"{run.path}/{rundir.CARD}/{rundir.TAKEN}") else []
    items += [("cwd", asked.cwd)] if asked.cwd is not None else []
    return items + [("env", f"{name}={value}") for name, value in env]


def _let_go(run: Run, known: Card, items: list[tuple[str, str]], channel: Channel) -> int:
    """Say what to run, judge what stage 2 measured, and let it go; return a pidfd of it."""
    try:
        channel.send(items)
        sender = channel.sender()
        process = _held(sender) if sender else None
        report = channel.receive()
    except OSError:
        process, report = None, None
    if report is not None and "egress" in report:  # stage 2 felt the wall, whatever it came to then
        _count(run)
    # Who refuses has said why, and may have ended before it could be held.
    if report is None or (process is None and report.get("status") == ["ok"]):
        raise Refused(
            [
                Refusal(
                    "not-entered",
                    f"podman did not start stage 2 in {run.run}",
                    "podman's own words say why: is the card paused?",
                )
            ]
        )
    if process is None or report.get("status") != ["ok"]:
        raise Refused(refusals_of(report))
    inside = {key: values[-1] for key, values in report.items()}
    measured = Measured(hook=run.read(rundir.HOOK) or {}, stage2=inside, times_ms={})
    missing = lacking(measured, digest=known.digest, expected=known.limits)
    if missing:
        raise Refused(missing)
    try:
        channel.send([("go", "1")])
    except OSError:
        text = f"stage 2 in {run.run} was gone when the command was to start"
        raise Refused([Refusal("stage2-lost", text, "did the card end just now?")]) from None
    return process


def _held(pid: int) -> int | None:
    """Return a pidfd of a process, or None when it has ended."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def _count(run: Run) -> None:
    """Have the ledger's readers take off one self-test more."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(f"{run.path}/{rundir.EXECS}", flags, 0o600)
    try:
        os.write(fd, b".")
    finally:
        os.close(fd)
