"""What a worker that knows this code leaves behind for the next card, and for the bench; each with its control."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.life import runs
from tests.bench.cards import card, plain, remains, run
from tests.bench.lives import begin

pytestmark = pytest.mark.usefixtures("nothing_left")


def git(*words: str, cwd: Path) -> None:
    """Run git on the bench."""
    subprocess.run(["git", "-c", "init.defaultBranch=main", *words], cwd=cwd, check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a checkout, with a directory beside it that no card may reach."""
    (tmp_path / "private").mkdir()
    (tmp_path / "private/secret").write_text("TOPSECRET")
    git("init", "-q", "tree", cwd=tmp_path)
    return tmp_path / "tree"


@pytest.mark.parametrize("name", ["modules", "worktrees"])
def test_a_planted_link_does_not_open_the_bench_to_the_next_card(tree: Path, name: str) -> None:
    """A link in .git once made the next card mount what it pointed to, /home and all; now that card is refused."""
    planted = card("--net=none", f"--write={tree}", "--", "ln", "-s", "/home", f".git/{name}")
    assert planted.status == 0, planted.err
    words = ("--net=none", f"--write={tree}")
    done = card(*words, "--", "ls", os.environ["HOME"])
    assert (done.status, done.reasons, done.out) == (125, ["git-unprotectable"], "")
    # The control: without the link the very same card runs, and does not see the bench's HOME.
    (tree / f".git/{name}").unlink()
    done = card(*words, "--", "sh", "-c", f"echo ran; ls -a {os.environ['HOME']}")
    assert done.out.splitlines()[:1] == ["ran"]
    assert ".local" not in done.out


def test_a_planted_pipe_does_not_hang_the_next_card(tree: Path) -> None:
    """A pipe where a submodule's config is expected was once waited for without end."""
    script = "mkdir -p .git/modules/x && touch .git/modules/x/HEAD && mkfifo .git/modules/x/config"
    assert card("--net=none", f"--write={tree}", "--", "sh", "-c", script).status == 0
    assert card("--net=none", f"--write={tree}", "--", "echo", "ran").out == "ran\n"


def test_what_a_worker_leaves_in_a_checkout_does_not_run_on_the_bench(tree: Path) -> None:
    """Hooks that were missing, and a read-only folder's parents, cannot be put there by the worker."""
    (tree / ".git/hooks").rename(tree.parent / "hooks")
    (tree / "a/fixed").mkdir(parents=True)
    script = "echo evil > .git/hooks/post-index-change; mv .git .tig; mv a b; echo end"
    words = (f"--write={tree}", f"--read={tree}/a/fixed")
    done = card("--net=none", *words, "--", "sh", "-c", script)
    assert done.out == "end\n"
    assert (os.listdir(tree / ".git/hooks"), (tree / "a/fixed").exists(), (tree / "b").exists()) == ([], True, False)
    # The control: with --git-writable and without the read root, all of it happens.
    assert card("--net=none", words[0], "--git-writable", "--", "sh", "-c", script).out == "end\n"
    assert (tree / "b").exists()
    assert (tree / ".tig").exists()


def test_a_planted_link_does_not_take_the_next_receipt(tmp_path: Path) -> None:
    """A link where the receipt is to be written once had it written over the bench's own file."""
    (tmp_path / "victim").write_text("keep")
    (tmp_path / "work/out").mkdir(parents=True)
    words = ("--net=none", f"--write={tmp_path}/work")
    assert card(*words, "--", "ln", "-s", f"{tmp_path}/victim", "r.json").status == 0
    for planted in ("r.json", "out/victim"):
        done = card(*words, f"--json={tmp_path}/work/{planted}", "--", "echo", "ran")
        assert (done.status, done.reasons, done.out) == (125, ["receipt-linked"], "")
        (tmp_path / "work/out").rmdir() if planted == "r.json" else None
        (tmp_path / "work/out").symlink_to(tmp_path) if planted == "r.json" else None
    assert (tmp_path / "victim").read_text() == "keep"
    assert card(*words, "--", "rm", "r.json").status == 0
    assert card(*words, "--", "echo", "ran", receipt=tmp_path / "work/r.json").receipt["exit_status"] == 0


def test_a_receipt_into_a_pipe_without_a_reader_is_refused(tmp_path: Path) -> None:
    """Opening it once waited for a reader for ever."""
    os.mkfifo(tmp_path / "pipe")
    done = card("--net=none", f"--json={tmp_path}/pipe", "--", "true")
    assert (done.status, done.reasons) == (125, ["receipt-unwritable"])


CLOSED = {"stdin": "<&-", "stdout": ">&-", "stderr": "2>&-", "all": "<&- >&- 2>&-", "full": "2>/dev/full"}


@pytest.mark.parametrize("how", CLOSED)
def test_closed_standard_descriptors(tmp_path: Path, how: str) -> None:
    """Whatever the caller left closed or full, the worker runs and its status is returned."""
    script = f"card-run --net none --write {tmp_path} -- sh -c 'echo ran > it; echo out; exit 7' {CLOSED[how]}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, (tmp_path / "it").read_text()) == (7, "ran\n")
    assert "Traceback" not in done.stderr
    assert done.stdout == ("" if how in {"stdout", "all"} else "out\n")


def test_a_umask_that_takes_everything(tmp_path: Path) -> None:
    """The caller's umask does not lock card-run out of what it makes itself."""
    script = "umask 0777; exec card-run -q --net none -- echo ran"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "ran\n")


LDISC = """
import fcntl, pty, struct
_, terminal = pty.openpty()
try:
    fcntl.ioctl(terminal, 0x5423, struct.pack("i", 0))
    print("set")
except OSError as error:
    print(error.errno)
"""


