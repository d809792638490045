"""A hook that cannot go on: the reason reaches the user, and nothing of the card is left.

The nft that hangs is a real program in nft's place, in the mount namespace that podman keeps for its containers.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from hooks import rundir
from launcher.egress.policy import BASE_NAMES
from oci.hooksd import PRESTART_TIMEOUT
from tests.bench.cards import Run, card, run
from tests.bench.lives import Live, children, until
from tests.bench.test_hooks import hooks
from tests.bench.test_keeper import TO_THE_KEEPER
from tests.bench.test_proof import COPY, WORKER, never_ran, stand_in

NFT = "/usr/sbin/nft"
RUNS = Path(os.environ.get("XDG_RUNTIME_DIR", "/run")) / "card-run"
WAITS = ["sh", "-c", "touch running; while [ ! -e go ]; do sleep 0.05; done; echo ran"]


@pytest.fixture
def hang_nft(tmp_path: Path) -> Iterator[Callable[[], None]]:
    """Return what puts a program that never ends in nft's place, where podman's hooks run."""
    program = tmp_path / "hangs"
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    program.chmod(0o755)
    hung: list[str] = []

    def hang() -> None:
        subprocess.run(["podman", "unshare", "mount", "--bind", str(program), NFT], check=True)
        hung.append(NFT)

    yield hang
    for path in hung:
        subprocess.run(["podman", "unshare", "umount", path], check=True)
    assert not run(["pgrep", "-f", "sleep 1000"]).out


@pytest.fixture
def hung_nft(hang_nft: Callable[[], None]) -> None:
    """Put a program that never ends in nft's place."""
    hang_nft()


@pytest.mark.usefixtures("nothing_left", "hung_nft")
def test_nft_that_hangs() -> None:
    """The registered hook, which calls the program, says that it took too long, long before podman would kill it."""
    hooks("install")
    try:
        ready = run(["card", "prepare", "--json=-", "--run", "hung", *WORKER])
        told = json.loads(ready.out)
        start = time.monotonic()
        done = run(told["podman"], stdin=subprocess.DEVNULL)
        result = json.loads((Path(told["directory"]) / "hook.json").read_text())
    finally:
        hooks("uninstall")
        subprocess.run(["rm", "-rf", str(RUNS / "hung")], check=True)
    assert (done.status, done.out) == (126, "")
    assert [one["reason"] for one in result["refusals"]] == ["hook-late"]
    assert time.monotonic() - start < PRESTART_TIMEOUT - 20


@pytest.mark.usefixtures("nothing_left", "hung_nft")
def test_nft_that_hangs_for_a_cards_own_hook(tmp_path: Path) -> None:
    """Without its keeper card-run's own hook calls the program too: card-run says what took too long."""
    start = time.monotonic()
    done = card(*WORKER, env=stand_in(tmp_path, TO_THE_KEEPER.format(signal="SIGKILL")))
    never_ran(done)
    assert done.reasons == ["hook-late"]
    assert "is nft hung, or the bench?" in done.err
    assert time.monotonic() - start < PRESTART_TIMEOUT - 20


def begin(run_id: str, *words: str, env: dict[str, str] | None) -> Live:
    """Start a card in an environment."""
    argv, pipe = ["card-run", f"--run={run_id}", *words], subprocess.PIPE
    return Live(subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, env=env), run_id)


@contextmanager
def held_before_its_plan(
    tmp_path: Path, run_id: str, env: dict[str, str] | None = None
) -> Generator[tuple[Live, Callable[[], Run]]]:
    """Hold a card whose names have resolved before it writes its plan; give it, and what lets it go on to its end.

    What it writes first is a FIFO here, which is put there while a name takes a second to resolve: nothing but the
    hook can fail.
    """
    policy = tmp_path / "egress.txt"
    policy.write_text("\n".join((*BASE_NAMES, "slow.fault.example")) + "\n")
    options = [f"--egress={policy}", "--allow-host=slow.fault.example", "--resolve-timeout=20"]
    live = begin(run_id, *options, *WORKER, env=env)
    table = live.path / "table.nft"
    keeper = ["pgrep", "--parent", str(live.process.pid), "--exact", "card-keeper"]
    until(lambda: (live.path / "cid").exists() and run(keeper).out)
    assert not table.exists()
    os.mkfifo(table)

    def go_on() -> Run:
        table.read_bytes()
        status, out, err = live.end()
        return Run(status=status, out=out, err=err)

    try:
        yield live, go_on
    finally:
        live.process.kill()
        live.process.communicate()


