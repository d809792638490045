"""Nothing is left: after close(), after a crash of the product in between, and of grants that were never used."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from launcher import ClosedError, Refused, Settings
from tests.api.kit import executors
from tests.bench.cards import remains, run

ROOT = Path(__file__).parents[2]
# A product that starts a card, says so, and is then killed, or dies of a mistake of its own.
PRODUCT = """
import os, signal, sys
from launcher import ExecutorSet, Profile
work, scratch, how = sys.argv[1:]
profile = Profile(workspace=work, workspace_read="allow", workspace_write="allow", command="allow")
executors = ExecutorSet(profile, scratch_root=scratch)
text = "trap '' TERM; touch started; echo up; while :; do sleep 0.1; done"
process = executors.executor("a").prepare(["sh", "-c", text]).start()
process.stdout.readline()
if how == "forked" and os.fork() == 0:
    signal.alarm(20)
    signal.pause()
if how != "mistaken":
    os.kill(os.getpid(), signal.SIGKILL)
raise RuntimeError("a mistake")
"""


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("how", ["killed", "mistaken", "forked"])
def test_a_product_that_crashes_leaves_no_card(how: str, workspace: Path) -> None:
    """Its card, which ignores SIGTERM, ends with it; what is in the scratch directory goes at the next start."""
    before = remains()
    scratch = workspace.parent / "scratch"
    errors = workspace.parent / "errors"  # a pipe would be held by what the product forked
    argv = [sys.executable, "-c", PRODUCT, str(workspace), str(scratch), how]
    with errors.open("wb") as said:
        done = subprocess.run(argv, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=said, timeout=60, check=False)
    assert done.returncode == (1 if how == "mistaken" else -signal.SIGKILL), errors.read_text()
    assert (workspace / "started").exists()
    deadline = time.monotonic() + 5
    while remains() != before and time.monotonic() < deadline:
        pass
    assert remains() == before
    assert len(list(scratch.iterdir())) == 1
    with executors(workspace) as made:
        assert made.executor("a").run_command(["true"]).ok


@pytest.mark.usefixtures("nothing_left")
def test_close_ends_what_runs(workspace: Path) -> None:
    """Commands that were started and left alone, several at once, each gone when close() returns; none waits long."""
    with executors(workspace) as made:
        text = "trap '' TERM; touch $0; while :; do sleep 0.1; done"
        processes = [made.executor(key).prepare(["sh", "-c", text, key]).start() for key in ("a", "b", "c")]
        start = time.monotonic()
    assert time.monotonic() - start < 15
    assert all(process.has_ended() for process in processes)


@pytest.mark.usefixtures("nothing_left")
def test_starts_that_close_meets(workspace: Path) -> None:
    """Each of many threads has its command's end or is told that the executor is closed; no card goes on."""
    ends: list[object] = []

    with executors(workspace, settings=Settings(stop_seconds=1)) as made:
        executor = made.executor("a")
        kept = Path(executor._member.identity.keep)

        def work() -> None:
            try:
                while True:
                    ends.append(executor.run_command(["sleep", "60"]).how)
            except ClosedError as error:
                ends.append(error)

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads[:3]:
            thread.start()
        while len(executor._member._running) < 3:
            pass
        for thread in threads[3:]:
            thread.start()
        executor.close()
        assert not kept.exists()
        for thread in threads:
            thread.join(60)
    closed = [one for one in ends if isinstance(one, ClosedError)]
    assert len(closed) == len(threads)
    assert set(ends) - set(closed) <= {"exited", "killed"}


def test_close_takes_back_what_was_not_used(workspace: Path) -> None:
    """A token that an executor issued is worth nothing once it is closed; while it was open it would have opened."""
    with executors(workspace, command="gated") as made:
        executor = made.executor("a")
        prepared = executor.prepare(["true"])
        grant = prepared.issue_grant("command.start.v1")
        assert grant.token not in repr(grant)
        shown = run(["card", "grant", "show", grant.id]).out
        assert "open" in shown
        control = executor.prepare(["true"])
        assert control.run(grants=[control.issue_grant("command.start.v1")]).ok
    assert "revoked" in run(["card", "grant", "show", grant.id]).out


def test_a_grant_is_for_one_executor_and_one_command(workspace: Path) -> None:
    """Not for another executor's run of the very same id, nor for other words; both told by name."""
    with executors(workspace, command="gated") as made:
        prepared = made.executor("a").prepare(["true"])
        grant = prepared.issue_grant("command.start.v1")
        with pytest.raises(Refused) as other:
            made.executor("b").run_command_with_grants(["true"], [grant])
        assert "wrong-execution" in {one.reason for one in other.value.refusals}
        with pytest.raises(Refused) as words:
            made.executor("a").run_command_with_grants(["true", ""], [grant])
        assert {one.reason for one in words.value.refusals} == {"wrong-command"}
        assert made.executor("a").run_command_with_grants(["true"], [grant]).ok
        with pytest.raises(Refused) as again:
            made.executor("a").run_command_with_grants(["true"], [grant])
        assert {one.reason for one in again.value.refusals} == {"replay"}


def test_what_a_worker_makes_of_its_home_is_removed(workspace: Path) -> None:
    """Directories without modes, links out of it, odd names: close() removes them, and nothing that a link leads to."""
    outside = workspace.parent / "outside"
    outside.mkdir()
    (outside / "file").touch()
    with executors(workspace) as made:
        text = f"cd; mkdir -p a/b/c; ln -s {outside} a/link; touch 'odd\nname'; mkfifo pipe; chmod 0 a/b/c a/b a"
        assert made.executor("a").run_command(["sh", "-c", text]).ok
    assert (outside / "file").exists()


def test_a_link_planted_in_a_kept_tmp_is_not_followed(workspace: Path) -> None:
    """A workspace below /tmp is mounted there; a link in its way that a worker put there is a refusal."""
    with executors(workspace) as made:
        executor = made.executor("a")
        assert executor.run_command(["true"]).ok
        kept = Path(executor._member.identity.keep) / "tmp"
        planted = kept / workspace.relative_to("/tmp").parts[0]
        assert planted.is_dir()
        for path in sorted(planted.rglob("*"), reverse=True):
            path.rmdir()
        planted.rmdir()
        planted.symlink_to(workspace.parent)
        with pytest.raises(Refused) as refused:
            executor.run_command(["true"])
        assert [one.reason for one in refused.value.refusals] == ["keep-in-the-way"]
