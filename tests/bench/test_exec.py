"""What enters a running card later: behind the worker's own walls, with its own proof, and apart from the worker.

Every attempt is made by the worker, by what `card exec` runs, and in a plain container as the control.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.bench.cards import Run, card, plain, run
from tests.bench.pools import pool
from tests.bench.test_signals import ECHO, TICK
from tests.bench.test_terminal import CTRL_C, CTRL_D, CTRL_Z, WAIT_FOR_SIZE, jobs, program

# Attempts at every wall, each answered by an errno's name or ok.
TRY = r"""
import ctypes, errno, json, os, socket, sys

def name(call):
    try:
        call()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "ok"

def connect(address, port):
    with socket.create_connection((address, port), 2):
        pass

def send(address, port, data=b"x"):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(data, (address, port))

def call(number, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "")

def write(path):
    with open(path, "w"):
        pass

def status(field):
    lines = open("/proc/self/status").read().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(field + ":"))

found = {
    "listed host": name(lambda: connect("github.com", 443)),
    "unlisted host": name(lambda: connect("198.51.100.66", 443)),
    "listed host, another port": name(lambda: connect("github.com", 22)),
    "metadata": name(lambda: send("169.254.169.254", 80)),
    "dns tunnel": name(lambda: send(sys.argv[1], 53, b"\0" * 40)),
    "landlock write": name(lambda: write("/proc/self/comm")),
    "landlock read": name(lambda: open("/run/card/proof").close()),
    "image write": name(lambda: write("/etc/new")),
    "own tmp": name(lambda: write("/tmp/new")),
    "new user namespace": name(lambda: call(272, 0x10000000)),
    "ptrace": name(lambda: call(101, 0, 0, 0, 0)),
    "exotic socket": name(lambda: socket.socket(40, socket.SOCK_STREAM).close()),
    "io_uring": name(lambda: call(425, 1, 0)),
    "filters": status("Seccomp_filters"),
    "no_new_privs": status("NoNewPrivs"),
    "capabilities": status("CapBnd"),
}
print(json.dumps(found), flush=True)
"""
WALLED = {
    "listed host": "ok",
    "unlisted host": "ECONNREFUSED",
    "listed host, another port": "ECONNREFUSED",
    "metadata": "EPERM",
    "dns tunnel": "EPERM",
    "landlock write": "EACCES",
    "landlock read": "EACCES",
    "image write": "EROFS",
    "own tmp": "ok",
    "new user namespace": "EPERM",
    "ptrace": "EPERM",
    "exotic socket": "EAFNOSUPPORT",
    "io_uring": "ENOSYS",
    "filters": "2",
    "no_new_privs": "1",
    "capabilities": "0000000000000000",
}
DNS = "169.254.1.1"
HOLD = "echo up; exec sleep 300"
# Tells its process id, then tries what the next line of its input names as another's process id.
PEER = r"""
import ctypes, errno, json, os, sys

def name(call):
    try:
        call()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "ok"

def attach(pid):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(310, pid, None, 0, None, 0, 0) < 0:  # process_vm_readv
        raise OSError(ctypes.get_errno(), "")

own = os.fork() or os.execvp("sleep", ["sleep", "300"])
print(os.getpid(), flush=True)
for line in sys.stdin:
    other = int(line)
    print(json.dumps({
        "signal": name(lambda: os.kill(other, 0)),
        "kill": name(lambda: os.kill(other, 9)),
        "memory": name(lambda: open(f"/proc/{other}/mem").close()),
        "environ": name(lambda: open(f"/proc/{other}/environ").read()),
        "descriptors": name(lambda: os.readlink(f"/proc/{other}/fd/1")),
        "vm": name(lambda: attach(other)),
        "own child": name(lambda: os.kill(own, 0)),
    }), flush=True)
