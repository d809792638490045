"""Executors for blocking callers: what a command gets, what comes back, and how each failure is told."""

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher import CardLostError, ClosedError, Refused, Result, Settings, TooManyExecutorsError
from tests.api.kit import executors


def shell(text: str) -> list[str]:
    """Return a command that a shell reads."""
    return ["sh", "-c", text]


@pytest.mark.usefixtures("nothing_left")
def test_a_command_and_its_result(workspace: Path) -> None:
    """Status, both streams apart and nothing of card-run's own in them, what was measured, and the receipt."""
    with executors(workspace, settings=Settings(env={"GREETING": "all\nof it", "ONE": "1"})) as made:
        executor = made.executor("a")
        result = executor.run_command(
            shell('printf %s "$GREETING $ONE $TWO"; cat; pwd >&2; exit 3'), input=b" in", env={"ONE": "one", "TWO": "2"}
        )
        assert (result.status, result.ok, result.signal, result.how) == (3, False, None, "exited")
        assert result.stdout == b"all\nof it one 2 in"
        assert result.stderr == f"{workspace}\n".encode()
        assert result.guarantees["write_boundary"]
        assert result.lifetime_containment
        assert result.receipt is not None
        assert result.receipt["run"] == result.run_id
        assert result.receipt["command"] == list(result.command)
        assert executor.run_command(["true"]).ok
        assert executor.run_command(["sh", "-c", "kill -9 $$"]).signal == signal.SIGKILL


def test_nothing_of_the_callers_crosses(workspace: Path) -> None:
    """No descriptor beyond the three, no variable that was not asked for, and no value of one in any argv."""
    program = "import fcntl, os\nfor fd in range(64):\n    try: fcntl.fcntl(fd, fcntl.F_GETFD); print(fd)\n"
    program += "    except OSError: pass\nprint(sorted(os.environ))"
    os.environ["OF_THE_CALLER"] = "1"
    with executors(workspace) as made:
        executor = made.executor("a")
        result = executor.run_command(["python3", "-c", program], env={"ASKED": "s3cret"})
        *descriptors, names = result.stdout.decode().splitlines()
        assert descriptors == ["0", "1", "2"]
        assert "ASKED" in names
        assert "OF_THE_CALLER" not in names
        with executor.prepare(["sleep", "60"], env={"ASKED": "s3cret"}).start():
            lines = [Path(f"/proc/{pid}/cmdline") for pid in os.listdir("/proc") if pid.isdigit()]
            assert not [path for path in lines if path.exists() and b"s3cret" in path.read_bytes()]


def test_home_and_tmp_are_an_executors_own(workspace: Path) -> None:
    """What one command leaves there the next one finds, and no other executor; nothing of it is on the bench after."""
    with executors(workspace) as made:
        one, other = made.executor("one"), made.executor("two")
        assert made.executor("one") is one
        assert one.name != other.name
        assert one.run_command(shell('echo mine > "$HOME/file"; echo mine > "$TMPDIR/file"')).ok
        assert one.run_command(shell('cat "$HOME/file" /tmp/file')).stdout == b"mine\nmine\n"
        assert (
            other.run_command(shell('ls -A "$HOME" /tmp')).stdout == b"/card:\n\n/tmp:\npytest-of-card\n"
        )  # where the workspace is


def test_every_refusal_is_told(workspace: Path) -> None:
    """All at once, each with reason, text and hint, and nothing was started; the executor is good for the next."""
    with executors(workspace) as made:
        executor = made.executor("a")
        with pytest.raises(Refused) as refused:
            executor.run_command(shell("touch started"), cwd="/etc", run_id="Bad")
        assert {one.reason for one in refused.value.refusals} == {"cwd-outside", "bad-run-id"}
        assert not (workspace / "started").exists()
        with pytest.raises(Refused) as unplanned:
            executor.prepare(["true"], cwd="/etc").plan()
        assert [one.reason for one in unplanned.value.refusals] == ["cwd-outside"]
        assert executor.run_command(["true"]).ok


