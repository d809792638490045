"""A prepared card: plain podman starts it once, behind the same walls, and nothing else starts it at all."""

import json
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bench import inside
from tests.bench.cards import Run, card, is_old, run
from tests.bench.test_hooks import CONF, hooks
from tests.bench.test_proof import FLUSH, FLUSH_PROGRAM

RUNS = Path(os.environ.get("XDG_RUNTIME_DIR", "/run")) / "card-run"
WORKER = ("--", "sh", "-c", "echo ran; touch /tmp/ran")


@pytest.fixture(autouse=True, scope="module")
def registered() -> Iterator[None]:
    """Register the hooks for these tests."""
    hooks("install")
    yield
    hooks("uninstall")


class Card:
    """A prepared card: podman's words, and what its run directory says."""

    def __init__(self, *words: str) -> None:
        done = run(["card", "prepare", "--json=-", *words])
        assert done.status == 0, done.err
        self.told: dict[str, Any] = json.loads(done.out)
        self.notes = done.err
        self.words: list[str] = self.told["podman"]
        self.path = Path(self.told["directory"])

    def start(self, change: Callable[[list[str]], list[str]] | None = None, **options: Any) -> Run:
        """Start it with plain podman, its words changed or not."""
        words = change(list(self.words)) if change else self.words
        return run(words, **{"stdin": subprocess.DEVNULL, **options})

    def read(self, name: str) -> dict[str, Any]:
        """Return one of its JSON files."""
        found: dict[str, Any] = json.loads((self.path / name).read_text())
        return found

    @property
    def log(self) -> str:
        """What the hooks said."""
        path = self.path / "hook.log"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def prepare() -> Iterator[Callable[..., Card]]:
    """Return what prepares a card; their directories are removed afterwards."""
    made: list[Card] = []

    def prepare(*words: str) -> Card:
        made.append(Card(*words))
        return made[-1]

    yield prepare
    for one in made:
        subprocess.run(["podman", "rm", "--force", f"card-{one.told['run']}"], capture_output=True, check=False)
        subprocess.run(["rm", "-rf", str(one.path)], check=True)


def never_ran(done: Run) -> None:
    """Assert what a refusal is: no status of the worker's, and no trace of it."""
    assert done.status in {125, 126}
    assert "SANDBOX OK" not in done.err
    assert done.out == ""


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("user", ["keep-id", "root"])
def test_it_works_once(user: str, prepare: Callable[..., Card]) -> None:
    """Plain podman starts it behind three walls; a second start is refused, and the first one's account stays."""
    ready = prepare("--user", user, *WORKER)
    first = ready.start()
    assert (first.status, first.out) == (0, "ran\n"), first.err
    assert f"SANDBOX OK run={ready.told['run']} " in first.err
    assert "level=full launcher=none" in first.err
    account, ledger = ready.read("hook.json"), ready.read("ledger.json")
    assert account["status"] == "ok"
    again = ready.start()
    never_ran(again)
    assert "reason=run-consumed " in ready.log
    assert (ready.read("hook.json"), ready.read("ledger.json")) == (account, ledger)


def test_the_command_as_text() -> None:
    """What is printed for a person is what a shell runs; nothing of it is a value of --env."""
    done = run(["card", "prepare", "--env", "SECRET=hunter2", *WORKER])
    words = shlex.split(done.out)
    directory = next(word for word in words if word.startswith("--annotation=org.card-run.directory=")).split("=", 2)[2]
    try:
        assert "hunter2" not in done.out + done.err
        started = run(["sh", "-c", done.out], stdin=subprocess.DEVNULL)
        assert (started.status, started.out) == (0, "ran\n"), started.err
    finally:
        subprocess.run(["rm", "-rf", directory], check=True)


LOOK = f"""
import os, subprocess
exec({inside.PROGRAM!r})
for path in sys.argv[2:]:
    try:
        open(path, "a" if path.endswith("x") else "r")
    except OSError as error:
        print(path, errno.errorcode[error.errno])
    else:
        print(path, "ok")
print(subprocess.run(["unshare", "-U", "true"], capture_output=True).returncode)
print(sorted(os.environ.items()), os.getcwd(), os.getgroups(), os.listdir("/proc/self/fd"))
"""


