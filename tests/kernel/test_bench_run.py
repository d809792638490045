"""infra/bench/run from the outside: what passes through it, and that nothing of a run stays behind."""

import contextlib
import os
import pty
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.bench_runs import CONTAINER, DESCRIBE, RUN, Traces, bench, line_of, started, traces

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the bench is entered by root")
SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]


@pytest.mark.parametrize(
    ("argv", "status"),
    [
        (["true"], 0),
        (["false"], 1),
        (["sh", "-c", "exit 7"], 7),
        (["/etc/passwd"], 126),
        (["/nowhere"], 127),
        (["sh", "-c", "kill -9 $$"], 137),
        (["sh", "-c", "kill -TERM $$"], 143),
    ],
)
def test_exit_status(argv: list[str], status: int) -> None:
    """The command's own status comes out; 126, 127 and 128+n as a shell says them."""
    assert bench(*argv).returncode == status


def test_output_is_exact() -> None:
    """Stdout and stderr hold what the command wrote and nothing else."""
    done = bench("sh", "-c", r"printf 'a\nb'; printf 'c\0d' >&2")
    assert (done.stdout, done.stderr) == (b"a\nb", b"c\0d")


def test_input_is_exact() -> None:
    """A megabyte of any bytes comes through unchanged, to its end."""
    data = random.Random(1).randbytes(1 << 20)  # noqa: S311 - any bytes will do, the same each time
    assert bench("cat", stdin=data).stdout == data


def test_streams_have_names() -> None:
    """The user can open its own standard streams by name although they are pipes of root's."""
    done = bench("sh", "-c", "cat /dev/stdin > /dev/stderr", stdin=b"x")
    assert (done.returncode, done.stderr) == (0, b"x")


@pytest.mark.parametrize("word", ["", "a b", "a\nb", "--root", "--", "$HOME", "'", "\udcff"])
def test_arguments_are_exact(word: str) -> None:
    """Words reach the command as they are: no shell, no option of ours among them."""
    assert bench("printf", "%s", word).stdout == os.fsencode(word)


def test_environment_is_a_login() -> None:
    """Nothing of the caller's environment is in the bench but what the terminal and CI say."""
    env = {"PATH": os.environ["PATH"], "SECRET": "s", "CI": "true", "TERM": "dumb", "PYTHONPATH": "/x"}
    done = subprocess.run([RUN, "--fresh", "env"], check=True, capture_output=True, text=True, env=env)
    found = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert set(found) == {"PATH", "HOME", "USER", "LOGNAME", "XDG_RUNTIME_DIR", "LANG", "TERM", "CI"}


@pytest.mark.parametrize(("options", "uid"), [((), "1000"), (("--root",), "0")])
def test_user(options: tuple[str, ...], uid: str) -> None:
    """The command runs as the bench's unprivileged user, or as root when that is asked for."""
    assert bench("id", "-u", options=("--fresh", *options)).stdout.decode().strip() == uid


def test_starts_where_the_caller_is() -> None:
    """A caller in the checkout starts in the same folder of /src, which cannot be written to."""
    here = Path(RUN).parent
    script = "pwd; touch x 2>&1; exit 0"
    done = subprocess.run([RUN, "--root", "--fresh", "sh", "-c", script], check=True, capture_output=True, cwd=here)
    where, refused = done.stdout.decode().splitlines()
    assert where == "/src/infra/bench"
    assert "Read-only file system" in refused


def test_bind(tmp_path: Path) -> None:
    """A folder of the machine can be shown, and what is written there stays."""
    tmp_path.chmod(0o777)
    done = bench("sh", "-c", "echo kept > /out/file", options=("--fresh", "--bind", f"{tmp_path}:/out"))
    assert done.returncode == 0
    assert (tmp_path / "file").read_text() == "kept\n"


