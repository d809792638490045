"""A hook that cannot go on: the reason reaches the user, and nothing of the card is left.

The nft that hangs is a real program in nft's place, in the mount namespace that podman keeps for its containers.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hooks import rundir
from oci.hooksd import PRESTART_TIMEOUT
from tests.bench.cards import card, run
from tests.bench.lives import until
from tests.bench.test_hooks import hooks
from tests.bench.test_proof import COPY, WORKER, never_ran, stand_in

NFT = "/usr/sbin/nft"
RUNS = Path(os.environ.get("XDG_RUNTIME_DIR", "/run")) / "card-run"


@pytest.fixture
def hung_nft(tmp_path: Path) -> Iterator[None]:
    """Put a program that never ends in nft's place, where podman's hooks run."""
    program = tmp_path / "hangs"
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    program.chmod(0o755)
    subprocess.run(["podman", "unshare", "mount", "--bind", str(program), NFT], check=True)
    yield
    subprocess.run(["podman", "unshare", "umount", NFT], check=True)
    assert not run(["pgrep", "-f", "sleep 1000"]).out


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


@contextmanager
def stopped_before_its_plan(
    run_id: str, env: dict[str, str] | None = None
) -> Generator[tuple["subprocess.Popen[str]", Path]]:
    """Start a card whose card-run is stopped while it still resolves; give the process and the run directory.

    It goes on, and comes to its end, at the latest when the block ends.
    """
    words = ["card-run", "--run", run_id, "--resolver", "192.0.2.99", "--resolve-timeout", "10", *WORKER]
    directory = RUNS / run_id
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
        try:
            # Without its keeper yet, a stopped card-run would leave the hook with nobody to answer it.
            keeper = ["pgrep", "--parent", str(process.pid), "--exact", "card-keeper"]
            while not ((directory / "cid").exists() and run(keeper).out):
                assert process.poll() is None
            process.send_signal(signal.SIGSTOP)
            assert not (directory / "plan.json").exists()
            yield process, directory
        finally:
            process.send_signal(signal.SIGCONT)


def let_go_on(process: "subprocess.Popen[str]") -> str:
    """Let a stopped card-run go on to its end, which is a refusal; return what it said."""
    process.send_signal(signal.SIGCONT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (125, "")
    return err


@pytest.mark.usefixtures("nothing_left")
def test_a_plan_that_never_comes() -> None:
    """While card-run is stopped before its plan is whole, the hook gives up by itself; nothing of the card is left."""
    with stopped_before_its_plan("late") as (process, directory):
        until((directory / "hook.json").exists, seconds=rundir.LOCK_DEADLINE + 15)
        assert '"plan-late"' in (directory / "hook.json").read_text()
        assert "reason=plan-late " in (directory / "hook.log").read_text()
        assert "SANDBOX REFUSED reason=" in let_go_on(process)


@pytest.mark.usefixtures("nothing_left")
def test_a_hook_that_is_killed(tmp_path: Path) -> None:
    """The runtime kills a hook past its timeout: podman removes the container, nothing is left."""
    change = COPY + "text = open(path).read()\nassert '\"timeout\":75' in text\n"
    change += 'open(path, "w").write(text.replace(\'"timeout":75\', \'"timeout":2\'))\n'
    with stopped_before_its_plan("killed", stand_in(tmp_path, change)) as (process, directory):
        until(lambda: not run(["podman", "ps", "--all", "--quiet"]).out, seconds=15)
        assert not (directory / "hook.json").exists()
        assert not (directory / "card/proof").exists()
        assert "SANDBOX REFUSED reason=" in let_go_on(process)


@pytest.mark.usefixtures("nothing_left")
def test_an_interpreter_that_fails(tmp_path: Path) -> None:
    """What the hook's own Python says before our code runs is kept by the runtime, and told."""
    change = COPY + 'text = open(path).read()\nassert "__main__.pyc" in text\n'
    change += 'open(path, "w").write(text.replace("__main__.pyc", "gone.pyc"))\n'
    done = card(*WORKER, env=stand_in(tmp_path, change))
    never_ran(done)
    assert done.reasons == ["hook-failed"]
    assert "gone.pyc" in done.err