"""
APART = {
    "signal": "EPERM",
    "kill": "EPERM",
    "memory": "EACCES",
    "environ": "EACCES",
    "descriptors": "EACCES",
    "vm": "EPERM",
    "own child": "ok",
}


def enter(name: str, *words: str, options: tuple[str, ...] = (), **given: object) -> Run:
    """Run a command in a card."""
    return run(["card", "exec", *options, name, "--", *words], **given)


@contextmanager
def background(*words: str, **options: Any) -> Generator[subprocess.Popen[str]]:
    """Start a command whose output is read while it runs, and which ends with the block."""
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options) as running:
        try:
            yield running
        finally:
            running.kill()


def said(running: "subprocess.Popen[str]") -> str:
    """Return the next line of a command's output."""
    assert running.stdout is not None
    return running.stdout.readline().removesuffix("\n")


def tell(running: "subprocess.Popen[str]", line: str) -> None:
    """Write a line to a command's input."""
    assert running.stdin is not None
    running.stdin.write(f"{line}\n")
    running.stdin.flush()


@pytest.fixture
def held(workspace: Path) -> Iterator[str]:
    """Return a card that runs until the test is over."""
    words = ["-q", "-d", "--run", "held", "--write", str(workspace), "--env", "SECRET=s3cret"]
    done = card(*words, "--", "sh", "-c", HOLD)
    assert done.status == 0, done.err
    yield "held"
    run(["card", "stop", "--time", "0", "held"])


def test_denied_exactly_as_the_worker_is(held: str) -> None:
    """Each attempt comes to the same by exec and by a worker; without walls it comes to something else."""
    worker = card("-q", "--", "python3", "-c", TRY, DNS)
    entered = enter(held, "python3", "-c", TRY, DNS)
    assert (entered.status, entered.err) == (0, "")
    assert json.loads(worker.out) == WALLED
    assert json.loads(entered.out) == WALLED
    control = json.loads(plain("python3", "-c", TRY, DNS).out)
    same = {attempt for attempt in WALLED if control[attempt] == WALLED[attempt]}
    # What podman itself holds in a plain container of this user, and what is allowed in both.
    assert same <= {
        "listed host",
        "own tmp",
        "image write",
        "new user namespace",
        "io_uring",
        "ptrace",
        "exotic socket",
    }
    assert control["unlisted host"] == control["metadata"] == control["landlock write"] == "ok"


def test_what_a_bare_podman_exec_gets(held: str) -> None:
    """Podman's part of the walls, the table and the seccomp profile; not stage 2's, which SECURITY.md says."""
    done = run(["podman", "exec", f"card-{held}", "python3", "-c", TRY, DNS])
    found = json.loads(done.out)
    differs = {attempt: found[attempt] for attempt in WALLED if found[attempt] != WALLED[attempt]}
    assert differs == {"landlock write": "ok", "landlock read": "ok", "filters": "1"}


def test_neither_can_harm_the_other() -> None:
    """The worker and what entered can neither signal nor trace nor read each other; each can its own child."""
    peer = ("--", "python3", "-c", PEER)
    with background("card-run", "-q", "-i", "--run", "peers", *peer) as worker:
        first = said(worker)
        with background("card", "exec", "-i", "peers", *peer) as entered:
            second = said(entered)
            for asking, other in ((worker, second), (entered, first)):
                tell(asking, other)
                assert json.loads(said(asking)) == APART
            # The attempts to kill it came to nothing.
            tell(worker, second)
            assert said(worker)


def test_the_worker_can_limit_what_entered() -> None:
    """That neither can signal the other is no more than that, as SECURITY.md says: a limit of time ends it."""
    limit = "import resource; print('up', flush=True); resource.prlimit(int(input()), resource.RLIMIT_CPU, (1, 1))"
    burn = "import os; print(os.getpid(), flush=True)\nwhile True: pass"
    with background("card-run", "-q", "-i", "--run", "limits", "--", "python3", "-c", f"{limit}; input()") as worker:
        assert said(worker) == "up"
        with background("card", "exec", "limits", "python3", "-c", burn) as entered:
            tell(worker, said(entered))
            assert entered.wait(30) == 128 + signal.SIGKILL
        tell(worker, "")