def test_what_would_be_enforced_is_known_before(workspace: Path) -> None:
    """The compile report, the guarantees that the start will want, and the whole plan; nothing is started for it."""
    with executors(workspace, host_read="allow") as made:
        prepared = made.executor("a").prepare(shell("touch started"))
        assert {row.feature: row.state for row in prepared.report}["host_read"] == "narrowed"
        assert {"write_boundary", "network_boundary"} <= set(prepared.guarantees_needed)
        assert prepared.plan()["plan"]["run"]
        assert not (workspace / "started").exists()
        assert set(prepared.guarantees_needed) <= {name for name, true in prepared.run().guarantees.items() if true}


def test_a_plan_is_whole_whatever_the_commands_output_may_be(workspace: Path) -> None:
    """The limit is the command's own, and its terminal in the plan without one being made for card-run."""
    with executors(workspace) as made:
        executor = made.executor("a")
        plan = executor.prepare(["true"], output_limit=1).plan()
        at_terminal = executor.prepare(["true"], output_limit=0, terminal=(24, 80)).plan()
        assert "--tty=false" in json.dumps(plan)
        assert "--tty=true" in json.dumps(at_terminal)


def test_output_beyond_the_limit_is_dropped(workspace: Path) -> None:
    """The first bytes are kept, the command goes on to its own end, and the result says so."""
    with executors(workspace) as made:
        text = "head -c 3000000 /dev/zero; echo err >&2; touch went_on; exit 4"
        result = made.executor("a").run_command(shell(text), output_limit=1000)
        assert (result.status, result.truncated) == (4, True)
        assert result.stdout == bytes(1000)
        assert result.stderr == b"err\n"
        assert (workspace / "went_on").exists()
        assert not made.executor("a").run_command(shell("head -c 1000 /dev/zero"), output_limit=1000).truncated


def test_a_timeout_ends_the_command(workspace: Path) -> None:
    """One that ignores SIGTERM is killed after stop_seconds, and neither is taken for a status of its own."""
    with executors(workspace, settings=Settings(stop_seconds=1)) as made:
        start = time.monotonic()
        result = made.executor("a").run_command(shell("trap '' TERM; while :; do sleep 0.1; done"), timeout=0.5)
        assert result.timed_out
        assert not result.ok
        assert time.monotonic() - start < 10
        exited = made.executor("a").run_command(shell("exit 124"), timeout=20)
        assert (exited.status, exited.timed_out) == (124, False)


@pytest.mark.usefixtures("nothing_left")
def test_a_started_process_is_spoken_to(workspace: Path) -> None:
    """Its streams as they come, signals, and the result at its end; the start returns once it runs."""
    with executors(workspace) as made:
        text = (
            "trap 'echo got it; exit 9' USR1; while read line; do echo heard $line; done; echo err >&2; sleep 60 & wait"
        )
        with made.executor("a").prepare(shell(text), stdin=True).start() as process:
            assert process.guarantees["process_boundary"]
            assert process.level == "full"
            assert process.stdin is not None
            process.stdin.write(b"one\ntwo\n")
            lines = iter(process.stdout)
            assert [next(lines), next(lines)] == [b"heard one\n", b"heard two\n"]
            process.stdin.close()
            assert process.stderr.readline() == b"err\n"
            assert not process.has_ended()
            process.send_signal(signal.SIGUSR1)
            assert process.stdout.read() == b"got it\n"
            result = process.wait()
            assert process.wait() == result
        assert result.status == 9
        assert process.has_ended()
        with pytest.raises(ValueError, match="does not cross"):
            process.send_signal(signal.SIGSTOP)
        with pytest.raises(ValueError, match="no terminal"):
            process.resize(1, 1)


