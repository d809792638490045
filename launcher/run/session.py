"""One started card, from podman's start to the receipt. Imported once podman runs, so it may import what it likes."""

import os
import time

from launcher import bench, guard, pins
from launcher.fs import aftermath
from launcher.launch import Launch
from launcher.life import undo
from launcher.life.containers import Containers
from launcher.life.record import Record
from launcher.network import BRIDGE
from launcher.plan import Plan, hosts, resolv_conf, stage2_conf
from launcher.run import ending, events, output
from launcher.run.account import account
from launcher.run.channel import Channel
from launcher.run.detach import Parted
from launcher.run.directory import RELEASED, STAGE2_DIRECTORY, RunDirectory
from launcher.run.keeper import Keeper
from launcher.run.process import Podman
from launcher.run.receipt import Measured, enforced, shortfall
from launcher.runtime import Runtime
from oci import strictjson
from oci.refusal import Refusal, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any
else:
    Any = object

# From here on a status may be podman's own (podman-run(1) "Exit Status") or a signal's, and a container may be left.
_PODMANS_OWN = 125
# What timeout(1) returns.
EXIT_TIMEOUT = 124


class Session:
    """Finishes the plan, hands it over, judges what comes back, and accounts for the run."""

    def __init__(  # noqa: PLR0913 - what a run is made of
        self,
        *,
        launch: Launch,
        runtime: Runtime,
        bundle: dict[str, object],
        run: RunDirectory,
        record: Record,
        keeper: Keeper,
        podman: Podman,
        channel: Channel,
        times: tuple[float, float, float],
        parted: Parted | None = None,
    ) -> None:
        self._launch = launch
        self._runtime = runtime
        self._bundle = bundle
        self._run = run
        self._record = record
        self._keeper = keeper
        self._podman = podman
        self._channel = channel
        self._parted = parted
        self._started, judged, spawned = times
        self._times: dict[str, float] = {}
        self._mark("judged", judged)
        self._mark("podman_spawned", spawned)
        self._mark("ready")

    def _mark(self, phase: str, at: float | None = None) -> None:
        self._times[phase] = round(((time.monotonic() if at is None else at) - self._started) * 1000, 2)

    def carry_through(self, *, quiet: bool, receipt: int | None) -> int:
        """Return the worker's exit status; raises Refused when it was never released."""
        try:
            plan = self._finish_plan()
            measured = self._release(plan, quiet=quiet)
        except BaseException as error:
            self._abandon()
            if isinstance(error, Refused) and self._podman.signalled:
                raise ending.interrupted(self._podman.signalled) from None
            raise
        if self._parted is not None and not self._parted.released():
            self._podman.end()  # nobody learned its id
        status = self._await(plan.launch.limits.timeout)
        self._mark("podman_exited")
        measured = measured.replace(
            ledger=self._ledger(), exit_status=status, times_ms=self._times, signalled=bool(self._podman.signalled)
        )
        if self._podman.signalled or measured.ledger is None or self._doubtful(measured, status):
            status = self._settle(status)
            measured = measured.replace(ledger=self._ledger(), exit_status=status)
        measured = measured.replace(oom=ending.memory(self._run, status), timed_out=self._podman.expired)
        if measured.ledger is None:
            from launcher.run import why  # a hook that failed

            measured = measured.replace(unread=tuple(why.unread(self._run)))
        account(plan, measured, self._record, quiet=quiet, receipt=receipt)
        return status

    def _doubtful(self, measured: Measured, status: int) -> bool:
        """Return whether a status may not be the worker's."""
        if status >= _PODMANS_OWN:
            return True
        return not self._podman.expired and ending.differs(self._run, measured.hook["facts"]["container"], status)

    def _await(self, timeout: float | None) -> int:
        """Return the worker's status; past its time it is asked to end, then made to, and 124 is its status."""
        if timeout is None:
            return self._wait()
        import threading

        timer = threading.Timer(timeout, self._podman.expire)
        timer.daemon = True
        timer.start()
        status = self._wait()
        timer.cancel()
        if not self._podman.expired:
            return status
        output.say(f"NOTE the worker was ended after --timeout {timeout:g} seconds")
        return EXIT_TIMEOUT

    def _wait(self) -> int:
        """Return the worker's status once it has ended."""
        return self._podman.wait()

    def _finish_plan(self) -> Plan:
        """Resolve, judge, and write all that the hook and stage 2 read; the lock is let go of last."""
        settings, wrong = bench.read()
        if wrong:
            raise Refused(wrong)
        plan = pins.finish(self._launch, settings, bundle=self._bundle)
        self._mark("resolved")
        self._write(plan)
        self._hand_on()
        self._mark("plan_written")
        return plan

    def _hand_on(self) -> None:
        """Let the plan that was written be acted on."""
        self._keeper.plan_is_written()

    def _write(self, plan: Plan) -> None:
        self._run.write("table.nft", plan.table.encode())
        self._run.write("hosts", hosts(plan).encode())
        self._run.write("resolv.conf", resolv_conf(plan).encode())
        self._run.write(f"{STAGE2_DIRECTORY}/stage2.conf", stage2_conf(plan))
        before = aftermath.before(plan.launch.filesystem, before_podman=plan.launch.before_podman)
        if before is not None:
            self._run.write(aftermath.NAME, before.to_json())
        self._run.write("plan.json", plan.json)
        self._run.release()

    def _release(self, plan: Plan, *, quiet: bool) -> Measured:
        """Hand stage 2 its secrets, hear its report, and say `go` only when everything holds."""
        secrets = [("nonce", plan.nonce), *(("env", f"{name}={value}") for name, value in self._launch.env)]
        try:
            self._greet(secrets)
        except OSError:
            raise self._never_started() from None
        report = self._hear()
        self._mark("stage2_reported")
        if report is None:
            raise self._never_started()
        if report.get("status") != ["ok"]:
            raise Refused(self._told(refusals_of(report)))
        inside = {key: values[-1] for key, values in report.items()}
        measured = Measured(
            hook=self._hook(),
            stage2=inside,
            outer=self._outer(inside),
            times_ms=self._times,
            started_ms=round(self._started * 1000, 2),
        )
        lacking = shortfall(plan, measured)
        if lacking:
            raise Refused(lacking)
        exposed = guard.secluded(self._launch.filesystem)
        if exposed:  # the first key, or a pool, was made meanwhile
            raise Refused(exposed)
        self._use_grants()
        if events.heard():
            output.started(plan, measured)
        elif not quiet:
            output.notes(plan)
            output.ok(plan, measured)
        self._podman.release()
        self._run.write(RELEASED, strictjson.dump(enforced(plan, measured)).encode())
        try:
            self._let_go()
        except OSError:
            raise self._lost() from None
        self._mark("released")
        return measured

    def _hear(self) -> dict[str, list[str]] | None:
        """Return stage 2's report, or None when there will be none: conmon may hold the socket when podman is gone."""
        import select

        podman, poll = os.pidfd_open(self._podman.pid), select.poll()
        for fd in (self._channel.fd, podman):
            poll.register(fd, select.POLLIN)
        heard = [fd for fd, _ in poll.poll()]
        os.close(podman)
        report = self._channel.receive() if self._channel.fd in heard else None
        # A worker whose podman is gone is not released; why stage 2 refused is heard all the same.
        return None if report is not None and podman in heard and report.get("status") == ["ok"] else report

    def _greet(self, secrets: list[tuple[str, str]]) -> None:
        """Hand stage 2 what only it may know; raises OSError when it is not there."""
        self._channel.send(secrets)

    def _let_go(self) -> None:
        """Say the word that starts the worker."""
        self._channel.send([("go", "1")])

    def _use_grants(self) -> None:
        """Use up the run's grants: every wall stands, and the worker has not started. Raises Refused."""
        opened = self._launch.asked.opened
        if opened is not None:
            from launcher.grants import opening

            opening.use(opened.grants)

    def _told(self, refusals: list[Refusal]) -> list[Refusal]:
        """Return stage 2's refusals, a granted path that was swapped called by its name."""
        opened = self._launch.asked.opened
        if opened is None:
            return refusals
        from launcher.grants import opening

        return opening.swapped(refusals, opened.grants)

    def _outer(self, inside: dict[str, str]) -> dict[str, Any] | None:
        """Build the outer table of a card on a bridge, now that its veth exists; None for any other network."""
        if self._launch.net != BRIDGE:
            return None
        from launcher.run import bridge

        return bridge.build(self._run, self._runtime, self._podman.program, inside["link"])

    def _hook(self) -> dict[str, Any]:
        data = self._run.read("hook.json")
        return _parsed(data) if data else {}

    def _ledger(self) -> dict[str, Any] | None:
        data = self._run.read("ledger.json")
        return _parsed(data) if data else None

    def _never_started(self) -> Refused:
        """Return why podman never got to stage 2: the hook's reasons, else podman's own words."""
        status = self._podman.wait()
        if self._podman.gave_up:
            text = "podman did not start the card in time, and was ended"
            return Refused([Refusal("start-timeout", text, "an image with odd files in /etc can hang podman")])
        from launcher.run import why  # a start that failed

        said = self._podman.said() or f"exit status {status}, and no word why"
        return Refused(why.refusals(self._run, said) or [why.of_podman(self._launch.image, said)])

    def _lost(self) -> Refused:
        """Return the refusal of a card that ended by itself between its report and the word that starts the worker."""
        text = f"stage 2 was gone when the worker was to start; podman ended with status {self._podman.wait()}"
        return Refused([Refusal("stage2-lost", text, "was it killed, or is the bench short of memory?")])

    def _abandon(self) -> None:
        """End a card whose worker was not released: stage 2 sees the channel close, and podman cleans up."""
        self._channel.close()
        self._run.release()
        self._podman.wait()
        undo.sweep(
            self._run,
            Containers(self._podman.program, self._launch.programs.environment),
            killed=bool(self._podman.killed),
        )

    def _settle(self, status: int) -> int:
        """Remove what podman left, and return the status that the container recorded, a timeout's excepted."""
        containers = Containers(self._podman.program, self._launch.programs.environment)
        client, killed = self._podman.wait(), self._podman.killed
        recorded = ending.settle(self._run, containers, client=client, killed=killed)
        return status if self._podman.expired else recorded


def refusals_of(report: dict[str, list[str]]) -> list[Refusal]:
    """Return stage 2's own refusals, which come side by side, one of each key for each."""
    told = zip(report.get("reason", ()), report.get("text", ()), report.get("hint", ()), strict=False)
    return [Refusal(*one) for one in told] or [Refusal("stage2-refused", "stage 2 refused and gave no reason")]


def _parsed(data: bytes) -> dict[str, Any]:
    """Return one of the hooks' own files; raises TypeError or ValueError when it is not a JSON object."""
    value = strictjson.parse(data)
    if not isinstance(value, dict):
        raise TypeError("not a JSON object")
    return value  # pyright: ignore[reportUnknownVariableType]