def test_streams_status_and_words(held: str) -> None:
    """Words to the letter, both streams, input only when asked for, the command's own status."""
    done = enter(held, "sh", "-c", 'printf "%s|" "$@"; echo err >&2; exit 9', "sh", "a b", "--", "-i", "")
    assert (done.status, done.out, done.err) == (9, "a b|--|-i||", "err\n")
    assert enter(held, "cat", options=("-i",), input="in").out == "in"
    assert enter(held, "cat", input="in").out == ""
    assert run(["card", "exec", held, "sh", "-c", "echo $0 $1", "-i", "--"]).out == "-i --\n"
    assert [enter(held, word).status for word in ("nonesuch", "/etc")] == [127, 126]


def test_variables_and_directory(held: str, workspace: Path) -> None:
    """The worker's directory and HOME, and what is named; the worker's own variables do not cross."""
    done = enter(held, "sh", "-c", 'pwd; echo "$HOME $TMPDIR $A ${SECRET-unset}"', options=("--env", "A=b c"))
    assert done.out == f"{workspace}\n/card /tmp b c unset\n"
    assert enter(held, "pwd", options=("--cwd", "/tmp")).out == "/tmp\n"
    elsewhere = enter(held, "pwd", options=("--cwd", "/nonesuch"))
    assert (elsewhere.status, elsewhere.reasons) == (125, ["cwd-unusable"])


def test_a_value_is_in_no_argument_list(held: str) -> None:
    """What is passed crosses by the socket: no process of the bench has it in its argv."""
    words = ["card", "exec", "-i", "--env", "TOKEN", held, "--", "sh", "-c", "echo ${#TOKEN}; read line"]
    secret = f"s3cret-{os.urandom(8).hex()}"
    with background(*words, env={**os.environ, "TOKEN": secret}) as entered:
        assert said(entered) == str(len(secret))
        argvs = [_bytes(path) for path in Path("/proc").glob("[0-9]*/cmdline")]
    assert any(b"card-held" in argv or b"exec" in argv for argv in argvs)
    assert not [argv for argv in argvs if secret.encode() in argv]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_terminal(held: str) -> None:
    """A shell in a terminal of the card's, of the window's size; Ctrl-P is the shell's, and the status its own."""
    with program(
        "card", "exec", "-it", "--env", "PS1=ready> ", held, "--", "bash", "--norc", "--noprofile", "-i"
    ) as opened:
        opened.until("ready> ")
        assert opened.ask("tty; stty size") == "/dev/pts/0\n40 100\n"
        opened.type("echo again\r")
        opened.until("again\r\n")
        opened.until("ready> ")
        opened.type("\x10\r")  # the line before, by readline
        opened.until("\nagain\r\n")
        opened.type("exit 6\r")
        assert opened.ended() == 6


def test_a_terminal_without_input(held: str) -> None:
    """With -t alone the keys are `card exec`'s, as card-run's: Ctrl-C and the window's size are passed on."""
    with program("card", "exec", "-t", held, "--", "python3", "-c", WAIT_FOR_SIZE) as opened:
        before = opened.modes()
        opened.until("waiting 100 40\r")
        assert opened.modes() == before
        opened.resize(50, 120)
        opened.until("changed 120 50\r")
        assert opened.ended() == 0
    test = "test -t 0 -a -t 1 -a -t 2 && echo all; exec sleep 60"
    with program("card", "exec", "-t", held, "--", "sh", "-c", test) as opened:
        opened.until("all\r")
        opened.type(CTRL_C)
        assert opened.ended() == 130


def test_input_from_a_terminal_that_is_not_the_commands(held: str) -> None:
    """With -i alone lines are the command's, Ctrl-C reaches it once, and Ctrl-D ends its input."""
    with program("card", "exec", "-i", held, "--", "python3", "-uc", ECHO) as opened:
        opened.until("up\r\n")
        opened.type(CTRL_C)
        opened.until("heard\r\n")
        opened.type("a line\r")
        assert "heard" not in opened.until("got a line\r\n")
        opened.type(CTRL_D)
        assert opened.ended() == 0


