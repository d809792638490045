"""What a worker plants where the bench itself looks later, and what a pool does for one who waits no more."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.bench import lives, pools
from tests.bench.cards import BUSYBOX, card, run

pytestmark = pytest.mark.usefixtures("nothing_left")

PLANT = """
import json, os, sys
top = f"{sys.argv[1]}/podman-run-{os.getuid()}"
os.umask(0o077)
os.makedirs(f"{top}/card-run/evil")
record = {"schema": 1, "run": "evil", "boot_id": "x", "launcher": {"pid": 1, "start": 1}, "started": 1.0}
record |= {"image": "i", "command": ["c"], "net": "none", "names": []}
for name, text in (("record.json", json.dumps(record)), ("cid", sys.argv[2]), ("released", "")):
    with open(f"{top}/card-run/evil/{name}", "w") as file:
        file.write(text)
"""


def _foreign() -> tuple[str, str]:
    """Start a container that is no card; return its id and name."""
    name = f"foreign-{os.getpid()}"
    words = ["podman", "run", "--detach", "--pull=never", f"--name={name}", "--network=none", BUSYBOX, "sleep", "300"]
    return run(words).out.strip(), name


def _runs(name: str) -> bool:
    return run(["podman", "inspect", "--format={{.State.Running}}", name]).out == "true\n"


@pytest.fixture
def moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a TMPDIR in the workspace, as products have it."""
    place = tmp_path / "work/tmp"
    place.mkdir(parents=True)
    monkeypatch.setenv("TMPDIR", str(place))
    return place


def test_runs_that_a_worker_made_in_tmpdir_are_none(moved: Path) -> None:
    """A run directory of its own once had `card gc` end any container of the user's and keep its receipt."""
    container, name = _foreign()
    try:
        done = card("-q", "--net=none", f"--write={moved.parent}", "--", "python3", "-c", PLANT, str(moved), container)
        assert done.status == 0, done.err
        assert run(["card", "gc"]).status == 0
        assert (_runs(name), (lives.STATE / "runs/evil.json").exists()) == (True, False)
        # The control: the very same directory where runs are is undone. Whose container it is, is asked even then.
        shutil.copytree(next(moved.glob("podman-run-*/card-run/evil")), lives.RUNS / "evil")
        assert "evil" in run(["card", "gc"]).out
        assert (_runs(name), (lives.STATE / "runs/evil.json").exists()) == (True, True)
    finally:
        run(["podman", "rm", "--force", "--time=0", name])
        (lives.STATE / "runs/evil.json").unlink(missing_ok=True)


def test_tmpdir_is_no_place_to_write_where_runs_are_in_it(moved: Path) -> None:
    """Without a session the run directories are below TMPDIR, and a root that holds them is refused."""
    there = {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}
    session = Path(f"/run/user/{os.getuid()}")
    assert session.is_dir(), "the bench has a session: it is what hides TMPDIR"
    words = ["card-run", "--plan", "--net=none", f"--write={moved.parent}", "--", "true"]
    assert run(words, env=there).status == 0
    (moved / f"podman-run-{os.getuid()}").mkdir(0o700)
    mode = session.stat().st_mode
    session.chmod(0o755)  # no place that is ours alone any more
    try:
        assert set(run(words, env=there).reasons) == {"path-too-wide"}
    finally:
        session.chmod(mode)


@pytest.mark.parametrize("closed", ["--protect", "git"])
def test_a_second_name_does_not_open_what_is_closed(workspace: Path, closed: str) -> None:
    """A hard link that an earlier run left was once the way to write a file that is read-only by its own name."""
    subprocess.run(["git", "init", "--quiet", str(workspace)], check=True)
    (workspace / "fixed").write_text("as it was\n")
    name, option = ("fixed", f"--protect={workspace}/fixed") if closed == "--protect" else (".git/config", "-q")
    words = ("-q", "--net=none", f"--write={workspace}")
    before = (workspace / name).read_text()
    assert card(*words, "--git-writable", "--", "ln", name, "other").status == 0
    again = ("sh", "-c", f"echo evil >> other; echo evil >> {name}; echo ran")
    done = card(*words, option, "--", *again)
    assert (done.status, done.reasons, (workspace / name).read_text()) == (125, ["path-linked"], before)
    # The control: with one name the card runs, and the file stays as it was.
    (workspace / "other").unlink()
    assert card(*words, option, "--", *again).out == "ran\n"
    assert (workspace / name).read_text() == before


def test_a_hook_with_a_second_name_is_refused(workspace: Path) -> None:
    """What lies in a closed directory has its name there, and may have another."""
    subprocess.run(["git", "init", "--quiet", str(workspace)], check=True)
    hook = workspace / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\n")
    words = ("-q", "--net=none", f"--write={workspace}")
    assert card(*words, "--git-writable", "--", "ln", ".git/hooks/pre-commit", "other").status == 0
    assert card(*words, "--", "true").reasons == ["path-linked"]
    (workspace / "other").unlink()
    assert card(*words, "--", "true").status == 0


