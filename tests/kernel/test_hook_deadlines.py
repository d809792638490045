"""A hook that cannot go on says why before the runtime loses patience, and leaves nothing of its attempt.

The nft that hangs is a real program in nft's place, in a mount namespace of the test's own.
"""

import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hooks import deadline, lastword, rundir
from oci import annotations, hooksd
from tests.kernel.created import HOOKS, Container, created, in_own_mounts

HANGS = "#!/bin/sh\nexec sleep 1000\n"


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    """Yield a created container with everything in order."""
    with created(tmp_path) as made:
        yield made


@pytest.fixture
def hung(tmp_path: Path) -> tuple[str, ...]:
    """Return a wrapper in which nft is a program that never ends."""
    program = tmp_path / "hangs"
    program.write_text(HANGS)
    program.chmod(0o755)
    return in_own_mounts(f"mount --bind {program} $(readlink -f /usr/sbin/nft)")


def inside(container: Container) -> list[str]:
    """Return the processes in the container's network namespace, by name."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "ns/net").stat().st_ino == container.inode:
                found.append((entry / "comm").read_text().strip())
        except OSError:
            continue
    return found


def test_the_deadlines_are_shorter_than_the_runtimes() -> None:
    """All steps together stay below what hooks.d gives the hook before it is killed, with time to write the reason."""
    most = deadline.STATE_SECONDS + rundir.LOCK_DEADLINE + deadline.BUILD_SECONDS
    assert most <= hooksd.PRESTART_TIMEOUT - 10
    assert deadline.POSTSTOP_SECONDS <= hooksd.POSTSTOP_TIMEOUT - 4


def started(container: Container, *wrapper: str) -> "subprocess.Popen[bytes]":
    """Start the hook on a container's state and return it while it runs."""
    process = subprocess.Popen((*wrapper, *HOOKS, "prestart"), stdin=subprocess.PIPE, env={})
    assert process.stdin
    process.stdin.write(json.dumps(container.state()).encode())
    process.stdin.close()
    return process


def test_nft_that_hangs_or_is_stopped(container: Container, tmp_path: Path, hung: tuple[str, ...]) -> None:
    """The hook ends by itself, names the step, and leaves no proof, no pin and no nft in the namespace.

    So it does when nft is stopped, which no signal but KILL ends. Both at once: each takes the whole of its time.
    """
    other = tmp_path / "other"
    other.mkdir()
    start = time.monotonic()
    with created(other) as stopped, (stopped.run / "plan.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        hangs, stops = started(container, *hung), started(stopped)
        os.kill(stops.pid, signal.SIGSTOP)
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.kill(stops.pid, signal.SIGCONT)
        os.kill(_first_child(stops.pid), signal.SIGSTOP)
        for process, one in ((hangs, container), (stops, stopped)):
            assert process.wait(timeout=deadline.BUILD_SECONDS + 15) == 1
            assert one.reasons == ["hook-late"]
            assert not one.proof.exists()
            assert not one.pin.exists()
            assert inside(one) == ["cat"]
    assert time.monotonic() - start < deadline.BUILD_SECONDS + 15


def _first_child(parent: int) -> int:
    """Return the hook's first nft, once it is that: before exec(2) its parent waits for it and hears no alarm."""
    while True:
        for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            if Path(f"/proc/{child}/comm").read_text() == "nft\n":
                return int(child)


def test_poststop_with_nft_that_hangs(container: Container, hung: tuple[str, ...]) -> None:
    """The ledger is lost, and the namespace is let go of all the same."""
    assert container.prestart().status == 0
    outcome = container.poststop(wrapper=hung)
    assert outcome.status == 0
    assert "reason=hook-late " in outcome.errors
    assert not (container.run / "ledger.json").exists()
    assert not container.pin.exists()


def test_a_state_that_never_comes(container: Container) -> None:
    """A runtime that does not finish writing the state is not waited for."""
    reader, writer = os.pipe()
    done = subprocess.run((*HOOKS, "prestart"), stdin=reader, capture_output=True, text=True, env={}, check=False)
    os.close(reader)
    os.close(writer)
    assert done.returncode == 1
    assert "reason=hook-late " in done.stderr
    assert not container.proof.exists()


def test_a_full_disk(container: Container) -> None:
    """A run directory with no room for the result or the proof: refused, and nothing half written is left."""
    place = container.base / "small"
    place.mkdir()
    script = (
        f"mount -t tmpfs -o size=64k,mode=0700 none {place}; cp -a {container.run} {place}/; "
        f"dd if=/dev/zero of={place}/fill bs=4k 2>/dev/null || :"
    )
    state = container.state()
    moved = place / container.run.name
    state["annotations"][annotations.DIRECTORY] = str(moved)
    show = f"ls {moved}/card >&2; exit 1"
    wrapper = (*in_own_mounts(script), "sh", "-c", f'"$@" && exit 0; {show}', "sh")
    outcome = container.prestart(state, wrapper=wrapper)
    assert outcome.status == 1
    assert "No space left on device" in outcome.errors
    assert "proof" not in outcome.errors.splitlines()[-1]


def test_a_control_of_the_full_disk(container: Container) -> None:
    """The same small disk with room left is enough."""
    place = container.base / "small"
    place.mkdir()
    script = f"mount -t tmpfs -o size=64k,mode=0700 none {place}; cp -a {container.run} {place}/"
    state = container.state()
    state["annotations"][annotations.DIRECTORY] = str(place / container.run.name)
    outcome = container.prestart(state, wrapper=in_own_mounts(script))
    assert (outcome.status, outcome.errors) == (0, "")


def test_no_run_directory_has_a_log_beside(container: Container) -> None:
    """Where there is no run directory to say it in, the folder of all of them keeps the reason, if it is ours alone."""
    folder = container.base / "card-run"
    state = container.state()
    state["annotations"][annotations.DIRECTORY] = str(folder / "t1")
    for mode, kept in ((0o755, False), (0o700, True)):
        folder.mkdir(exist_ok=True)
        folder.chmod(mode)
        assert container.prestart(state).status == 1
        assert (folder / lastword.LOG).exists() == kept
    assert "reason=run-directory " in (folder / lastword.LOG).read_text()


def test_the_log_beside_is_bounded_and_follows_no_link(container: Container) -> None:
    """It is begun anew when it is long, and a link in its place is not written through."""
    folder = container.base / "card-run"
    folder.mkdir(mode=0o700)
    log = folder / lastword.LOG
    log.write_bytes(b"x" * (1 << 17))
    state = container.state()
    state["annotations"][annotations.DIRECTORY] = str(folder / "t1")
    container.prestart(state)
    assert log.stat().st_size < 1000
    log.unlink()
    target = container.base / "target"
    log.symlink_to(target)
    container.prestart(state)
    assert not target.exists()