@pytest.mark.usefixtures("nothing_left")
def test_a_line_without_an_end(workspace: Path) -> None:
    """A line beyond the output limit is an error and no memory; shorter ones are lines, and the command goes on."""
    with executors(workspace) as made:
        text = "echo short; head -c 20000000 /dev/zero; echo; echo after"
        with made.executor("a").prepare(shell(text), output_limit=1000).start() as process:
            assert process.stdout.readline() == b"short\n"
            with pytest.raises(ValueError, match="longer than output_limit, 1000 bytes"):
                process.stdout.readline()
            assert process.stdout.read() == b"\0" * 20_000_000 + b"\nafter\n"
            assert process.wait().status == 0


@pytest.mark.usefixtures("nothing_left")
def test_a_terminal(workspace: Path) -> None:
    """A size, changed while it runs, a line typed and Ctrl-C; what the command writes comes from the one master."""
    with executors(workspace) as made:
        text = "stty size; read line; until [ \"$(stty size)\" = '40 120' ]; do sleep 0.05; done; echo you said $line; "
        text += "trap 'echo stopped; exit 5' INT; echo ready; while :; do sleep 0.1; done"
        with made.executor("a").prepare(shell(text), terminal=(30, 100)).start() as process:
            assert process.stdin is not None
            assert process.stdout.readline() == b"30 100\r\n"
            process.resize(40, 120)
            process.stdin.write(b"hello\n")
            assert [process.stdout.readline() for _ in range(3)] == [b"hello\r\n", b"you said hello\r\n", b"ready\r\n"]
            process.stdin.write(b"\x03")
            assert b"stopped" in process.stdout.read()
            assert process.wait().status == 5


@pytest.mark.parametrize("given", [b"", b"a line\n", b"no line"])
def test_the_end_of_input_at_a_terminal(given: bytes, workspace: Path) -> None:
    """Is the key for it, once what was handed over is out: whoever reads to the end comes to it."""
    with executors(workspace) as made:
        executor = made.executor("a")
        program = shell("stty -echo; echo ready; cat; echo over")
        shown = given.replace(b"\n", b"\r\n") + b"over\r\n"
        result = executor.run_command(program, input=given, terminal=(24, 80), timeout=20)
        assert (result.ok, result.stdout.endswith(shown)) == (True, True)
        with executor.prepare(program, terminal=(24, 80), timeout=20).start() as process:
            assert process.stdin is not None
            assert process.stdout.readline() == b"ready\r\n"
            process.stdin.write(given)
            process.stdin.close()
            assert process.stdout.read() == shown
        with executor.prepare(["cat"], terminal=(24, 80), timeout=20).start() as process:
            assert process.stdin is not None
            process.stdin.write(b"begun")
            assert process.communicate().ok


def test_a_process_that_was_let_go_of_holds_no_descriptors(workspace: Path) -> None:
    """Not beyond the executor's next start, once it has ended."""
    with executors(workspace) as made:
        executor = made.executor("a")
        executor.run_command(["true"])
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(2):
            process = executor.prepare(["true"]).start()
            while not process.has_ended():
                time.sleep(0.01)
            del process
        executor.run_command(["true"])
        assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("how", ["terminate", "kill", "leave"])
def test_a_process_is_ended(how: str, workspace: Path) -> None:
    """Asked to end, killed at once, or left by an exception: it has ended, and the result says how."""
    with executors(workspace, settings=Settings(stop_seconds=1)) as made:
        process = made.executor("a").prepare(shell("trap 'exit 6' TERM; echo ready; sleep 60 & wait")).start()
        assert process.stdout.readline() == b"ready\n"
        if how == "leave":
            with pytest.raises(KeyError), process:
                raise KeyError
        else:
            getattr(process, how)()
        result = process.wait()
        killed = how == "kill"
        assert (result.status, result.how) == ((137, "killed") if killed else (6, "exited"))
        assert (result.receipt is None) == killed
        process.terminate()
        process.kill()