def test_home_is_fresh() -> None:
    """What a run leaves in its home, its /tmp or its /etc is gone in the next one."""
    places = "/root/left /tmp/left /etc/left"
    assert bench("sh", "-c", f"touch {places} && ls {places}", options=("--root", "--fresh")).returncode == 0
    assert bench("sh", "-c", f"ls {places}", options=("--root", "--fresh")).stdout == b""


def test_images_persist_and_containers_do_not() -> None:
    """An image made in one run is there in the next one; a container that was left running is not."""
    name = "localhost/bench-test/persists:latest"
    build = f"printf 'FROM localhost/card-run/busybox:latest\\nENV x=y\\n' | podman build -q -t {name} -f - ."
    try:
        made = bench("sh", "-c", f"cd && {build} && {CONTAINER}", options=())
        assert made.returncode == 0, made.stderr
        after = bench("sh", "-c", f"podman image exists {name} && podman ps -aq", options=())
        assert (after.returncode, after.stdout) == (0, b"")
    finally:
        bench("podman", "rmi", name, options=())


def test_waits_for_another_run_unless_fresh() -> None:
    """Runs that share podman's storage take turns and say so; a fresh one stands beside them."""
    with subprocess.Popen([RUN, "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdin is not None
        assert first.stdout is not None
        first.stdin.write(b"in\n")
        first.stdin.flush()
        first.stdout.readline()
        with subprocess.Popen([RUN, "true"], stderr=subprocess.PIPE) as second:
            assert second.stderr is not None
            assert second.stderr.readline() == b"bench: waiting for another bench run\n"
            assert bench("true").returncode == 0
            assert second.poll() is None
            first.stdin.close()
            assert second.wait() == 0


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_ends_the_command(number: signal.Signals) -> None:
    """A signal to the caller reaches the command, and the status says which ended it."""
    with started("echo up; exec sleep 1000") as process:
        line_of(process)
        process.send_signal(number)
        assert process.wait() == 128 + number


def test_signal_can_be_handled() -> None:
    """A command that handles TERM decides how the run ends."""
    with started("trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.01; done") as process:
        line_of(process)
        process.terminate()
        assert line_of(process) == "bye"
        assert process.wait() == 5


def test_second_signal_kills() -> None:
    """A command that ignores TERM is killed by the second one."""
    with started("trap '' TERM; echo up; while :; do sleep 0.01; done") as process:
        line_of(process)
        process.terminate()
        while process.poll() is None:
            process.terminate()
        assert process.returncode == 143


@contextlib.contextmanager
def _run(ending: str) -> Iterator[tuple[subprocess.Popen[bytes], Traces]]:
    """Start a run with a container in it, and give its process and what it is made of."""
    script = f"{CONTAINER} >/dev/null && {{ {DESCRIBE}; }}; echo described; {ending}"
    with started(script, "--root") as process:
        lines = list(iter(lambda: line_of(process), "described"))
        found = traces(lines, process=process.pid)
        yield process, found
        process.kill()


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129), (signal.SIGKILL, -9)],
)
def test_nothing_is_left_after_a_signal(number: signal.Signals, status: int) -> None:
    """However the caller is ended, no process, namespace, control group or storage of the run stays."""
    with _run("exec sleep 1000") as (process, found):
        assert len(found.namespaces) >= 4
        assert found.left()
        process.send_signal(number)
        assert process.wait() == status
        assert found.left_after_a_while() == []


def test_nothing_is_left_after_the_end() -> None:
    """When the command has ended by itself, all is gone by the time that the caller is."""
    with _run("read line") as (process, found):
        assert process.wait() == 1
        assert found.left() == []


def test_machine_sees_no_mount() -> None:
    """While a run is on, the machine's own mount namespace has no mount of it."""
    before = Path("/proc/self/mountinfo").read_text()
    with _run("exec sleep 1000"):
        assert Path("/proc/self/mountinfo").read_text() == before