@pytest.mark.parametrize("options", ["", "-t", "-i"])
def test_ctrl_z_stops_card_exec(held: str, options: str) -> None:
    """As any job of a shell: the command and the card go on, and fg brings its output back."""
    with jobs() as shell:
        shell.type(f"card exec {options} {held} -- python3 -uc '{TICK}'\r")
        shell.until("tick\r")
        shell.type(CTRL_Z)
        assert "Stopped" in shell.until("ready> ")
        assert shell.ask("echo $((6 * 7))") == "42\n"
        assert run(["podman", "ps", "--format", "{{.Status}}"]).out.startswith("Up")
        shell.type("fg\r")
        shell.until("tick\r")
        shell.type(CTRL_C)
        shell.until("caught\r")
        shell.until("ready> ")
        assert shell.ask("echo $?") == "5\n"


def test_signals_are_passed_on(held: str) -> None:
    """TERM and INT sent to `card exec` reach what runs in the card, which ends as it likes."""
    trap = "trap 'echo int' INT; trap 'exit 7' TERM; echo up; while :; do sleep 0.1; done"
    with background("card", "exec", held, "--", "sh", "-c", trap) as entered:
        assert said(entered) == "up"
        entered.send_signal(signal.SIGINT)
        assert said(entered) == "int"
        entered.send_signal(signal.SIGTERM)
        assert entered.wait(timeout=60) == 7


def test_it_ends_with_card_exec(held: str) -> None:
    """SIGKILL of `card exec` ends what it ran, by the kernel; the worker runs on."""
    with background("card", "exec", held, "--", "sh", "-c", "echo up; exec sleep 4711") as entered:
        assert said(entered) == "up"
        _until(lambda: _sleeps("4711"))
        entered.kill()
        _until(lambda: not _sleeps("4711"))
    assert _sleeps("300")


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline


def _sleeps(seconds: str) -> bool:
    return any(_bytes(path) == f"sleep\0{seconds}\0".encode() for path in Path("/proc").glob("[0-9]*/cmdline"))


@pytest.mark.usefixtures("nothing_left")
def test_it_ends_with_the_card() -> None:
    """When the worker ends, so does what entered, and nothing is left."""
    with background("card-run", "-q", "-i", "--run", "brief", "--", "sh", "-c", "echo up; read line; exit 3") as worker:
        assert said(worker) == "up"
        with background("card", "exec", "brief", "--", "sh", "-c", "echo in; exec sleep 300") as entered:
            assert said(entered) == "in"
            tell(worker, "")
            assert entered.wait(timeout=60) == 137
        assert worker.wait(timeout=60) == 3


def test_the_ledger_is_the_workers_alone(held: str) -> None:
    """Each entry's self-test is taken off, a refused one's too; what an entered command was denied is on record."""
    for _ in range(3):
        assert enter(held, "true").status == 0
    for _ in range(2):
        assert enter(held, "true", options=("--cwd=/nonexistent",)).status == 125
    assert json.loads(run(["card", "show", "--json", held]).out)["ledger"]["denied"] == []
    enter(held, "python3", "-c", TRY, DNS)
    denied = json.loads(run(["card", "show", "--json", held]).out)["ledger"]["denied"]
    assert ("198.51.100.66", 443) in {(row["address"], row["port"]) for row in denied}
    run(["card", "stop", held])
    kept = json.loads(run(["card", "show", "--json", held]).out)["ledger"]["denied"]
    assert kept == denied


