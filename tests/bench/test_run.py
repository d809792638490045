"""A card from outside: its streams, its status, its refusals, and what it leaves behind."""

import fcntl
import json
import os
import select
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.bench.cards import BUSYBOX, card, is_old, remains, run
from tests.bench.lives import Live, until


@pytest.mark.usefixtures("nothing_left")
def test_stdout_is_the_workers_alone() -> None:
    """Not a byte is added to or taken from stdout, and the one OK line is on stderr."""
    done = card("--", "printf", "a\\nb")
    assert (done.status, done.out) == (0, "a\nb")
    assert done.err.splitlines()[-1].startswith("SANDBOX OK run=")


def test_ok_line_is_measured(tmp_path: Path) -> None:
    """The numbers of the OK line are those that the hook and stage 2 measured."""
    done = card("--run", "measured", "--", "true", receipt=tmp_path / "receipt.json")
    line = next(line for line in done.err.splitlines() if line.startswith("SANDBOX OK"))
    facts, inside = done.receipt["hook"]["facts"], done.receipt["stage2"]
    abi = int(inside["abi"])
    assert f" run=measured backend=landlock abi={abi} " in line
    assert f" seccomp={inside['seccomp']} egress=nova_egress_measured allow={facts['allow']} " in line
    assert f" names=3 net={done.receipt['net']} level=full" in line
    assert facts["allow"] == sum(len(pin["addresses"]) for pin in done.receipt["pins"].values())
    assert int(inside["seccomp"]) > 0


def test_quiet_says_nothing() -> None:
    """With -q a run that goes well prints nothing of ours."""
    done = card("-q", "--", "sh", "-c", "echo out; echo err >&2")
    assert (done.out, done.err) == ("out\n", "err\n")


@pytest.mark.parametrize("status", [0, 1, 7])
def test_status_passes_through(status: int) -> None:
    """The worker's status is card-run's."""
    assert card("--", "sh", "-c", f"exit {status}").status == status


def test_status_of_a_killed_worker() -> None:
    """A worker that dies of SIGKILL is 137, as in a shell."""
    assert card("--", "sh", "-c", "kill -9 $$").status == 137


def test_not_found_and_not_executable() -> None:
    """127 and 126 as a shell has them, with the reason on stderr."""
    missing, directory, plain_file = card("--", "nonesuch"), card("--", "/etc"), card("--", "/etc/passwd")
    assert (missing.status, directory.status, plain_file.status) == (127, 126, 126)
    assert "nonesuch: not found" in missing.err