def test_world_problems_come_together(tmp_path: Path) -> None:
    """A bad world file is refused with each problem, and the command does not run."""
    world = tmp_path / "bad.toml"
    world.write_text('[link]\nbench = ["192.0.2.2/24"]\ngateway = ["10.0.0.1"]\n[zone]\n"n" = "NX"\n')
    done = bench("echo", "ran", options=("--fresh", "--world", str(world)))
    assert (done.returncode, done.stdout) == (125, b"")
    assert b"gateway 10.0.0.1" in done.stderr
    assert b"'NX'" in done.stderr


@pytest.mark.parametrize("text", ["/nowhere:/x", "/tmp", "/tmp:x"])
def test_bad_bind(text: str) -> None:
    """A --bind that cannot be is refused, and the command does not run."""
    done = bench("echo", "ran", options=("--fresh", "--bind", text))
    assert (done.returncode, done.stdout) == (125, b"")
    assert text.encode() in done.stderr


def test_needs_root() -> None:
    """Anyone but root is told so."""
    done = subprocess.run([RUN, "true"], check=False, capture_output=True, user=65534, group=65534, extra_groups=[])
    assert done.returncode == 2
    assert b"needs root" in done.stderr


class _Terminal:
    """A run in a terminal of its own."""

    def __init__(self, *argv: str) -> None:
        self.process, self.descriptor = pty.fork()
        if self.process == 0:
            os.execv(RUN, [RUN, "--fresh", "--", *argv])  # noqa: S606 - the child of a fork
        self.output = b""

    def until(self, text: bytes) -> None:
        """Read until the text has come."""
        end = time.monotonic() + 30
        while text not in self.output:
            assert time.monotonic() < end, self.output
            self.output += os.read(self.descriptor, 4096)
        self.output = self.output.partition(text)[2]

    def send(self, keys: bytes) -> None:
        """Type."""
        os.write(self.descriptor, keys)

    def status(self) -> int:
        """Wait for its end."""
        with contextlib.suppress(OSError):
            while data := os.read(self.descriptor, 4096):
                self.output += data
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])


def test_terminal_passes_through() -> None:
    """The command has the caller's terminal, by name too, and a shell in it has job control."""
    terminal = _Terminal("bash", "--norc", "-i")
    terminal.until(b"$ ")
    terminal.send(b"tty; echo $-; exit 4\n")
    terminal.until(b"/dev/console\r\n")
    terminal.until(b"m")  # the monitor option of job control
    assert terminal.status() == 4


def test_terminal_reaches_a_container() -> None:
    """Podman run -it works in a terminal."""
    terminal = _Terminal(*["podman", "run", "--pull=never", "--rm", "-it", "localhost/card-run/busybox:latest", "sh"])
    terminal.until(b"/ #")
    terminal.send(b"tty\n")
    terminal.until(b"/dev/pts/0")
    terminal.send(b"exit 3\n")
    assert terminal.status() == 3


def test_bench_can_make_terminals() -> None:
    """Programs in the bench, the user's too, can make terminals of their own."""
    assert bench("python3", "-c", "import os; print(os.isatty(os.openpty()[1]))").stdout == b"True\n"


def test_older_suite() -> None:
    """The bench can be Debian 12, whose podman 4.3 runs a container of the card image with slirp4netns."""
    image = "localhost/card-run/card:latest"
    script = f"podman --version && podman run --rm --pull=never --userns=keep-id {image} curl -sS https://github.com/"
    done = bench("sh", "-c", script, options=("--fresh", "--release", "bookworm"))
    assert done.stdout == b"podman version 4.3.1\nhello from github.com\n"


def test_interrupt_key() -> None:
    """The interrupt key ends the command, once: it is the terminal's signal and not sent a second time."""
    terminal = _Terminal("sh", "-c", "trap 'echo once; exit 6' INT; echo up; while :; do sleep 0.01; done")
    terminal.until(b"up\r\n")
    terminal.send(b"\x03")
    terminal.until(b"once")
    assert terminal.status() == 6
    assert b"once" not in terminal.output