def test_every_wall_is_the_same(prepare: Callable[..., Card], tmp_path: Path) -> None:
    """The same attempts come to the same in a prepared card and in card-run's: network, files, calls, environment."""
    read = tmp_path / "read"
    read.mkdir()
    attempts = [
        ["tcp", "203.0.113.10", 443],
        ["tcp", "203.0.113.10", 22],
        ["tcp", "198.51.100.66", 443],
        ["tcp", "169.254.169.254", 80],
        ["udp", "203.0.113.10", 443, "00"],
    ]
    paths = (f"{read}/x", "/usr/x", "/etc/hosts", "/run/card/proof", "/run/card/stage2.conf")
    words = ("--read", str(read), "--env", "A=1", "--", "python3", "-c", LOOK, json.dumps(attempts), *paths)
    prepared, attended = prepare(*words).start(), card(*words)
    assert prepared.status == attended.status == 0, prepared.err
    first, *rest = prepared.out.splitlines()
    assert [result for result, _ in json.loads(first)] == ["ok", *["ECONNREFUSED"] * 3, "EPERM"]
    assert rest == attended.out.splitlines()[1:]
    assert f"{read}/x EROFS" in rest
    assert "/run/card/proof EACCES" in rest


def test_what_stage_2_read_is_closed_to_the_worker(prepare: Callable[..., Card]) -> None:
    """The file with the worker's environment in it cannot be opened once the walls stand; a control can."""
    done = prepare("--", "sh", "-c", "cat /etc/hosts >/dev/null && echo control; cat /run/card/unattended").start()
    assert (done.status, done.out) == (1, "control\n")
    assert "Permission denied" in done.err


def test_what_was_denied_is_kept(prepare: Callable[..., Card]) -> None:
    """The ledger of a card that nobody waited for lies in its run directory; what stage 2 read does not any more."""
    ready = prepare("--env", "SECRET=hunter2", "--", "python3", "-c", inside.PROGRAM, '[["tcp", "198.51.100.66", 443]]')
    secrets = ready.path / "card/unattended"
    assert b"hunter2" in secrets.read_bytes()
    assert ready.path.stat().st_mode & 0o77 == secrets.stat().st_mode & 0o77 == 0
    assert ready.start().status == 0
    denied = ready.read("ledger.json")["denied"]
    assert [(row["address"], row["port"]) for row in denied] == [("198.51.100.66", 443)]
    assert not secrets.exists()