def test_a_wall_that_fell_lets_nothing_in(held: str) -> None:
    """With the card's table flushed from the bench nothing enters: stage 2 feels it. Control: it entered before."""
    assert enter(held, "true").status == 0
    pin = f"{os.environ['XDG_RUNTIME_DIR']}/card-run/{held}/netns"
    flush = ["podman", "unshare", "nsenter", f"--net={pin}", "/usr/sbin/nft", "flush", "ruleset"]
    assert run(flush).status == 0
    done = enter(held, "echo", "ran")
    assert (done.status, done.out, done.reasons) == (125, "", ["egress-open"])


def test_a_proof_of_another_start_lets_nothing_in(held: str) -> None:
    """The proof in the card must be of this very start."""
    proof = Path(os.environ["XDG_RUNTIME_DIR"]) / "card-run" / held / "card/proof"
    text = proof.read_bytes()
    nonce = next(item for item in text.split(b"\0") if item.startswith(b"nonce="))
    proof.chmod(0o644)
    proof.write_bytes(text.replace(nonce, b"nonce=" + b"0" * 32))
    done = enter(held, "echo", "ran")
    assert (done.status, done.out, done.reasons) == (125, "", ["proof-mismatch"])


def test_what_cannot_be_entered(held: str) -> None:
    """A run that is none, one that has ended, a frozen one, and no command: each by its name, exit status 125."""
    assert enter("hel", "true").reasons == ["no-such-run"]
    done = run(["card", "exec", held])
    assert (done.status, done.reasons) == (125, ["no-command"])
    run(["podman", "pause", f"card-{held}"])
    frozen = enter(held, "echo", "ran")
    assert (frozen.status, frozen.out, frozen.reasons) == (125, "", ["not-entered"])
    run(["podman", "unpause", f"card-{held}"])
    assert enter(held, "true").status == 0
    run(["card", "stop", held])
    over = enter(held, "echo", "ran")
    assert (over.status, over.out, over.reasons) == (125, "", ["run-ended"])


@pytest.mark.usefixtures("nothing_left")
def test_a_card_that_a_grant_opened_something_for(workspace: Path, tmp_path: Path) -> None:
    """Its grant is for the worker's command: no other gets at what it opened. The control is the card without one."""
    profile = tmp_path / "card.toml"
    levels = "workspace_read = 'allow'\nworkspace_write = 'gated'\ncommand = 'allow'\n"
    profile.write_text(f"[access]\nworkspace = {json.dumps(str(workspace))}\n{levels}")
    (workspace / "file").touch()
    words = ["--card", str(profile), "--run", "granted"]
    target = ["--class", "filesystem.path.write.v1", "--target", str(workspace / "file")]
    token = run(["card", "grant", "issue", *target, *words, "--", "sh", "-c", HOLD]).out.strip()
    read_only = 2  # what dash ends with when it cannot write
    for grant, status, reasons in ((["--grant", token], 125, ["required"]), ([], read_only, [])):
        with background("card-run", "-q", *words, *grant, "--", "sh", "-c", HOLD) as worker:
            assert said(worker) == "up"
            done = enter("granted", "sh", "-c", "echo more >>file")
            assert (done.status, done.reasons) == (status, reasons), done.err
            assert run(["card", "stop", "--time", "0", "granted"]).status == 0
            worker.wait(timeout=60)
    assert (workspace / "file").read_text() == ""


@pytest.mark.usefixtures("nothing_left")
def test_a_card_of_the_pools(tmp_path: Path) -> None:
    """What enters a card that was warm is let go on the proof of the run that took it."""
    receipt = tmp_path / "receipt.json"
    with pool(), background("card-run", "-q", f"--json={receipt}", "--", "sh", "-c", HOLD) as worker:
        assert said(worker) == "up"
        rows = [json.loads(line) for line in run(["card", "ps", "--json"]).out.splitlines()]
        (name,) = [row["run"] for row in rows if row["state"] == "running"]
        assert json.loads(enter(name, "python3", "-c", TRY, DNS).out) == WALLED
        assert run(["card", "stop", "--time", "0", name]).status == 0
        worker.wait(timeout=60)
    assert json.loads(receipt.read_text())["start"]["kind"] == "warm"
