"""Detached cards from outside: what `-d` leaves behind at once, what the verbs tell of them, and how they end."""

import json
import os
import re
import shutil
import signal
import socket as socketlib
import subprocess
import termios
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from launcher import service
from tests.bench.cards import IMAGE, Run, card, run
from tests.bench.lives import arguments, children, name_of, processes, send
from tests.bench.test_terminal import CTRL_C, CTRL_D, CTRL_Z, Terminal, jobs, program

KEPT = Path.home() / ".local/state/card-run/runs"
HOLD = "echo up; exec sleep 300"
DEAF = "trap '' TERM; echo up; while :; do sleep 0.1; done"
DETACH_KEYS = "\x10\x11"


def detached(*words: str) -> str:
    """Start a detached card and return its run id."""
    done = card("-q", "-d", *words)
    assert (done.status, done.err) == (0, "")
    return done.out.strip()


def verb(*words: str, **options: Any) -> Run:
    """Run one of `card`'s verbs."""
    return run(["card", *words], **options)


def until(text: str, name: str) -> None:
    """Wait until a run's output has the text."""
    with subprocess.Popen(["card", "logs", "-f", name], stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        assert any(text in line for line in follower.stdout)
        follower.kill()


def directory(name: str) -> Path:
    """Return a living run's directory."""
    return Path(os.environ["XDG_RUNTIME_DIR"]) / "card-run" / name


def launcher(name: str) -> int:
    """Return the process that answers for a run."""
    return int(json.loads((directory(name) / "record.json").read_text())["launcher"]["pid"])


def ended(name: str) -> None:
    """Wait until a run has left nothing, without asking for its status."""
    deadline = time.monotonic() + 15
    while directory(name).exists():
        assert time.monotonic() < deadline, f"{name} lives on"


@pytest.fixture(autouse=True, scope="module")
def _built() -> None:
    """Build the runtime, which card-run says on stderr when it has to."""
    card("--", "true")


@pytest.fixture(autouse=True)
def _nothing_runs_on() -> Iterator[None]:
    yield
    verb("stop", "--time", "0", *verb("ps", "--quiet").out.split())


@pytest.mark.usefixtures("nothing_left")
def test_the_id_is_on_stdout_and_what_is_enforced_on_stderr() -> None:
    """And nothing of the caller's is kept open: reading both to their end takes no longer than the start."""
    done = card("-d", "--run", "first", "--", "sh", "-c", HOLD)
    assert (done.status, done.out) == (0, "first\n")
    assert done.err.splitlines()[-1].startswith("SANDBOX OK run=first ")
    assert verb("stop", "first").out == "first\n"


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--image", "localhost/none:1"], "image-missing"),
        (["--allow-host", "nobody.example"], "unknown-name"),
        (["--nonesuch"], "bad-command-line"),
    ],
)
def test_a_refusal_is_as_ever(words: list[str], reason: str) -> None:
    """Status 125, the reason on stderr, nothing on stdout, and no log."""
    before = sorted(KEPT.glob("*.log"))
    done = card("-d", *words, "--", "true")
    assert (done.status, done.out, done.reasons) == (125, "", [reason])
    assert sorted(KEPT.glob("*.log")) == before


def test_a_state_directory_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    """Output goes to a place that is ours alone, or the card does not start."""
    (tmp_path / "card-run/runs").mkdir(parents=True)
    (tmp_path / "card-run/runs").chmod(0o755)
    done = card("-d", "--", "true", env={**os.environ, "XDG_STATE_HOME": str(tmp_path)})
    assert (done.status, done.reasons) == (125, ["no-state-directory"])


