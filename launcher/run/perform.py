"""Performing a plan: start podman, finish the plan while it starts, release the worker, account for it afterwards.

The order is the point. podman is spawned before names are resolved; the hook waits on the plan's lock; stage 2 waits
for the word `go`, which is sent only when the hook's result and stage 2's report both hold. Whatever fails before
that word, nothing of the worker has run, and what was made is undone here.
"""

import os
import time

from launcher import runtime
from launcher.fs import protect, searched
from launcher.fs.paths import WRITE
from launcher.fs.searched import Programs
from launcher.launch import Launch
from launcher.life import identity
from launcher.life.record import Record
from launcher.network import BRIDGE
from launcher.pool import place
from launcher.run import command, directory, site, spawn
from launcher.run.channel import Channel, Lifeline
from launcher.run.directory import RunDirectory
from launcher.run.exchange import Exchange
from oci.refusal import Refusal, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    from launcher.run.detach import Parted
    from launcher.run.keeper import Keeper
    from launcher.run.session import Session
    from launcher.run.standin import Lines, Window

    S = TypeVar("S", bound=Session)


def find_podman(programs: Programs | None = None) -> str:
    """Return podman's absolute path, as PATH has it now if it was not looked for; raises Refused when there is none.

    podman starts in no directory that was deleted: where ours was, we are in / from here on.
    """
    programs = programs or searched.look()
    if _is_nowhere():
        os.chdir("/")
    if programs.podman is not None:
        return programs.podman
    raise Refused([Refusal("no-podman", "podman is not on PATH", "install podman 5.0 or newer")])


def nowhere(error: Exception) -> Refused | None:
    """Return the refusal of an error that comes from our directory, which was deleted; None for any other."""
    if not isinstance(error, FileNotFoundError) or not _is_nowhere():
        return None
    text = "the directory that this was started in was deleted, and a relative path means nothing there"
    return Refused([Refusal("no-working-directory", text, "start it in one that exists, or give absolute paths")])


def _is_nowhere() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def perform(launch: Launch, *, quiet: bool, receipt: str | None, started: float | None = None) -> int:
    """Run the card and return its exit status; raises Refused when it was not started, with nothing left behind.

    `started` is when card-run was (time.monotonic), which the receipt's times are told from; now, if it is not said.
    """
    started = time.monotonic() if started is None else started
    sink = open_receipt(receipt, [root.path for root in launch.filesystem.roots if root.access == WRITE])
    program = find_podman(launch.programs)
    if launch.limits.controllers:
        from launcher.run import cgroup  # asks podman, which only a card with such limits pays for

        launch = cgroup.enforceable(launch, program)
    built = runtime.ensure()
    if launch.net == BRIDGE:
        from launcher.run import bridge  # asks podman, which only a card on a bridge pays for

        launch = bridge.with_dns(launch, program) if launch.wants_dns else launch
    if place.present():
        from launcher.pool import client  # only where there is a pool

        try:
            return client.run(launch, built, program, quiet=quiet, receipt=sink, started=started)
        except client.Cold as error:
            launch = launch.replace(cold=str(error))
    parted = None
    if launch.detach:
        from launcher.run import detach  # only a detached card leaves the process that was started

        came = detach.part(launch.run, interactive=launch.interactive, tty=launch.tty)
        if isinstance(came, int):
            return came
        parted = came
    spawn.hold_signals()
    begun = None
    run = directory.create(launch.run)
    try:
        if parted is not None:
            parted.fresh_log()
        begun = start(launch, run, built, program)
        from launcher.run.session import Session

        session = begun.session(Session, launch, run, built, started=started, parted=parted)
        return session.carry_through(quiet=quiet, receipt=sink)
    finally:
        if parted is not None:
            parted.put_back()
        remove(run)
        if begun is not None:
            begun.held.let_go()


class Started:
    """A podman that was started for a run, and what is held for it: its record, both sockets, and the keeper."""

    __slots__ = ("channel", "child", "held", "judged", "lifeline", "record", "spawned", "stdin")

    held: "Keeper"

    def __init__(self, record: Record, channel: Channel, lifeline: Lifeline, child: spawn.Child) -> None:
        self.record = record
        self.channel = channel
        self.lifeline = lifeline
        self.child = child
        self.stdin: Lines | Window | None = None
        self.judged = self.spawned = time.monotonic()

    def session(  # noqa: PLR0913 - what a run is made of
        self,
        kind: "type[S]",
        launch: Launch,
        run: RunDirectory,
        built: runtime.Runtime,
        *,
        started: float,
        parted: "Parted | None" = None,
    ) -> "S":
        """Return the session of this run, of a class of sessions; starts the threads that serve podman."""
        from launcher.run.process import Podman

        podman = Podman(
            self.child,
            container=command.container(launch.run),
            tty=launch.tty,
            stop_timeout=launch.limits.stop_timeout,
        )
        if self.stdin is not None:
            self.stdin.serve(podman.resized)
        return kind(
            launch=launch,
            runtime=built,
            bundle=command.expectation(launch, built, run.path),
            run=run,
            record=self.record,
            keeper=self.held,
            podman=podman,
            channel=self.channel,
            times=(started, self.judged, self.spawned),
            parted=parted,
        )