def test_its_life_is_told(prepare: Callable[..., Card]) -> None:
    """A prepared card is seen before, while and after it runs, and its ledger outlives its run directory."""
    worker = ["--", "python3", "-c", f"{inside.PROGRAM}\nsys.stdout.flush(); sys.stdin.read()"]
    ready = prepare("-i", *worker, '[["tcp", "198.51.100.66", 443]]')
    name = ready.told["run"]

    def shown() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(run(["card", "show", "--json", name]).out)
        return found

    assert shown()["state"] == "prepared"
    assert run(["card", "stop", "--all"]).status == 0
    with subprocess.Popen(ready.words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as podman:
        assert podman.stdout
        assert podman.stdout.readline()
        told = shown()
        assert (told["state"], [row["address"] for row in told["ledger"]["denied"]]) == (
            "unattended",
            ["198.51.100.66"],
        )
        stopped = run(["card", "stop", name])
        assert (stopped.status, f"podman stop card-{name}" in stopped.err) == (1, True)
        podman.communicate(timeout=30)
    assert shown()["state"] == "ending"
    assert run(["card", "gc"]).status == 0
    told = shown()
    assert (told["state"], told["how"]) == ("ended", "unattended")
    # Only podman saw it end, and Debian 12's forgets with what status.
    assert told["exit_status"] == (None if is_old() else 0)
    assert [row["address"] for row in told["ledger"]["denied"]] == ["198.51.100.66"]
    assert not ready.path.exists()


def test_it_can_be_discarded(prepare: Callable[..., Card]) -> None:
    """Nothing is left of it, and podman's command starts nothing any more."""
    one = prepare("--env", "TOKEN=secret", "--", "echo", "ran")
    name = one.path.name
    assert run(["card", "denials", name]).reasons == ["not-running"]
    assert f"card stop {name} discards" in run(["card", "gc"]).err
    done = run(["card", "stop", name])
    assert (done.status, done.out, one.path.exists()) == (0, f"{name}\n", False)
    assert run(["card", "show", name]).reasons == ["no-such-run"]
    started = one.start()
    assert (started.status != 0, started.out) == (True, "")


def test_a_card_file(prepare: Callable[..., Card], tmp_path: Path) -> None:
    """A card file's name and its worker's time to end are recorded, for who lists the cards and for who ends them."""
    (tmp_path / "nightly.toml").write_text('name = "nightly"\ncommand = ["true"]\n[limits]\nstop_timeout = 3\n')
    name = prepare("--card", f"{tmp_path}/nightly.toml").told["run"]
    rows = [json.loads(line) for line in run(["card", "ps", "--json"]).out.splitlines()]
    assert [(row["card"], row["state"]) for row in rows if row["run"] == name] == [("nightly", "prepared")]
    assert json.loads(run(["card", "show", "--json", name]).out)["stop_timeout"] == 3


def test_no_registration(prepare: Callable[..., Card]) -> None:
    """With the hooks not registered stage 2 finds no proof, and starts no worker; the control is with them."""
    hooks("uninstall")
    try:
        ready = prepare(*WORKER)
        done = ready.start()
    finally:
        hooks("install")
    assert "the hooks are not registered" in ready.notes
    never_ran(done)
    assert "SANDBOX REFUSED reason=no-proof " in done.err
    done = ready.start()
    assert (done.status, done.out) == (0, "ran\n"), done.err


def test_the_annotation_and_no_plan() -> None:
    """A container that says it is a card and has no plan is refused by the hook, which tells; one without it runs."""
    log = RUNS / "hook.log"
    RUNS.mkdir(mode=0o700, exist_ok=True)
    log.unlink(missing_ok=True)
    image = ("--rm", "--pull=never", "localhost/card-run/card:latest", "echo", "ran")
    names = ("org.card-run.run=nope", f"org.card-run.directory={RUNS}/nope")
    done = run(["podman", "run", *(f"--annotation={name}" for name in names), *image])
    never_ran(done)
    assert "reason=run-directory " in log.read_text()
    log.unlink()
    assert run(["podman", "run", *image]).out == "ran\n"


def test_a_plan_that_is_cut_short(prepare: Callable[..., Card]) -> None:
    """A plan that is not whole is no plan, and hook.json says so."""
    ready = prepare(*WORKER)
    (ready.path / "plan.json").write_text("{")
    never_ran(ready.start())
    assert [one["reason"] for one in ready.read("hook.json")["refusals"]] == ["plan-malformed"]


ADDED = {
    "--volume=/etc:/bench": "/etc is mounted at /bench",
    "--cap-add=NET_ADMIN": "NET_ADMIN",
    "--security-opt=seccomp=unconfined": "seccomp",
    "--sysctl=net.ipv4.ip_forward=1": "sysctl net.ipv4.ip_forward",
    "--annotation=run.oci.hooks.stdout=/tmp/x": "the annotation run.oci.hooks.stdout is set",
    "--init=false": "the first process is",
    "--read-only=false": "root file system is writable",
    "--user=1:1": "the user is 1:1",
    "--uts=host": "the uts namespace is the bench's",
    "--device=/dev/fuse": "/dev/fuse",
}


@pytest.mark.parametrize("option", ADDED)
def test_altered_options(option: str, prepare: Callable[..., Card]) -> None:
    """What a person adds to the command is refused by the audit of the bundle, which names it; unaltered, it runs."""
    ready = prepare(*WORKER)
    name = option.partition("=")[0]
    done = ready.start(lambda words: [*_without(words, option, name), *_options(words, option)])
    never_ran(done)
    refusals = ready.read("hook.json")["refusals"]
    assert {one["reason"] for one in refusals} == {"bundle-differs"}, done.err
    assert any(ADDED[option] in one["text"] for one in refusals)
    assert ready.start().out == "ran\n"


def _without(words: list[str], option: str, name: str) -> list[str]:
    """Return podman's words up to the image, with what the option replaces left out."""
    head = words[:-2]
    if "seccomp" in option:
        return [word for word in head if not word.startswith("--security-opt=seccomp=")]
    once = ("--init", "--read-only", "--user", "--uts")
    dropped = (name, "--hostname") if name == "--uts" else (name,)
    return [word for word in head if word.partition("=")[0] not in dropped or name not in once]


def _options(words: list[str], option: str) -> list[str]:
    return [option, *words[-2:]]


def test_more_environment_is_not_the_workers(prepare: Callable[..., Card]) -> None:
    """A variable that is given to podman, or that a containers.conf gives, does not reach the worker."""
    ready = prepare("--env", "ASKED=1", "--", "env")
    done = ready.start(lambda words: [*words[:-2], "--env=LEAK=1", *words[-2:]])
    assert "ASKED=1" in done.out, done.err
    assert "LEAK" not in done.out


def test_a_limit_that_was_raised(prepare: Callable[..., Card]) -> None:
    """Stage 2 reads limits back and judges: a size that was not asked for starts no worker; unaltered, it does."""
    ready = prepare("--tmp-size", "1m", *WORKER)
    done = ready.start(lambda words: [word.replace("tmpfs-size=1048576", "tmpfs-size=2097152") for word in words])
    never_ran(done)
    assert "reason=not-enforced " in done.err
    assert "limit_tmp" in done.err
    assert prepare("--tmp-size", "1m", *WORKER).start().out == "ran\n"


def test_too_old(prepare: Callable[..., Card]) -> None:
    """Its names were resolved when it was prepared: a day later it is not started."""
    ready = prepare(*WORKER)
    path = ready.path / "card/unattended"
    data = path.read_bytes()
    expires = f"expires={ready.told['expires']}\0".encode()
    assert expires in data
    path.write_bytes(data.replace(expires, b"expires=1000000000\0"))
    done = ready.start()
    never_ran(done)
    assert "reason=prepared-expired " in done.err


def test_a_table_that_is_flushed_after_the_hook(prepare: Callable[..., Card], tmp_path: Path) -> None:
    """A site's hook after ours that flushes the table is felt by stage 2 alone; the control flushes none."""
    site = CONF / "zzz.conf"
    ours = str(Path("~/.local/share/card-run/hooks.d").expanduser())
    site.write_text(f"[engine]\nhooks_dir = {json.dumps([ours, str(tmp_path)])}\n")
    try:
        for program, runs in ((FLUSH_PROGRAM, False), ("pass", True)):
            hook = {
                "version": "1.0.0",
                "hook": {"path": FLUSH[0], "args": [*FLUSH, program], "env": ["PATH=/usr/sbin:/usr/bin"]},
                "when": {"always": True},
                "stages": ["createRuntime"],
            }
            (tmp_path / "90-site.json").write_text(json.dumps(hook))
            done = prepare(*WORKER).start()
            assert ("ran" in done.out, "reason=egress-open " in done.err) == (runs, not runs), done.err
    finally:
        site.unlink()


def test_standard_input(prepare: Callable[..., Card]) -> None:
    """With -i the worker reads what podman is given."""
    done = prepare("-i", "--", "cat").start(stdin=None, input="hello\n")
    assert (done.status, done.out) == (0, "hello\n"), done.err


def test_quiet(prepare: Callable[..., Card]) -> None:
    """With -q nothing but refusals is said, neither when it is prepared nor when it starts."""
    ready = prepare("-q", *WORKER)
    done = ready.start()
    assert (ready.notes, done.out, done.err) == ("", "ran\n", "")


def test_a_terminal(prepare: Callable[..., Card]) -> None:
    """With -t the worker has one."""
    ready = prepare("-t", "--", "sh", "-c", "test -t 0 && echo terminal")
    done = run(["script", "-qec", shlex.join(ready.words), "/dev/null"], stdin=subprocess.DEVNULL)
    assert "terminal" in done.out.replace("SANDBOX OK", "")


def test_the_workers_status(prepare: Callable[..., Card]) -> None:
    """Podman returns the worker's own status; 127 and 126 as a shell does."""
    assert prepare("--", "sh", "-c", "exit 7").start().status == 7
    assert prepare("--", "no-such-program").start().status == 127
    assert prepare("--", "/etc").start().status == 126


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--net", "bridge"), "--net bridge"),
        (("--timeout", "5"), "--timeout"),
        (("--write", "{work}"), "git checkout"),
    ],
)
def test_what_cannot_be_had(words: tuple[str, ...], named: str, tmp_path: Path) -> None:
    """What needs card-run while or after the worker runs is refused by name, and nothing is left."""
    subprocess.run(["git", "init", "-q", str(tmp_path / "work")], check=True)
    before = sorted(RUNS.iterdir()) if RUNS.exists() else []
    done = run(["card", "prepare", *(word.format(work=tmp_path / "work") for word in words), *WORKER])
    assert (done.status, done.reasons, done.out) == (2, ["not-prepared"], "")
    assert named in done.err
    assert (sorted(RUNS.iterdir()) if RUNS.exists() else []) == before


def test_an_image_that_is_not_there() -> None:
    """A missing image is refused when the card is prepared."""
    done = run(["card", "prepare", "--image", "localhost/nope:latest", *WORKER])
    assert (done.status, done.reasons) == (2, ["image-missing"])
