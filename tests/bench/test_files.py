"""The filesystem wall from inside: nothing that was not named, whichever way; a plain container is the control."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bench.cards import BUSYBOX, IMAGE, card, is_old, run

TRY = r"""
import errno, json, os, sys

def attempt(kind, *words):
    if kind == "read":
        fd = os.open(words[0], os.O_RDONLY)
        os.read(fd, 1)
        os.close(fd)
    elif kind == "list":
        os.listdir(words[0])
    elif kind == "write":
        os.close(os.open(words[0], os.O_WRONLY))
    elif kind == "create":
        os.close(os.open(words[0], os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        os.unlink(words[0])
    elif kind == "link":
        os.link(*words)
    elif kind == "rename":
        os.rename(*words)
    elif kind == "chmod":
        os.chmod(words[0], 0o600)
    elif kind == "exec":
        pid = os.fork()
        if pid == 0:
            try:
                os.execv(words[0], list(words))
            except OSError as error:
                os._exit(error.errno)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status:
            raise OSError(status, "exec")

out = []
for words in json.loads(sys.argv[1]):
    try:
        attempt(*words)
        out.append("ok")
    except OSError as error:
        out.append(errno.errorcode.get(error.errno, str(error.errno)))
print(json.dumps(out))
"""
Tree = dict[str, Path]


def tried(attempts: list[list[str]], *options: str) -> list[str]:
    """Return what each attempt came to inside a card."""
    done = card("-q", *options, "--", "python3", "-c", TRY, json.dumps(attempts))
    assert done.status == 0, done.err
    found: list[str] = json.loads(done.out)
    return found


def tried_plain(attempts: list[list[str]], *mounts: str) -> list[str]:
    """Return what each attempt came to in a plain container with the same directories mounted writable."""
    words = ["podman", "run", "--rm", "--pull=never", "--userns=keep-id", "--network=none"]
    words += [f"--volume={mount}:{mount}" for mount in mounts]
    done = run([*words, IMAGE, "python3", "-c", TRY, json.dumps(attempts)])
    assert done.status == 0, done.err
    found: list[str] = json.loads(done.out)
    return found


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Return a writable, a readable and a noexec directory and one outside, each with a file and a program."""
    made = {name: tmp_path / name for name in ("work", "read", "noexec", "outside")}
    for path in made.values():
        path.mkdir()
        (path / "file").write_text("x")
        (path / "program").write_text("#!/bin/sh\nexit 0\n")
        (path / "program").chmod(0o755)
    (made["work"] / "out").symlink_to(made["outside"])
    (made["work"] / "out-file").symlink_to(made["outside"] / "file")
    return made


def options(tree: Tree) -> list[str]:
    """Return the flags that name the tree."""
    return ["--write", str(tree["work"]), "--read", str(tree["read"]), "--read-noexec", str(tree["noexec"])]


def test_what_is_named_works(tree: Tree) -> None:
    """Reading, listing, executing, creating and renaming work where they were named."""
    attempts = [
        *(["read", f"{tree[name]}/file"] for name in ("work", "read", "noexec")),
        *(["list", str(tree[name])] for name in ("work", "read", "noexec")),
        *(["exec", f"{tree[name]}/program"] for name in ("work", "read")),
        ["write", f"{tree['work']}/file"],
        ["create", f"{tree['work']}/new"],
        ["link", f"{tree['work']}/file", f"{tree['work']}/linked"],
        ["rename", f"{tree['work']}/linked", f"{tree['work']}/renamed"],
        ["create", "/tmp/new"],
        ["create", "/card/new"],
        ["create", "/dev/shm/new"],
        ["list", "/"],
        ["read", "/etc/passwd"],
    ]
    assert tried(attempts, *options(tree)) == ["ok"] * len(attempts)


def denied(tree: Tree) -> dict[str, tuple[list[str], set[str]]]:
    """Return each attempt that must fail, and the errno it may fail with."""
    work, read, noexec, outside = (str(tree[name]) for name in ("work", "read", "noexec", "outside"))
    return {
        "a file outside": (["read", f"{outside}/file"], {"ENOENT"}),
        "a file outside through dots": (["read", f"{work}/../outside/file"], {"ENOENT"}),
        "a link in the workspace that points out": (["read", f"{work}/out-file"], {"ENOENT"}),
        "a directory behind a link": (["list", f"{work}/out"], {"ENOENT"}),
        "through another process's root": (["read", f"/proc/1/root{outside}/file"], {"EACCES"}),
        "another process's directory": (["list", "/proc/1/cwd/"], {"EACCES"}),
        "another process's environment": (["read", "/proc/1/environ"], {"EACCES"}),
        "another process's descriptors": (["read", "/proc/1/fd/0"], {"EACCES"}),
        "a new file in what may be read": (["create", f"{read}/new"], {"EROFS"}),
        "a file in what may be read": (["write", f"{read}/file"], {"EROFS"}),
        "a mode in what may be read": (["chmod", f"{read}/file"], {"EROFS"}),
        "a hard link out of what may be read": (["link", f"{read}/file", f"{work}/stolen"], {"EXDEV"}),
        "a rename into what may be read": (["rename", f"{work}/file", f"{read}/planted"], {"EXDEV", "EROFS"}),
        "a program under noexec": (["exec", f"{noexec}/program"], {"EACCES"}),
        "a program under noexec through ld.so": (
            ["exec", "/lib64/ld-linux-x86-64.so.2", f"{noexec}/true"],
            {"127", "EKEYEXPIRED"},
        ),
        "the image": (["create", "/usr/bin/new"], {"EROFS"}),
        "the image's passwd": (["write", "/etc/passwd"], {"EROFS", "EACCES"}),
        "a setting of the kernel": (["write", "/proc/sys/kernel/core_pattern"], {"EROFS", "EACCES"}),
        "the card's own proof": (["read", "/run/card/proof"], {"EACCES"}),
        "the card's own configuration": (["read", "/run/card/stage2.conf"], {"EACCES"}),
        "the runtime": (["read", "/run/card-runtime/filter.bpf"], {"EACCES"}),
        "the bench's listening sockets' directory": (["list", "/run/user"], {"ENOENT"}),
    }


def test_what_is_not_named_is_denied(tree: Tree) -> None:
    """Each attempt fails with its own errno."""
    subprocess.run(["cp", "/usr/bin/true", str(tree["noexec"] / "true")], check=True)
    attempts = denied(tree)
    found = tried([words for words, _ in attempts.values()], *options(tree))
    wrong = {name: got for (name, (_, allowed)), got in zip(attempts.items(), found, strict=True) if got not in allowed}
    assert wrong == {}


def test_control_without_the_wall(tree: Tree) -> None:
    """In a plain container with the same directories the same attempts succeed, where they can at all."""
    subprocess.run(["cp", "/usr/bin/true", str(tree["noexec"] / "true")], check=True)
    skipped = {
        *("another process's directory", "a hard link out of what may be read", "a rename into what may be read"),
        *("a setting of the kernel", "the card's own proof", "the card's own configuration", "the runtime"),
        *("the bench's listening sockets' directory", "the image", "the image's passwd"),
    }
    attempts = {name: words for name, (words, _) in denied(tree).items() if name not in skipped}
    found = tried_plain(list(attempts.values()), *(str(tree[name]) for name in ("work", "read", "noexec", "outside")))
    assert {name: got for name, got in zip(attempts, found, strict=True) if got != "ok"} == {}


def test_moving_between_directories_of_a_writable_tree(tree: Tree) -> None:
    """`mv` and `ln` across directories are a rename and a link, not a copy: REFER is granted."""
    (tree["work"] / "a").mkdir()
    (tree["work"] / "b").mkdir()
    work = tree["work"]
    (work / "a/x").touch()
    attempts = [["rename", f"{work}/a/x", f"{work}/b/x"], ["link", f"{work}/b/x", f"{work}/a/y"]]
    assert tried(attempts, *options(tree)) == ["ok", "ok"]


def test_descriptors_of_the_caller_do_not_cross(tree: Tree) -> None:
    """Descriptors 3 and 2048, opened by the caller on a secret, are not in the worker."""
    secret = tree["outside"] / "file"
    script = 'exec 3<"$1" 2048<"$1"; exec card-run -q -- ls -l /proc/self/fd'
    done = run(["bash", "-c", script, "bash", str(secret)], stdin=subprocess.DEVNULL)
    numbers = [line.split(" -> ")[0].split()[-1] for line in done.out.splitlines()[1:]]
    assert set(numbers) == {"0", "1", "2", "3"}  # 3 is ls's own, on /proc/self/fd
    assert str(tree["outside"]) not in done.out


GIT = "git -c user.name=w -c user.email=w@w.invalid"


@pytest.fixture
def checkout(workspace: Path) -> Path:
    """Return a checkout with one commit."""
    script = f"git init -q . && echo x > file && git add file && {GIT} commit -qm begin"
    subprocess.run(["sh", "-c", script], cwd=workspace, check=True)
    return workspace


def test_git_works_in_a_linked_worktree_as_the_note_says(checkout: Path) -> None:
    """Without its repository git can do nothing there; with what the note names it can read, then commit."""
    tree, repository = checkout.parent / "linked", f"{checkout}/.git"
    subprocess.run(["git", "worktree", "add", "-q", str(tree)], cwd=checkout, check=True)
    words = ["card-run", "--net=none", f"--write={tree}"]
    alone = run([*words, "--", "git", "status"])
    assert alone.status == 128
    assert f"git needs --read {repository}, and --write {repository} to commit" in alone.err
    reading = run([*words, f"--read={repository}", "--", "git", "status"])
    assert (reading.status, "git needs" in reading.err) == (0, False)
    commit = f"{GIT} commit -q --allow-empty -m more"
    assert run([*words, f"--write={repository}", "--", "sh", "-c", commit]).status == 0


def test_git_works(checkout: Path) -> None:
    """Commit, branch, rebase, worktree, gc and a clone work in a protected checkout."""
    script = (
        f"set -e; echo y > other; git add other; {GIT} commit -qm more; git checkout -qb side HEAD~1; echo z > third;"
        f" git add third; {GIT} commit -qm side; {GIT} rebase -q master; git worktree add -q ../tmp-tree 2>/dev/null ||"
        " git worktree add -q tree; git gc -q; git clone -q . copy; git -C copy log --oneline | wc -l"
    )
    subprocess.run(["git", "branch", "-qM", "master"], cwd=checkout, check=True)
    done = card("-q", "--write", str(checkout), "--", "sh", "-c", script)
    assert (done.status, done.out.strip()) == (0, "3"), done.err


PLANT: dict[str, Callable[[Path], list[list[str]]]] = {
    "write": lambda tree: [["write", f"{tree}/.git/config"], ["create", f"{tree}/.git/hooks/pre-commit"]],
    "rename away": lambda tree: [
        ["rename", f"{tree}/.git/hooks", f"{tree}/.git/hooks2"],
        ["rename", f"{tree}/.git/config", f"{tree}/.git/config2"],
        ["rename", f"{tree}/.git", f"{tree}/.git2"],
    ],
    "replace": lambda tree: [["rename", f"{tree}/file", f"{tree}/.git/config"]],
}


@pytest.mark.parametrize("way", PLANT)
def test_what_runs_on_the_bench_later_cannot_be_planted(way: str, checkout: Path) -> None:
    """Hooks and config cannot be written, renamed away or replaced, nor can the `.git` that holds them."""
    attempts = PLANT[way](checkout)
    found = tried(attempts, "--write", str(checkout))
    assert set(found) <= {"EROFS", "EBUSY", "EXDEV"}
    assert tried(attempts, "--write", str(checkout), "--git-writable") == ["ok"] * len(attempts)


def test_a_directory_that_is_no_checkout_is_not_littered(workspace: Path) -> None:
    """Nothing is made in a workspace that has no git directory."""
    assert card("-q", "--write", str(workspace), "--", "true").status == 0
    assert os.listdir(workspace) == []


HOSTILE = {
    "ctypes.py": "raise SystemExit('hostile')",
    "json.py": "raise SystemExit('hostile')",
    "os.py": "raise SystemExit('hostile')",
    "struct.py": "raise SystemExit('hostile')",
    "sitecustomize.py": "raise SystemExit('hostile')",
    "hostile.pth": "import os; os._exit(66)",
    "python3": "#!/bin/sh\necho hostile; exit 66\n",
}


def test_stage_2_runs_nothing_of_the_workspace(workspace: Path) -> None:
    """Modules, .pth files, start-up variables and a python3 first on PATH are not run before the walls stand."""
    for name, text in HOSTILE.items():
        (workspace / name).write_text(text)
    (workspace / "python3").chmod(0o755)
    words = ["--env", f"PYTHONPATH={workspace}", "--env", f"PYTHONSTARTUP={workspace}/os.py"]
    words += ["--env", f"PATH={workspace}:/usr/bin:/bin", "--env", f"PYTHONHOME={workspace}"]
    done = card(*words, "--write", str(workspace), "--", "sh", "-c", "echo fine")
    assert (done.status, done.out) == (0, "fine\n")
    assert "level=full" in done.err


def test_host_environment_is_scrubbed() -> None:
    """With --env-host agents, loaders, interpreters and proxies with a password stay behind, and one NOTE says so."""
    environment = {
        **os.environ,
        "SSH_AUTH_SOCK": "/tmp/a",
        "LD_PRELOAD": "",
        "PYTHONPATH": "/x",
        "HTTPS_PROXY": "http://u:p@h:1",
        "KEPT": "1",
    }
    done = card("--env-host", "--", "env", env=environment)
    names = {line.partition("=")[0] for line in done.out.splitlines()}
    assert "KEPT" in names
    assert not names & {"SSH_AUTH_SOCK", "LD_PRELOAD", "PYTHONPATH", "HTTPS_PROXY"}
    assert "NOTE --env-host leaves out HTTPS_PROXY LD_PRELOAD" in done.err


@pytest.mark.parametrize(
    "name", ["a b", 'q"uote', "c:olon", "com,ma", "ünïcode", "-dash", "=eq", "per%cent", "$dollar"]
)
def test_odd_paths(name: str, tmp_path: Path) -> None:
    """Any printable path is mounted as it is."""
    path = tmp_path / name
    path.mkdir()
    done = card("-q", "--write", str(path), "--", "sh", "-c", "pwd; echo x > new", receipt=None)
    assert (done.status, done.out) == (0, f"{path}\n"), done.err
    assert (path / "new").read_text() == "x\n"


def test_busybox_image_has_the_same_wall(tree: Tree) -> None:
    """Without Python in the image the same denials hold."""
    script = (
        f"cat {tree['work']}/file; cat {tree['outside']}/file; echo x > {tree['read']}/file; {tree['noexec']}/program;"
        " cat /proc/1/environ; echo x > /bin/new; cat /run/card/proof"
    )
    done = card("-q", "--image", BUSYBOX, *options(tree), "--", "sh", "-c", script)
    assert done.out == "x"
    errors = [line.rpartition(": ")[2] for line in done.err.splitlines()]
    assert errors == [
        *("No such file or directory", "Read-only file system", "Permission denied"),
        *("Permission denied", "Read-only file system", "Permission denied"),
    ]


# Sets the two bits in every way that there is, and fills what was made with them: an empty file runs nothing.
SET_ID = """
import ctypes, os, sys
os.chdir(sys.argv[1])
os.umask(0)
libc = ctypes.CDLL(None, use_errno=True)
def named(name):
    open(name, "w").close()
    return name
def by_descriptor(name, mode):
    os.fchmod(os.open(named(name), os.O_RDONLY), mode)
def by_directory(name, mode):
    os.chmod(named(name), mode, dir_fd=os.open(".", os.O_RDONLY))
def newest(name, mode):
    if libc.syscall(452, -100, named(name).encode(), mode, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
def made(name, mode):
    os.write(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), b"x")
def unnamed(name, mode):
    fd = os.open(".", os.O_TMPFILE | os.O_WRONLY, mode)
    os.write(fd, b"x")
    # AT_FDCWD, and AT_SYMLINK_FOLLOW, which os.link does not pass
    if libc.linkat(-100, b"/proc/self/fd/%d" % fd, -100, name.encode(), 0x400):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
def node(name, mode):
    os.mknod(name, mode | 0o100000)
    os.truncate(name, 1)
ways = {"chmod": lambda name, mode: os.chmod(named(name), mode), "fchmod": by_descriptor, "fchmodat": by_directory}
for way, act in {**ways, "fchmodat2": newest, "open": made, "tmpfile": unnamed, "mknod": node}.items():
    for mode in (0o4755, 0o2755, 0o1755):
        try:
            act(f"{way}-{mode:o}", mode)
        except OSError as error:
            print(way, f"{mode:o}", error.strerror)
"""


def test_no_set_id_program_is_left(workspace: Path) -> None:
    """What a worker makes sets no user or group id for whoever runs it on the bench; other bits are as they were."""

    def left() -> dict[str, int]:
        found = {path.name: path.stat().st_mode & 0o7777 for path in workspace.iterdir()}
        for path in workspace.iterdir():
            path.unlink()
        return found

    words = ["podman", "run", "--rm", "--pull=never", "--userns=keep-id", f"--volume={workspace}:{workspace}", IMAGE]
    # The profile of Debian 12's podman does not know the newest of the calls, so that nobody has it.
    calls = ["chmod", "fchmod", "fchmodat", *([] if is_old() else ["fchmodat2"])]
    unknown = [f"fchmodat2 {mode} Function not implemented" for mode in ("4755", "2755", "1755") if is_old()]
    assert run([*words, "python3", "-c", SET_ID, str(workspace)]).out.splitlines() == unknown
    control = left()
    assert {control[f"{way}-4755"] for way in calls} == {0o4755}
    done = card(f"--write={workspace}", "--", "python3", "-c", SET_ID, str(workspace))
    after = left()
    every = ("chmod", "fchmod", "fchmodat", "fchmodat2")
    denied = [f"{call} {mode} Operation not permitted" for call in every for mode in ("4755", "2755")]
    assert done.out.splitlines() == [*denied, *unknown[2:]]
    assert {name for name, mode in after.items() if mode & 0o6000} == set()
    assert after.keys() == control.keys()
    assert {after[f"{call}-1755"] for call in calls} == {0o1755}