@pytest.mark.usefixtures("nothing_left")
def test_a_plan_that_never_comes(tmp_path: Path) -> None:
    """While card-run's plan is not whole the hook gives up by itself, and its reason is what card-run says."""
    with held_before_its_plan(tmp_path, "late") as (live, go_on):
        until((live.path / "hook.json").exists, seconds=rundir.LOCK_DEADLINE + 15)
        assert "reason=plan-late " in (live.path / "hook.log").read_text()
        done = go_on()
    never_ran(done)
    assert done.reasons == ["plan-late"]
    assert f"the plan was not complete after {rundir.LOCK_DEADLINE:g} s" in done.err


@pytest.mark.usefixtures("nothing_left")
def test_a_hook_that_is_killed(tmp_path: Path) -> None:
    """The runtime kills a hook past its timeout: podman removes the container, and card-run says what happened."""
    change = COPY + "text = open(path).read()\nassert '\"timeout\":75' in text\n"
    change += 'open(path, "w").write(text.replace(\'"timeout":75\', \'"timeout":2\'))\n'
    with held_before_its_plan(tmp_path, "killed", stand_in(tmp_path, change)) as (live, go_on):
        until(lambda: not run(["podman", "ps", "--all", "--quiet"]).out, seconds=15)
        assert not (live.path / "hook.json").exists()
        assert not (live.path / "card/proof").exists()
        done = go_on()
    never_ran(done)
    assert done.reasons == ["hook-timeout"]


@pytest.mark.usefixtures("nothing_left")
def test_a_keepers_hand_that_is_killed(tmp_path: Path) -> None:
    """The hook that follows it has no state any more, and card-run says so, and why."""
    with held_before_its_plan(tmp_path, "hand") as (live, go_on):
        (keeper,) = live.find("leash")
        until(lambda: children(keeper))
        (hand,) = children(keeper)
        until(lambda: str(live.path / "plan.lock") in files(hand))
        os.kill(hand, signal.SIGKILL)
        until(lambda: not run(["podman", "ps", "--all", "--quiet"]).out, seconds=15)
        done = go_on()
    never_ran(done)
    assert done.reasons == ["hook-lost"]


def files(pid: int) -> list[str]:
    """Return what a process has open."""
    found: list[str] = []
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found.append(os.readlink(entry))
    return found


@pytest.mark.usefixtures("nothing_left")
def test_nft_that_hangs_at_the_end(workspace: Path, tmp_path: Path, hang_nft: Callable[[], None]) -> None:
    """The run has no ledger, and says why on stderr and in its receipt; the worker's status stands."""
    environment = stand_in(tmp_path, TO_THE_KEEPER.format(signal="SIGKILL"))
    done = without_ledger(workspace, hang_nft, env=environment)
    assert [one["reason"] for one in done.receipt["ledger_refusals"]] == ["hook-late"]
    assert "; reason=hook-late keeping the ledger took more than 8 s (hint: is nft hung, or the bench?)" in done.err


@pytest.mark.usefixtures("nothing_left")
def test_a_table_that_is_gone_at_the_end(workspace: Path) -> None:
    """A keeper's own reason is told as well, though podman shows nothing of what a poststop hook says."""

    def flush() -> None:
        words = ["podman", "unshare", "nsenter", f"--net={RUNS / 'over' / rundir.NETNS}", NFT, "flush", "ruleset"]
        assert run(words).status == 0

    done = without_ledger(workspace, flush)
    assert [one["reason"] for one in done.receipt["ledger_refusals"]] == ["nft-list"]
    assert "; reason=nft-list the table nova_egress_over cannot be read back: " in done.err


def without_ledger(workspace: Path, spoil: Callable[[], None], env: dict[str, str] | None = None) -> Run:
    """Spoil the end of a run while its worker waits; return what it comes to."""
    receipt = workspace / "receipt.json"
    live = begin("over", f"--write={workspace}", f"--json={receipt}", "--", *WAITS, env=env)
    until((workspace / "running").exists)
    spoil()
    (workspace / "go").touch()
    status, out, err = live.end()
    done = Run(status=status, out=out, err=err, receipt=json.loads(receipt.read_text()))
    assert (done.status, done.out, done.receipt["ledger"]) == (0, "ran\n", None)
    assert "NOTE the ledger could not be read: what was denied is not known; reason=" in done.err
    return done


@pytest.mark.usefixtures("nothing_left")
def test_an_interpreter_that_fails(tmp_path: Path) -> None:
    """What the hook's own Python says before our code runs is kept by the runtime, and told."""
    change = COPY + 'text = open(path).read()\nassert "__main__.pyc" in text\n'
    change += 'open(path, "w").write(text.replace("__main__.pyc", "gone.pyc"))\n'
    done = card(*WORKER, env=stand_in(tmp_path, change))
    never_ran(done)
    assert done.reasons == ["hook-failed"]
    assert "gone.pyc" in done.err