def test_no_descriptor_is_left_open(workspace: Path) -> None:
    """However a command went: to its end, refused, too long to be started, killed, at a terminal, never waited for."""
    before = len(os.listdir("/proc/self/fd"))
    with executors(workspace, settings=Settings(stop_seconds=1)) as made:
        executor = made.executor("a")
        assert executor.run_command(["cat"], input=bytes(100_000)).ok
        with pytest.raises(Refused):
            executor.run_command(["true"], cwd="/etc")
        with pytest.raises(OSError, match="too long"):
            executor.run_command(["x" * 3_000_000])
        with executor.prepare(["sleep", "60"]).start() as process:
            process.kill()
        executor.prepare(["sleep", "60"], terminal=(24, 80)).start()
        executor.prepare(["true"]).plan()
    assert len(os.listdir("/proc/self/fd")) == before


def test_there_are_no_more_executors_than_allowed(workspace: Path) -> None:
    """Closing one makes room; a closed one runs nothing, and a new one of its key has nothing of it."""
    with executors(workspace, most=1) as made:
        one = made.executor("one")
        assert one.run_command(shell("touch ~/file")).ok
        with pytest.raises(TooManyExecutorsError):
            made.executor("two")
        one.close()
        one.close()
        with pytest.raises(ClosedError):
            one.run_command(["true"])
        again = made.executor("one")
        assert again.name != one.name
        assert again.run_command(shell("ls ~")).stdout == b""
    with pytest.raises(ClosedError):
        made.executor("three")


def test_several_threads_share_an_executor(workspace: Path) -> None:
    """Each gets the result of its own command; closing from another thread ends what runs."""
    found: dict[int, Result] = {}
    with executors(workspace, settings=Settings(stop_seconds=1)) as made:
        executor = made.executor("a")

        def work(number: int) -> None:
            found[number] = executor.run_command(shell(f"echo {number}; sleep {60 * (number == 3)}"))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads[:3]:
            thread.join(60)
        executor.close()
        threads[3].join(60)
    assert [found[number].stdout for number in range(3)] == [b"0\n", b"1\n", b"2\n"]
    assert found[3].signal == signal.SIGTERM


def test_a_card_run_that_is_killed_is_told_apart(workspace: Path) -> None:
    """No status is made up for it: that nobody accounts for the run is an error of its own type."""
    with executors(workspace) as made, made.executor("a").prepare(["sleep", "60"]).start() as process:
        process._running.child.send_signal(signal.SIGKILL)
        with pytest.raises(CardLostError) as lost:
            process.wait()
        assert (lost.value.status, lost.value.run_id) == (-9, process.run_id)


def reap(*_: object) -> None:
    """Wait for every child there is, as a daemon's handler does."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


@pytest.mark.parametrize("handler", [signal.SIG_IGN, reap])
def test_a_program_that_takes_its_childrens_statuses(
    handler: "signal.Handlers | Callable[..., None]", workspace: Path
) -> None:
    """A command's status is its own all the same; one that was killed is known to be, and no plan fails."""
    before = signal.signal(signal.SIGCHLD, handler)
    try:
        with executors(workspace) as made:
            executor = made.executor("a")
            result = executor.run_command(shell("exit 7"))
            assert (result.status, result.ok) == (7, False)
            assert executor.run_command(["true"]).ok
            assert executor.prepare(["true"]).plan()["digest"]
            with executor.prepare(["sleep", "60"]).start() as process:
                process.kill()
                assert process.has_ended()
            assert (process.wait().status, process.wait().how) == (137, "killed")
            with executor.prepare(["sleep", "60"]).start() as process:
                process._running.child.send_signal(signal.SIGKILL)
                with pytest.raises(CardLostError):
                    process.wait()
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_run_is_told_by_its_executor(workspace: Path) -> None:
    """The card that an executor writes is called by its key; what is refused of it names no file of ours."""
    with executors(workspace, settings=Settings(secret=(f"{workspace}/key",))) as made:
        with pytest.raises(Refused) as refused:
            made.executor("build").run_command(["true"])
        assert "/proc/self/fd" not in str(refused.value)
        (workspace / "key").touch()
    with executors(workspace) as made:
        done = made.executor("build").run_command(["true"])
        assert done.receipt is not None
        assert done.receipt["card"] == "build"
        plan = made.executor("build").prepare(["true"]).plan()
        assert "/proc/self/fd" not in json.dumps(plan["values"])