def start(launch: Launch, run: RunDirectory, built: runtime.Runtime, program: str) -> Started:
    """Record the run and start podman on it, with the keeper that serves its hooks and outlives this process.

    Only while this process has one thread.
    """
    judged = time.monotonic()
    record = record_of(launch)
    run.write(directory.RECORD, record.to_json())
    for name in ("hosts", "resolv.conf"):
        run.write(name, b"")
    exchange = Exchange(run, client=built.client, hook=built.hook_argv)
    argv = command.argv(launch, built, podman=program, directory=run.path, hooks_dirs=site.hooks_dirs())
    channel, lifeline, stdin = Channel(), Lifeline(), stand_in(interactive=launch.interactive, tty=launch.tty)
    environment = _environment(launch, built)
    child = spawn.podman(
        argv,
        channel_fd=channel.theirs,
        lifeline_fd=lifeline.theirs,
        environment=environment,
        stdin=stdin.theirs if stdin else None,
        apart=not (launch.interactive and launch.tty),
    )
    begun = Started(record, channel, lifeline, child)
    begun.judged, begun.stdin = judged, stdin
    channel.spawned()
    lifeline.spawned()
    if stdin is not None:
        stdin.spawned()
    # From here on podman is busy with its own start-up: what is slow to import comes now, once for both processes.
    from launcher.life import sweep
    from launcher.run import keeper, process, session  # noqa: F401  # pyright: ignore[reportUnusedImport]

    begun.held = keeper.hold(child, run, environment, exchange)
    sweep.start(run.path)
    return begun


def stand_in(*, interactive: bool, tty: bool) -> "Lines | Window | None":
    """Return what podman has in the place of our terminal; None where it has what we have."""
    if interactive == tty or not os.isatty(0):
        return None
    from launcher.run.standin import Lines, Window  # only at a terminal

    return Window() if tty else Lines()


def open_receipt(target: str | None, writable: list[str]) -> int | None:
    """Return a descriptor for the receipt, opened before the worker can put a link in its place.

    `target` is a file, or the number of an open descriptor; raises Refused when it is neither, or when it is reached
    by a link in a `writable` root, which an earlier worker may have left there.
    """
    if target is None:
        return None
    if target == "-":
        text = "--json -: standard output is the worker's alone"
        raise Refused([Refusal("receipt-unwritable", text, "--json 3 3>receipt.json: a descriptor, or name a file")])
    try:
        if target.isascii() and target.isdigit():
            os.set_inheritable(int(target), False)
            return int(target)
        through = protect.link(os.path.abspath(target), writable)
        if through:
            text = f"--json {target!r}: {through} is a symbolic link in a --write root"
            raise Refused([Refusal("receipt-linked", text, "an earlier worker may have put it there: remove it")])
        # Not to wait for the reader of a pipe, which may never come.
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK, 0o600)
    except OSError as error:
        text = f"--json {target!r}: {os.strerror(error.errno or 0)}"
        raise Refused([Refusal("receipt-unwritable", text, "name a file that you may write")]) from None
    os.set_blocking(fd, True)
    return fd


def record_of(launch: Launch) -> Record:
    """Return the record of a run that this process starts now."""
    return Record(
        run=launch.run,
        boot_id=identity.boot_id(),
        launcher=identity.own(),
        started=time.time(),
        image=launch.image,
        command=launch.command,
        card=launch.asked.card_name,
        net=launch.net,
        names=launch.names,
        detached=launch.detach,
        stop_timeout=launch.limits.stop_timeout,
    )


def _environment(launch: Launch, built: runtime.Runtime) -> dict[str, str]:
    """Return podman's own environment: the caller's, with a PATH that no worker could write and our containers.conf.

    podman lives for a moment and collects garbage five times in it: GOGC=400 (Go's runtime package) makes both
    `podman run` and a card 8 % quicker, measured in interleaved runs.
    """
    ours = {"CONTAINERS_CONF_OVERRIDE": built.containers_conf}
    return {"GOGC": "400", **launch.programs.environment, **ours}


def remove(run: RunDirectory) -> None:
    """Remove the run directory; what could not be removed is told."""
    left = run.remove()
    if left:
        from launcher.run import output

        for line in left:
            output.say(f"NOTE left behind: {line}")


def exit_refused(error: Refused) -> int:
    """Print the refusals of an error and return the exit status that they mean."""
    from launcher.run import output

    output.refusals(error.refusals)
    return error.status