@pytest.mark.usefixtures("nothing_left")
def test_term_reaches_a_worker_without_a_handler() -> None:
    """TERM to card-run ends a worker that does nothing about it."""
    with subprocess.Popen(
        ["card-run", "-q", "--", "sh", "-c", "echo up; exec sleep 60"], stdout=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"up\n"
        running.send_signal(signal.SIGTERM)
        assert running.wait(timeout=20) == 143


@pytest.mark.usefixtures("nothing_left")
def test_interrupt() -> None:
    """Ctrl-C, which the terminal sends to the whole group, ends the card and leaves nothing."""
    with subprocess.Popen(
        ["card-run", "-q", "--", "sh", "-c", "echo up; exec sleep 60"], stdout=subprocess.PIPE, start_new_session=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"up\n"
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(timeout=20) == 130


def test_the_workers_umask_is_no_callers() -> None:
    """It is 0022, with a caller that shares nothing and with one that shares everything."""
    for mask in ("077", "000"):
        done = run(["sh", "-c", f"umask {mask}; exec card-run -q --net=none -- sh -c umask"])
        assert (done.status, done.out) == (0, "0022\n"), done.err


@pytest.mark.usefixtures("nothing_left")
def test_started_in_a_directory_that_was_deleted(tmp_path: Path) -> None:
    """A card runs all the same, and so do `card gc` and `card check`."""
    for words in ("card-run -q -- echo ran", "card gc", "card check"):
        elsewhere = run(["sh", "-c", words])
        folder = tmp_path / "gone"
        folder.mkdir()
        done = run(["sh", "-c", f"cd {folder} && rmdir {folder} && exec {words}"])
        assert (done.status, done.out) == (elsewhere.status, elsewhere.out), (words, done.err)
        assert done.status == 0 or (is_old() and words == "card check"), (words, done.out)


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_before_it_started(number: signal.Signals, tmp_path: Path) -> None:
    """It says so and nothing else, with the status that a shell has for it; nothing of the worker ran."""
    words = ["card-run", "--run", "early", "--net=none", f"--write={tmp_path}", "--", "touch", "ran"]
    record = Path(os.environ["XDG_RUNTIME_DIR"]) / "card-run/early/record.json"
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as starting:
        while not record.exists():
            assert starting.poll() is None
        starting.send_signal(number)
        _, err = starting.communicate(timeout=20)
    assert starting.returncode == 128 + number
    assert err.startswith(f"SANDBOX REFUSED reason=interrupted {number.name} came before the worker was started")
    assert err.count("\n") == 1
    assert os.listdir(tmp_path) == []


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(
    "words",
    [["--", "true"], ["--", "false"], ["--", "nonesuch"], ["--image", "localhost/none:1", "--", "true"], ["--bad"]],
)
def test_nothing_is_left(words: list[str]) -> None:
    """Success, failure, a missing worker, a missing image and a refusal all leave the bench as it was."""
    card(*words)


def test_missing_image_is_a_refusal() -> None:
    """A complaint of podman becomes one line with a reason and a hint."""
    done = card("--image", "localhost/none:1", "--", "true")
    assert (done.status, done.reasons) == (125, ["image-missing"])


@pytest.mark.usefixtures("nothing_left")
def test_refusals_together(tmp_path: Path) -> None:
    """A bad policy line with its number, an unknown model host, a missing write root and a dead name, in one go."""
    policy = tmp_path / "egress.txt"
    policy.write_text("github.com\napi.github.com\nobjects.githubusercontent.com\n*.x.org\nnxdomain.fault.example\n")
    done = card(
        *("--egress", str(policy), "--model-host", "nobody.example", "--write", f"{tmp_path}/none"),
        *("--allow-host", "nxdomain.fault.example", "--", "echo", "ran"),
    )
    assert (done.status, done.out) == (125, "")
    assert sorted(done.reasons) == ["name-unresolved", "path-missing", "policy-line", "unknown-name"]
    assert f"{policy}:4:" in done.err
    assert "NXDOMAIN" in done.err


def test_busybox_image() -> None:
    """An image with no Python, and no C library that ours could use, works."""
    done = card("--image", BUSYBOX, "--", "sh", "-c", "id -u; echo fine")
    assert (done.status, done.out) == (0, f"{os.getuid()}\nfine\n")


def test_environment() -> None:
    """Nothing of the caller's crosses unasked; what is asked for does, and is not in podman's argv or the image's."""
    environment = {**os.environ, "SECRET": "s3cret", "TOKEN": "t0ken"}
    done = card("--env", "TOKEN", "--env", "A=b c", "--", "env", env=environment)
    values = dict(line.split("=", 1) for line in done.out.splitlines())
    assert (values["TOKEN"], values["A"], values["HOME"]) == ("t0ken", "b c", "/card")
    assert "SECRET" not in values


def test_a_secret_is_nowhere_but_in_the_worker(tmp_path: Path) -> None:
    """While the card runs, a passed value is in no argv, in no file of podman's or ours, and not in pid 1's environ."""
    secret = f"s3cret-{os.urandom(8).hex()}"
    words = ["card-run", "-q", "-i", "--env", "TOKEN", f"--json={tmp_path}/receipt.json", "--"]
    with subprocess.Popen(
        [*words, "sh", "-c", 'echo "${#TOKEN}"; read line'],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TOKEN": secret},
    ) as card_run:
        assert card_run.stdout is not None
        assert card_run.stdin is not None
        assert int(card_run.stdout.readline()) == len(secret)
        found = _on_disk(secret)
        argvs = [_bytes(path) for path in Path("/proc").glob("[0-9]*/cmdline")]
        inits = [path for path in Path("/proc").glob("[0-9]*/cmdline") if b"/run/podman-init\0--" in _bytes(path)]
        environs = [_bytes(path.parent / "environ") for path in inits]
        card_run.stdin.write(b"\n")
        card_run.stdin.close()
        assert card_run.wait(timeout=20) == 0
    assert found == ""
    assert not [argv for argv in argvs if secret.encode() in argv]
    assert environs
    assert not [environ for environ in environs if secret.encode() in environ]
    assert secret not in (tmp_path / "receipt.json").read_text()


def test_control_of_the_search() -> None:
    """The same search finds a value that podman itself was given."""
    secret = f"s3cret-{os.urandom(8).hex()}"
    words = ["podman", "create", "--pull=never", f"--env=TOKEN={secret}", BUSYBOX, "true"]
    container = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    found = _on_disk(secret)
    subprocess.run(["podman", "rm", container], capture_output=True, check=True)
    assert found


def _on_disk(secret: str) -> str:
    places = [os.environ["XDG_RUNTIME_DIR"], f"{os.environ['HOME']}/.local/share/containers", "/tmp", "/var/tmp"]
    return subprocess.run(["grep", "-rlsF", secret, *places], capture_output=True, text=True, check=False).stdout


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_stdin_only_when_asked() -> None:
    """Without -i the worker reads end of file; with it, what we are given."""
    words = ["card-run", "-q", "--", "cat"]
    closed = subprocess.run(words, input=b"in", capture_output=True, check=True, timeout=60)
    given = subprocess.run(
        [*words[:1], "-q", "-i", *words[2:]], input=b"in", capture_output=True, check=True, timeout=60
    )
    assert (closed.stdout, given.stdout) == (b"", b"in")


@pytest.mark.usefixtures("nothing_left")
def test_a_reader_that_is_gone_ends_the_card() -> None:
    """By SIGTERM, at the next thing that the worker says; the status is its own."""
    worker = "trap 'exit 9' TERM; while :; do echo said; sleep 0.1; done"
    pipe = subprocess.PIPE
    with subprocess.Popen(["card-run", "-q", "--", "sh", "-c", worker], stdout=pipe, stderr=pipe, text=True) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline() == "said\n"
        running.stdout.close()
        said = running.stderr.read()
        assert running.wait(60) == 9
    assert "NOTE podman ended with 126; the worker's own status is 9" in said


@pytest.mark.parametrize("target", ["/nonexistent/receipt.json", "/etc/receipt.json", "77", "-"])
def test_a_receipt_that_cannot_be_written_is_refused(target: str) -> None:
    """Before anything runs: a folder that is not there or not ours, a descriptor that is not open, standard output."""
    done = card("--json", target, "--", "echo", "ran")
    assert (done.status, done.out, done.reasons) == (125, "", ["receipt-unwritable"])


def test_a_worker_cannot_lead_the_receipt_elsewhere(workspace: Path, tmp_path: Path) -> None:
    """A link that the worker puts in the receipt's place is not followed: the file was opened before it ran."""
    victim = tmp_path / "victim"
    victim.write_text("precious\n")
    receipt = workspace / "receipt.json"
    script = f"rm {receipt}; ln -s {victim} {receipt}"
    done = card("-q", "--write", str(workspace), f"--json={receipt}", "--", "sh", "-c", script)
    assert done.status == 0, done.err
    assert os.readlink(receipt) == str(victim)
    assert victim.read_text() == "precious\n"


def test_receipt_on_a_descriptor() -> None:
    """The receipt goes to an open descriptor when its number is named, and that descriptor is not the worker's."""
    script = "exec 9>$1; exec card-run -q --json 9 -- ls /proc/self/fd"
    with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
        words = ["bash", "-c", script, "bash", file.name]
        done = subprocess.run(words, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
        assert json.load(file)["exit_status"] == 0
    assert done.stdout.split() == ["0", "1", "2", "3"]


def test_a_run_id_in_use_is_refused() -> None:
    """Two runs of one name cannot live at once, and the second says so."""
    with subprocess.Popen(
        ["card-run", "-q", "--run", "twice", "-i", "--", "sh", "-c", "echo up; read line"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as first:
        assert first.stdout is not None
        assert first.stdin is not None
        assert first.stdout.readline() == b"up\n"
        second = card("--run", "twice", "--", "echo", "ran")
        first.stdin.close()
        assert first.wait(timeout=20) == 1
    assert (second.status, second.out, second.reasons) == (125, "", ["run-exists"])
    assert remains()["directories"] == []


def test_no_network() -> None:
    """With `--net none` the card still proves its walls, and has only its loopback."""
    done = card("--net", "none", "--", "cat", "/proc/net/dev")
    assert "net=none level=full" in done.err
    assert [line.split(":")[0].strip() for line in done.out.splitlines()[2:]] == ["lo"]


@pytest.mark.usefixtures("nothing_left")
def test_a_refused_start_keeps_the_output_of_the_run_before() -> None:
    """What a detached run left stays until another of its id is released, whose own output then takes its place."""
    nightly = ("-q", "-d", "--run", "nightly", "--net=none")
    for words, out in (("echo precious", "precious\n"), ("echo other", "other\n")):
        assert card(*nightly, "--", *words.split()).status == 0
        assert run(["card", "wait", "nightly"]).status == 0
        assert run(["card", "logs", "nightly"]).out == out
        refused = card(*nightly, "--image", "localhost/none:1", "--", "true")
        assert (refused.status, refused.reasons) == (125, ["image-missing"])
        assert run(["card", "logs", "nightly"]).out == out


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("full", [True, False])
def test_an_id_that_cannot_be_written(full: bool) -> None:  # noqa: FBT001 - pytest's way
    """On a full disk, or with nobody to read it: the card is ended, and one line says why."""
    read, write = os.pipe()
    os.close(read)
    words = ["card-run", "-q", "-d", "--run", "mute", "--net=none", "--", "sh", "-c", "echo up; exec sleep 300"]
    with open("/dev/full", "wb", buffering=0) as disk:
        target = disk if full else write
        done = subprocess.run(words, stdout=target, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    os.close(write)
    assert done.returncode == 125
    (line,) = done.stderr.splitlines()
    assert line.startswith("SANDBOX REFUSED reason=id-unwritable ")
    assert remains()["containers"] == []


@pytest.mark.usefixtures("nothing_left")
def test_a_card_that_is_gone_when_its_worker_is_to_start() -> None:
    """Killed between its report and its leave to go: a refusal, and not a defect of ours."""
    read, write = os.pipe()
    room = fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    os.write(write, b"\n" * (room - 64))  # `listening` has room, and card-run waits with `started` until it is read
    words = ["card-run", "--run", "gone", "--net=none", f"--events={write}", "--", "echo", "ran"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, pass_fds=[write], text=True) as process:
        os.close(write)
        live = Live(process, "gone")
        until(lambda: waits_to_write(process.pid, write))
        holders = [os.pidfd_open(pid) for kind in ("conmon", "init", "worker") for pid in live.find(kind)]
        live.kill_all("podman", "conmon", "init", "worker")
        for holder in holders:  # what it had open is closed once it has ended
            assert select.select([holder], [], [], 30)[0]
            os.close(holder)
        with open(read, encoding="utf-8") as file:
            events = [json.loads(line) for line in file if line.strip()]
        assert process.stdout is not None
        assert (process.stdout.read(), process.wait(timeout=60)) == ("", 125)
    assert [event["event"] for event in events if event["event"] != "note"] == ["listening", "started", "refused"]
    assert [one["reason"] for one in events[-1]["refusals"]] == ["stage2-lost"]


def waits_to_write(pid: int, fd: int) -> bool:
    """Return whether a process is in a system call on a descriptor (proc_pid_syscall(5)), and its card was walled."""
    hook = Path(os.environ["XDG_RUNTIME_DIR"]) / "card-run/gone/hook.json"
    return hook.exists() and Path(f"/proc/{pid}/syscall").read_text().split()[1:2] == [hex(fd)]