@pytest.mark.parametrize("option", ["--egress", "--env-file"])
def test_a_planted_pipe_is_not_waited_for(workspace: Path, option: str) -> None:
    """A named pipe in the place of a file that is read was once waited for, for ever; a shell's own pipe is read."""
    assert card("-q", "--net=none", f"--write={workspace}", "--", "mkfifo", "pipe").status == 0
    words = ("-q", *(["--net=none"] if option == "--env-file" else []))
    done = card(*words, f"{option}={workspace}/pipe", "--", "true")
    assert (done.status, "it is a named pipe" in done.err) == (125, True)
    text = r"github.com\napi.github.com\nobjects.githubusercontent.com\n" if option == "--egress" else r"A=b\n"
    script = f"card-run {' '.join(words)} {option} <(printf '{text}') -- sh -c 'echo ran $A'"
    done = run(["bash", "-c", script])
    assert (done.status, done.out.split()[0], done.err) == (0, "ran", "")


def test_the_first_key_is_not_made_within_reach_of_a_card(workspace: Path) -> None:
    """A card that could read the state's directory before it was there once read the key that was made in it."""
    state = lives.STATE.parent
    state.mkdir(parents=True, exist_ok=True)
    assert not (lives.STATE / "grants/keys.json").exists()
    script = f"touch up; until [ -e go ]; do sleep .05; done; cat {lives.STATE}/grants/keys.json || ls {lives.STATE}"
    live = lives.begin(
        "reader", "-q", "--net=none", f"--read={state}", f"--write={workspace}", worker=["sh", "-c", script]
    )
    try:
        lives.until((workspace / "up").exists)
        done = run(["card", "grant", "rotate"])
        assert (done.status != 0, done.reasons) == (True, ["grants-exposed"]), done.err
        assert not (lives.STATE / "grants/keys.json").exists()
        (workspace / "go").touch()
        _, out, _ = live.end()
        assert "grants" in out
        # The control: with the card gone the key is made, and then no card may reach it.
        assert run(["card", "grant", "rotate"]).status == 0
        assert (lives.STATE / "grants/keys.json").exists()
        assert card("--net=none", f"--read={state}", "--", "true").reasons == ["grants-exposed"]
    finally:
        live.signal("launcher", signal.SIGKILL)
        shutil.rmtree(lives.STATE / "grants", ignore_errors=True)


def test_a_card_that_comes_too_late_says_nothing(workspace: Path, receipt: Path) -> None:
    """A run that the pool's process answers too late starts cold, once; no refusal of the other reaches its stderr."""
    words = ("-q", "--net=none", f"--write={workspace}")
    script = ("sh", "-c", "echo ran >> count; sleep 3")
    with pools.pool(*words[1:]) as status:
        (attendant,) = pools.attendants(status["pid"])
        os.kill(attendant, signal.SIGSTOP)
        process = subprocess.Popen(
            ["card-run", f"--json={receipt}", *words, "--", *script], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        lives.until((workspace / "count").exists)
        os.kill(attendant, signal.SIGCONT)
        _, err = process.communicate(timeout=60)
        lives.until(lambda: not lives.arguments(attendant))
        assert (process.returncode, err, (workspace / "count").read_text()) == (0, b"", "ran\n")
        assert json.loads(receipt.read_text())["start"]["reason"] == "the pool did not answer"
        # The control: a card that is in time does all of it.
        done = pools.taken(*words, "--", *script, receipt=receipt)
        assert (done.status, (workspace / "count").read_text()) == (0, "ran\nran\n")


SUBMODULE = """
for file in .git/modules/hooks/config own/.git/config .bare/config; do
    printf '[core]\n\tfsmonitor = "touch %s; false"\n' "$1" >> $file
done
echo "touch $1" >> .husky/pre-commit
echo ran
"""


def test_hooks_and_config_wherever_git_finds_them(workspace: Path) -> None:
    """A submodule called hooks, one with its own git directory, a bare one beside its worktree, and husky's hooks."""
    tree, ran = workspace / "tree", workspace / "ran"
    allow = ("-c", "protocol.file.allow=always", "-c", "user.name=t", "-c", "user.email=t@t.invalid")

    def git(*words: str) -> None:
        subprocess.run(["git", *allow, *words], cwd=tree, check=True, capture_output=True)

    tree.mkdir()
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "begin")
    git("clone", "-q", "--bare", ".", ".bare")
    git("submodule", "add", "--name", "hooks", "./.bare", "sub")
    git("clone", "-q", ".bare", "own")
    git("add", "own")
    (tree / ".husky/_").mkdir(parents=True)
    (tree / ".husky/_/pre-commit").write_text('#!/bin/sh\nexec sh "$(dirname "$(dirname "$0")")/pre-commit"\n')
    (tree / ".husky/_/pre-commit").chmod(0o755)
    (tree / ".husky/pre-commit").touch()
    git("config", "core.hooksPath", ".husky/_")
    (tree / "bared").mkdir()
    (tree / "bared/.git").write_text("gitdir: ../.bare\n")
    words = ("-q", "--net=none", f"--write={tree}", f"--write={tree}/bared", "--")
    done = card(*words, "sh", "-c", SUBMODULE, "sh", str(ran))
    assert (done.status, done.out) == (0, "ran\n"), done.err
    for command in (("status",), ("commit", "-q", "--allow-empty", "-m", "next"), ("-C", "bared", "status")):
        subprocess.run(["git", *allow, *command], cwd=tree, check=False, capture_output=True)
    assert not ran.exists()
    # The control: the same with git left to the worker.
    assert card("--git-writable", *words, "sh", "-c", SUBMODULE, "sh", str(ran)).out == "ran\n"
    git("status")
    assert ran.exists()