@pytest.mark.usefixtures("nothing_left")
def test_interrupting_the_start_ends_the_card() -> None:
    """Until the worker is released, what is sent to the process that was started ends the card."""
    policy = "github.com\napi.github.com\nobjects.githubusercontent.com\nsilent.fault.example\n"
    Path("/tmp/egress-silent.txt").write_text(policy)
    words = ["card-run", "-d", "--run", "slow", "--egress", "/tmp/egress-silent.txt", "--allow-host"]
    words += ["silent.fault.example", "--resolve-timeout", "20", "--", "true"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as starter:
        while not directory("slow").exists():
            assert starter.poll() is None
        time.sleep(0.3)  # into the wait for the resolver; whenever it comes, it must end
        starter.send_signal(signal.SIGINT)
        out, err = starter.communicate(timeout=30)
        assert (starter.returncode, out) == (128 + signal.SIGINT, "")
        assert "reason=interrupted SIGINT came before the worker was started" in err
    ended("slow")


@pytest.mark.usefixtures("nothing_left")
def test_output_status_and_receipt_outlive_the_card() -> None:
    """Each stream to its own, during and after; the status by wait; the receipt by show."""
    name = detached("--", "sh", "-c", "echo out; echo err >&2; printf partial; sleep 1; echo ' line'; exit 5")
    during = verb("logs", "--follow", name)
    assert (during.status, during.out, during.err) == (0, "out\npartial line\n", "err\n")
    assert (verb("wait", name).status, verb("wait", name).out) == (5, "5\n")
    after = verb("logs", name)
    assert (after.out, after.err) == (during.out, during.err)
    assert verb("logs", "--tail", "1", name).out == "partial line\n"
    stamped = verb("logs", "--timestamps", name).out.splitlines()
    assert [re.sub(r"^\d{4}-\d\d-\d\dT[\d:.]+\S* ", "", line) for line in stamped] == ["out", "partial line"]
    receipt = json.loads(verb("show", "--json", name).out)
    assert (receipt["exit_status"], receipt["detached"], receipt["level"]) == (5, True, "full")
    assert re.search(r"^state +ended 5, ", verb("show", name).out, re.MULTILINE)


def test_a_log_that_was_cut_short_by_its_reader() -> None:
    """`card logs | head` is no failure."""
    name = detached("--", "sh", "-c", "seq 100000")
    verb("wait", name)
    done = run(["bash", "-c", f"set -o pipefail; card logs {name} | head -1"])
    assert (done.status, done.out, done.err) == (0, "1\n", "")


@pytest.mark.usefixtures("nothing_left")
def test_the_log_has_a_limit() -> None:
    """At 64 MiB it begins anew: what is kept is the newest, and who follows misses no last line."""
    script = "head -c 80000000 /dev/zero | tr '\\0' x | fold -w 8000; echo; echo the end"
    name = detached("--", "sh", "-c", script)
    with subprocess.Popen(["card", "logs", "-f", name], stdout=subprocess.PIPE) as follower:
        assert follower.stdout is not None
        *_, last = follower.stdout
    assert last == b"the end\n"
    assert (KEPT / f"{name}.log").stat().st_size <= 64 << 20
    assert verb("logs", "--tail", "1", name).out == "the end\n"


def test_a_card_that_is_not_detached_has_no_log() -> None:
    """Its output went to who started it, and `card logs` says so."""
    card("-q", "--run", "here", "--", "true")
    done = verb("logs", "here")
    assert (done.status, done.reasons) == (2, ["no-log"])


@pytest.mark.usefixtures("nothing_left")
def test_a_run_id_in_use_keeps_its_log() -> None:
    """A second start of a living run is refused and takes nothing from the first; after the end it replaces it."""
    detached("--run", "once", "--", "sh", "-c", "echo precious; exec sleep 300")
    until("precious", "once")
    assert card("-d", "--run", "once", "--", "true").reasons == ["run-exists"]
    assert verb("logs", "once").out == "precious\n"
    assert verb("stop", "once").status == 0
    detached("--run", "once", "--", "echo", "other")
    assert verb("wait", "once").status == 0
    assert verb("logs", "once").out == "other\n"


@pytest.mark.usefixtures("nothing_left")
def test_the_end_of_the_session_ends_nothing() -> None:
    """The terminal that it was started from is closed, and its shell hangs up on its jobs; the card goes on."""
    with jobs() as shell:
        shell.ask("shopt -s huponexit")
        shell.type(f"card-run -q -d --run stays -- sh -c '{HOLD}'\r")
        shell.until("\nstays\r\n")
        shell.close()
        shell.ended()
    until("up", "stays")
    assert json.loads(verb("ps", "--json").out)["state"] == "running"
    assert verb("stop", "stays").status == 0


@pytest.mark.usefixtures("nothing_left")
def test_a_killed_supervisor_takes_the_card_with_it() -> None:
    """SIGKILL of the process that answers for a card ends its worker and leaves nothing."""
    name = detached("--", "sh", "-c", HOLD)
    os.kill(launcher(name), signal.SIGKILL)
    ended(name)
    assert verb("wait", name).status in {125, 137}


@pytest.mark.usefixtures("nothing_left")
def test_descriptors_and_directory_of_the_caller_are_let_go() -> None:
    """A lock that the caller holds is free once the caller has ended, and so is its directory."""
    script = "mkdir -p /tmp/here && cd /tmp/here && exec 9>/tmp/lock && flock 9 && exec card-run -q -d -- sh -c '$0'"
    name = run(["bash", "-c", script.replace("$0", HOLD)]).out.strip()
    assert run(["flock", "--nonblock", "/tmp/lock", "true"]).status == 0
    assert os.readlink(f"/proc/{launcher(name)}/cwd") == "/"
    held = {os.readlink(f"/proc/{launcher(name)}/fd/{fd}") for fd in range(3)}
    assert held == {"/dev/null"}
    assert verb("stop", name).status == 0


@pytest.mark.usefixtures("nothing_left")
def test_a_timeout_holds() -> None:
    """`--timeout` ends a detached card as any other."""
    name = detached("--timeout", "1", "--", "sh", "-c", HOLD)
    assert verb("wait", name).status == 124


@pytest.mark.usefixtures("nothing_left")
def test_stop() -> None:
    """The worker's own end when it listens, KILL when it does not, several at once, and one that has ended is fine."""
    polite = detached("--", "sh", "-c", "trap 'exit 7' TERM; echo up; sleep 300 & wait")
    deaf = [detached("--stop-timeout", "60", "--", "sh", "-c", DEAF) for _ in range(2)]
    for name in (polite, *deaf):
        until("up", name)
    start = time.monotonic()
    done = verb("stop", "--time", "1", polite, *deaf)
    assert time.monotonic() - start < 45  # far from what the cards themselves would have waited
    assert (done.status, sorted(done.out.split())) == (0, sorted([polite, *deaf]))
    assert verb("wait", polite, *deaf).out.split() == ["7", "137", "137"]
    assert (verb("stop", polite).status, verb("wait", polite).status) == (0, 7)


@pytest.mark.usefixtures("nothing_left")
def test_stop_heeds_the_cards_own_time_and_unfreezes() -> None:
    """Without --time it is --stop-timeout; a paused card hears the signal."""
    deaf = detached("--stop-timeout", "1", "--", "sh", "-c", DEAF)
    frozen = detached("--run", "frozen", "--", "sh", "-c", "trap 'exit 7' TERM; echo up; sleep 300 & wait")
    until("up", deaf)
    until("up", frozen)
    assert run(["podman", "pause", "card-frozen"]).status == 0
    assert verb("stop", deaf, frozen).status == 0
    assert verb("wait", deaf, frozen).out == "137\n7\n"


@pytest.mark.usefixtures("nothing_left")
def test_stop_ends_a_card_that_was_suspended() -> None:
    """A card that Ctrl-Z stopped as a shell's job hears the signal, and its worker ends as it likes."""
    with jobs() as shell:
        shell.type("card-run -q --run job -- sh -c 'trap \"exit 7\" TERM; echo up; sleep 300 & wait'\r")
        shell.until("up\r\n")
        shell.type(CTRL_Z)
        assert "Stopped" in shell.until("ready> ")
        done = verb("stop", "--time", "20", "job")
        assert (done.status, done.out, done.err) == (0, "job\n", "")
        assert verb("wait", "job").out == "7\n"


@pytest.mark.usefixtures("nothing_left")
def test_stop_undoes_what_nobody_answers_for() -> None:
    """Its card-run and its keeper are gone: once its id is printed, nothing of the card is left."""
    name = detached("--", "sh", "-c", HOLD)
    both = [launcher(name), *(pid for pid in children(launcher(name)) if name_of(pid) == "card-keeper")]
    assert len(both) == 2
    for number in (signal.SIGSTOP, signal.SIGKILL):
        send(both, number)
    assert json.loads(verb("show", "--json", name).out)["state"] == "orphaned"
    done = verb("stop", name)
    assert (done.status, done.out, directory(name).exists()) == (0, f"{name}\n", False)
    assert json.loads(verb("show", "--json", name).out)["how"] == "abandoned"


@pytest.mark.usefixtures("nothing_left")
def test_stop_goes_on_when_podman_says_no(tmp_path: Path) -> None:
    """Podman's service does not start, so a card that does not listen lives on, by name; the others are ended."""
    (tmp_path / "podman").write_text(
        f"#!/bin/sh\ncase $* in *'system service'*) echo Error: no room >&2; exit 125;; esac\n"
        f'exec {shutil.which("podman")} "$@"\n'
    )
    (tmp_path / "podman").chmod(0o755)
    environment = {**os.environ, "CARD_RUN_PODMAN": f"{tmp_path}/podman"}
    deaf, polite = detached("--stop-timeout", "300", "--", "sh", "-c", DEAF), detached("--", "sh", "-c", HOLD)
    for name in (deaf, polite):
        until("up", name)
    assert "podman's service did not start: no room" in verb("ps", env=environment).err
    done = verb("stop", "--time", "1", deaf, polite, env=environment)
    assert (done.status, done.out, done.reasons) == (2, f"{polite}\n", ["no-podman-service"])
    assert f"{deaf}: podman's service did not start" in done.err
    assert verb("stop", "--time", "0", deaf).out == f"{deaf}\n"


@pytest.mark.usefixtures("nothing_left")
def test_what_podman_says_of_a_container_that_is_over() -> None:
    """Killing one that has ended, or is not there, is no failure; a running one is killed."""
    names = {"over": "true", "runs": "sleep 300"}
    try:
        for name, command in names.items():
            words = ["--detach", f"--name={name}", "--network=none", "--pull=never", IMAGE, *command.split()]
            assert run(["podman", "run", *words]).status == 0
        run(["podman", "wait", "over"])
        with service.connected() as podman:
            assert [podman.kill(name) for name in ("runs", "over", "nobody")] == [True, False, False]
    finally:
        run(["podman", "rm", "--force", "--time=0", *names])


DENIED = """
import socket, time
for port in (80, 443, 443):
    try:
        socket.create_connection(("198.51.100.66", port), 2)
    except OSError as error:
        print(error.errno, flush=True)
print("done", flush=True)
time.sleep(300)
"""


@pytest.mark.usefixtures("nothing_left")
def test_ps_reads_what_was_denied_from_the_kernel() -> None:
    """Live, for several cards in one call, beside state, image and allowed names; ended ones when asked."""
    busy, idle = detached("--", "python3", "-c", DENIED), detached("--net", "none", "--", "sh", "-c", HOLD)
    until("done", busy)
    run(["podman", "pause", f"card-{idle}"])
    rows = {row["run"]: row for row in map(json.loads, verb("ps", "--json").out.splitlines())}
    assert (rows[busy]["denied"], rows[busy]["state"], rows[busy]["names"][0]) == (3, "running", "github.com")
    assert (rows[idle]["denied"], rows[idle]["state"], rows[idle]["names"]) == (0, "paused", [])
    head, *lines = verb("ps").out.splitlines()
    assert head.split() == ["RUN", "CARD", "STATE", "AGE", "IMAGE", "DENIED", "NAMES"]
    column = head.index("DENIED")
    assert {line.split()[0]: line[column:].split()[0] for line in lines} == {busy: "3", idle: "0"}
    shown = verb("show", busy).out
    assert re.search(r"^198\.51\.100\.66 +tcp +443 +2$", shown, re.MULTILINE), shown
    walls = json.loads(verb("show", busy, "--json").out)
    assert re.search(r"^level +full$", shown, re.MULTILINE), shown
    assert verb("stop", busy, idle).status == 0
    last = json.loads(verb("ps", "--last", "1", "--json").out)
    receipts = [json.loads(verb("show", run_id, "--json").out) for run_id in (busy, idle)]
    assert walls["guarantees"] == receipts[0]["guarantees"]
    assert [walls["level"], *(receipt["level"] for receipt in receipts)] == ["full"] * 3
    assert (last["state"], last["exit_status"], last["denied"]) == ("ended", 143, 3 if last["run"] == busy else 0)
    assert {busy, idle} <= set(verb("ps", "--all", "--quiet").out.split())
    assert verb("ps", "--quiet").out == ""


@pytest.mark.usefixtures("nothing_left")
def test_ps_watches() -> None:
    """It goes on by itself until it is interrupted, which is no failure."""
    name = detached("--", "sh", "-c", HOLD)
    with program("card", "ps", "--watch") as opened:
        opened.until(name)
        opened.until("\x1b[2J")
        opened.until(name)
        opened.type(CTRL_C)
        assert opened.ended() == 0
    assert "Traceback" not in opened.shown
    assert "\x1b[3J" not in opened.shown
    assert verb("stop", name).status == 0


@pytest.mark.usefixtures("nothing_left")
def test_attach_to_pipes() -> None:
    """With -i the worker's input waits for `card attach`, whose end of file ends it; the status is the worker's."""
    name = detached("-i", "--", "sh", "-c", "cat; echo gone >&2; exit 4")
    done = verb("attach", name, input="typed\n")
    # podman-attach ends what it shows with a line break of its own.
    assert (done.status, done.out, done.err) == (4, "typed\n\n", "gone\n")
    assert verb("logs", name).out == "typed\n"


@pytest.mark.usefixtures("nothing_left")
def test_attach_to_a_terminal() -> None:
    """The keys leave it and it goes on; it can be attached to again, and ends as any shell."""
    name = detached("-it", "--env", "PS1=ready> ", "--", "bash", "--norc", "--noprofile", "-i")
    with program("card", "attach", name) as opened:
        # The size comes to the card beside the keys, so it may be there a moment after them.
        opened.type("x=kept; until stty size | grep '40 100'; do sleep 0.1; done\r")
        opened.until("40 100\r\n")
        for key in DETACH_KEYS:
            opened.type(key)
            time.sleep(0.3)  # podman knows them only one by one, as a hand presses them
        opened.until(f"goes on: card attach {name}")
        assert opened.ended() == 0
    with program("card", "attach", name) as again:
        again.type("echo $x\r")
        again.until("kept\r\n")
        again.type("exit 6\r")
        assert again.ended() == 6
    assert verb("wait", name).status == 6


# Tells each signal that it gets, and that it goes on.
TELLING = """
import signal
numbers = {signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
while True:
    heard = signal.sigtimedwait(numbers, 0.1)
    print(signal.Signals(heard.si_signo).name if heard else "tick", flush=True)
"""


def heard(name: str) -> list[str]:
    """Return which signals a worker got, once it has got one more for certain: USR1."""
    assert run(["podman", "kill", "--signal=USR1", f"card-{name}"]).status == 0
    until("SIGUSR1", name)
    words = verb("logs", name).out.replace("^C", "").split()  # what a terminal of the card echoes
    return [word for word in words if word != "tick"][:-1]


@contextmanager
def attached(name: str, *options: str) -> Generator[tuple[Terminal, int]]:
    """Attach to a run in a terminal; yields the process that is attached too."""
    words = ["attach", *options, name]
    with program("card", *words) as opened:
        opened.until("tick")
        (found,) = (pid for pid in processes() if arguments(pid)[-len(words) :] == words and name_of(pid) != "setsid")
        yield opened, found


@pytest.fixture(params=[(), ("-i",), ("-t",), ("-it",)], ids=" ".join)
def telling(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return a detached card that tells what it hears, of each kind."""
    name = detached(*request.param, "--", "python3", "-c", TELLING)
    yield name
    assert verb("stop", name, "--time=0").status == 0


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("watch", [(), ("--no-stdin",)], ids=" ".join)
def test_a_card_goes_on_without_who_was_attached(telling: str, watch: tuple[str, ...]) -> None:
    """The end of the terminal, and of `card attach` by a signal, are not the worker's; the terminal is as it was."""
    with attached(telling, *watch) as (opened, _):
        opened.close()
        opened.ended()
    for number in (signal.SIGTERM, signal.SIGHUP):
        with attached(telling, *watch) as (opened, process):
            os.kill(process, number)
            assert opened.ended() == 128 + number
            assert f"goes on: card attach {telling}" in opened.shown
            assert int(str(opened.modes()[3])) & termios.ICANON
    assert heard(telling) == []


@pytest.mark.usefixtures("nothing_left")
def test_who_is_attached_interrupts_and_who_watches_leaves(telling: str) -> None:
    """SIGINT reaches the worker once, by the key and by number; with --no-stdin it ends `card attach` and no more."""
    with attached(telling, "--no-stdin") as (opened, _):
        opened.type(CTRL_C)
        assert opened.ended() == 130
    with attached(telling, "--no-stdin") as (opened, process):
        os.kill(process, signal.SIGINT)
        assert opened.ended() == 130
    assert heard(telling) == []
    with attached(telling) as (opened, process):
        opened.type(CTRL_C)
        opened.until("SIGINT")
        os.kill(process, signal.SIGINT)
        opened.until("SIGINT")
        os.kill(process, signal.SIGTERM)
        assert opened.ended() == 143
    assert heard(telling) == ["SIGUSR1", "SIGINT", "SIGINT"]


@pytest.mark.usefixtures("nothing_left")
def test_lines_are_typed_into_a_card_without_a_terminal() -> None:
    """With -i alone they are the worker's, Ctrl-D ends its input, and the status is its own."""
    name = detached("-i", "--", "sh", "-c", "echo tick; sed -u s/^/got:/; exit 4")
    with program("card", "attach", name) as opened:
        opened.type("a line\r")
        opened.until("got:a line")
        opened.type(CTRL_D)
        assert opened.ended() == 4


@pytest.mark.parametrize("words", [["show"], ["logs"], ["wait"], ["stop"], ["attach"]])
def test_a_run_that_there_is_not(words: list[str]) -> None:
    """Each verb refuses it, with those that come near, and could not run."""
    card("-q", "--run", "nearly_there", "--", "true")
    done = verb(*words, "nearly_thre")
    assert (done.status, done.out, done.reasons) == (2, "", ["no-such-run"])
    assert "did you mean nearly_there?" in done.err


def test_attach_to_what_has_ended() -> None:
    """It is said that it has, and where its account is."""
    card("-q", "--run", "over", "--", "true")
    done = verb("attach", "over")
    assert (done.status, done.reasons) == (2, ["run-ended"])
    assert "card show over" in done.err


def test_completion_knows_the_runs() -> None:
    """A shell completes run ids: the living where they are wanted, all where those that ended will do."""
    card("-q", "--run", "completed", "--", "true")
    words = {**os.environ, "_CARD_COMPLETE": "complete_bash", "COMP_CWORD": "2"}
    assert run(["card"], env={**words, "COMP_WORDS": "card show compl"}).out.split() == ["completed"]
    assert run(["card"], env={**words, "COMP_WORDS": "card attach compl"}).out.split() == []


@pytest.mark.usefixtures("nothing_left")
def test_podmans_own_socket_is_used_when_it_answers() -> None:
    """Then no service is started for the call; what is asked reaches the one that is there, as its log says."""
    name = detached("--", "sh", "-c", HOLD)
    run(["podman", "pause", f"card-{name}"])
    socket = Path(os.environ["XDG_RUNTIME_DIR"]) / "podman/podman.sock"
    socket.parent.mkdir(exist_ok=True)
    words = ["podman", "--log-level=info", "system", "service", "--time=0", f"unix://{socket}"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as service:
        while not socket.exists():
            assert service.poll() is None
        assert [json.loads(line)["state"] for line in verb("ps", "--json").out.splitlines()] == ["paused"]
        service.terminate()
        assert service.stderr is not None
        assert "/libpod/containers/json" in service.stderr.read()
    with socketlib.socket(socketlib.AF_UNIX) as stale:  # nobody listens: a service of our own is started
        stale.bind(str(socket))
    assert json.loads(verb("ps", "--json").out)["state"] == "paused"
    socket.unlink()
    assert verb("stop", name).status == 0


def test_a_remote_podman_is_refused() -> None:
    """Its hooks and its cards are not ours; card-run and the verbs that ask podman say so by name."""
    elsewhere = {**os.environ, "CONTAINER_HOST": "ssh://elsewhere"}
    assert card("--", "true", env=elsewhere).reasons == ["remote-podman"]
    name = detached("--", "sh", "-c", HOLD)
    assert verb("exec", name, "--", "true", env=elsewhere).reasons == ["remote-podman"]
    assert "CONTAINER_HOST is set" in verb("ps", env=elsewhere).err