def test_no_line_discipline_is_chosen() -> None:
    """TIOCSETD reaches kernel modules by number; setting the ordinary one is denied too, and is not in a container."""
    assert card("-q", "--net=none", "--", "python3", "-c", LDISC).out == "1\n"
    assert plain("python3", "-c", LDISC, network="none").out == "set\n"


def _started(tmp_path: Path, script: str) -> "subprocess.Popen[bytes]":
    """Start a card and return once its worker runs."""
    words = ["card-run", "-q", "--run=watched", f"--write={tmp_path}", "--", "sh", "-c", f"touch running; {script}"]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)
    _until((tmp_path / "running").exists)
    return process


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)  # of another process, which gives no sign


@pytest.mark.parametrize("whom", ["alone", "group"])
def test_a_killed_launcher_ends_its_card(tmp_path: Path, whom: str) -> None:
    """SIGKILL of card-run, or of all its process group, ends a worker that ignores every signal; nothing is left."""
    before = remains()
    process = _started(tmp_path, "trap '' TERM HUP INT; sleep 60")
    if whom == "group":
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    assert process.wait(30) == -signal.SIGKILL
    _until(lambda: remains() == before)


def test_a_killed_conmon_leaves_no_container(tmp_path: Path) -> None:
    """Podman's monitor killed: the worker ends, and the container that podman could not remove is removed."""
    process = _started(tmp_path, "sleep 60")
    conmon = [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit() and _is_conmon(entry)]
    for pid in conmon:
        os.kill(int(pid), signal.SIGKILL)
    assert conmon
    assert process.wait(60) != 0


def _is_conmon(entry: Path) -> bool:
    try:
        return (entry / "comm").read_text().strip() == "conmon"
    except OSError:
        return False


EVIL = """
mkdir -p e/objects e/refs && echo "ref: refs/heads/main" > e/HEAD
printf '[core]\\n\\tbare = false\\n\\tfsmonitor = "touch %s; false"\\n' "$1" > e/config
echo ../e > .git/commondir
"""


def test_a_planted_commondir_is_taken_away(tree: Path) -> None:
    """A worker that sends git to a config of its own has code run on the bench by `git status`; not after card-run."""
    run_by_git = tree.parent / "run-by-git"
    words = ("--net=none", f"--write={tree}", "--", "sh", "-c")
    done = card("-q", *words, EVIL, "sh", str(run_by_git))
    assert done.status == 0, done.err
    assert f"NOTE {tree}/.git/commondir was made by the worker" in done.err
    git("status", cwd=tree)
    assert not run_by_git.exists()
    # The control: the same, left there by a card that was told to leave git alone.
    assert card("-q", words[0], words[1], "--git-writable", *words[2:], EVIL, "sh", str(run_by_git)).status == 0
    subprocess.run(["git", "status"], cwd=tree, capture_output=True, check=False)
    assert run_by_git.exists()


@pytest.mark.parametrize("option", ["-q", "--git-writable"])
@pytest.mark.parametrize("killed", ["card-run", "all"])
def test_a_planted_commondir_is_taken_away_after_a_kill(tree: Path, killed: str, option: str) -> None:
    """Who ends or undoes a card in the place of its card-run looks too; told to leave git alone, the control, not."""
    run_by_git = tree.parent / "run-by-git"
    worker = ["sh", "-c", f"{EVIL}\ntouch planted; sleep 60", "sh", str(run_by_git)]
    live = begin("killed", "--net=none", f"--write={tree}", option, worker=worker)
    _until((tree / "planted").exists)
    live.kill_all(*(("launcher",) if killed == "card-run" else ("launcher", "leash", "podman", "conmon")))
    live.end()
    told = run(["card", "gc"]).err if killed == "all" else ""
    _until(lambda: not live.path.exists())
    assert (tree / ".git/commondir").exists() == (option == "--git-writable")
    subprocess.run(["git", "status"], cwd=tree, capture_output=True, check=False)
    assert run_by_git.exists() == (option == "--git-writable")
    line = f"{tree}/.git/commondir was made by the worker, to send git to its own config and hooks: removed"
    found = runs.find("killed")
    assert isinstance(found, runs.Ended)
    assert (found.receipt() or {})["notes"] == ([line] if option == "-q" else [])
    assert (f"NOTE {line}" in told) == (killed == "all" and option == "-q")


def test_what_a_worker_changed_in_a_git_directory_is_told(tree: Path) -> None:
    """A rebase that git goes on with, and a git directory that is none any more, are read before git is used there."""
    script = "mkdir -p .git/rebase-merge; echo exec evil >> .git/rebase-merge/git-rebase-todo"
    words = ("-q", "--net=none", f"--write={tree}", "--", "sh", "-c")
    told = f"NOTE {tree}/.git is in a rebase that the worker changed"
    assert told in card(*words, script).err
    assert told in card(*words, script).err
    assert card(*words, "true").err == ""
    assert f"NOTE {tree}/.git is no git directory any more" in card(*words, "rm .git/HEAD").err


def test_a_config_replaced_meanwhile_is_told(tree: Path) -> None:
    """Git on the bench replaces the config by rename, and the mount on the old one goes: the person is told."""
    script = "touch begun; until [ -e go ]; do sleep .05; done; echo '# evil' >> .git/config && echo written"
    words = ["card-run", "-q", "--net=none", f"--write={tree}", "--", "sh", "-c", script]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        _until((tree / "begun").exists)
        git("config", "a.b", "c", cwd=tree)
        (tree / "go").touch()
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, b"written\n")
    assert f"NOTE {tree}/.git/config was replaced on the bench".encode() in err
    (tree / "go").touch()
    assert "NOTE" not in card(*words[1:4], "--", "true").err
