"""Roots are resolved once and judged by identity; every refusal names its flag, all at once."""

import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from launcher.fs import policy
from launcher.fs.policy import Asked, Filesystem


def decide(forbidden: tuple[tuple[str, str, bool], ...] = (), **asked: Any) -> tuple[Filesystem, list[str]]:
    """Return what is decided, and the refusals as `reason: text`."""
    found, refusals = policy.decide(Asked(**asked), forbidden=forbidden)
    return found, [f"{refusal.reason}: {refusal.text}" for refusal in refusals]


def test_roots_are_resolved(tmp_path: Path) -> None:
    """A symlink is followed once; what is mounted is where it led, with its identity."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    found, refusals = decide(write=(f"{tmp_path}/link",))
    status = os.stat(tmp_path / "real")
    assert refusals == []
    assert found.roots[0].path == f"{tmp_path}/real"
    assert (found.roots[0].device, found.roots[0].inode) == (status.st_dev, status.st_ino)
    assert found.cwd == f"{tmp_path}/real"


@pytest.mark.parametrize("name", ["a b", 'q"uote', "c:olon", "com,ma", "ünïcode", "-dash", "=eq"])
def test_odd_names_are_fine(tmp_path: Path, name: str) -> None:
    """Spaces, quotes, colons, commas and unicode are ordinary."""
    (tmp_path / name).mkdir()
    found, refusals = decide(write=(f"{tmp_path}/{name}",))
    assert (found.roots[0].path, refusals) == (f"{tmp_path}/{name}", [])


def test_every_refusal_at_once(tmp_path: Path) -> None:
    """Six bad flags are six refusals, each naming its flag."""
    (tmp_path / "file").touch()
    _, refusals = decide(
        read=("relative", f"{tmp_path}/none", "/a\nb"),
        noexec=("/proc/self",),
        write=(f"{tmp_path}/file", "/"),
    )
    assert [refusal.split(":")[0] for refusal in refusals] == [
        "relative-path",
        "path-missing",
        "bad-path",
        "path-reserved",
        "path-kind",
        "path-reserved",
    ]
    assert [refusal.split(": ")[1].split(" ")[0] for refusal in refusals] == [
        "--read",
        "--read",
        "--read",
        "--read-noexec",
        "--write",
        "--write",
    ]


def test_not_utf8(tmp_path: Path) -> None:
    """A path that is not UTF-8 is refused, also when a link leads to one."""
    odd = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(odd)
    os.symlink(odd, tmp_path / "link")
    _, refusals = decide(read=(os.fsdecode(odd), f"{tmp_path}/link"))
    assert [refusal.split(":")[0] for refusal in refusals] == ["bad-path", "bad-path"]


def test_too_wide_is_a_question_of_identity(tmp_path: Path) -> None:
    """HOME, and what holds it, may not be written; a sibling with HOME's name as a prefix may."""
    home = tmp_path / "home"
    (home / "work").mkdir(parents=True)
    (tmp_path / "home2").mkdir()
    forbidden = ((str(home), "your HOME", False),)
    assert decide(write=(str(home),), forbidden=forbidden)[1][0].startswith("path-too-wide: --write")
    assert decide(write=(str(tmp_path),), forbidden=forbidden)[1][0].startswith("path-too-wide: --write")
    assert decide(write=(str(home / "work"),), forbidden=forbidden)[1] == []
    assert decide(write=(str(tmp_path / "home2"),), forbidden=forbidden)[1] == []
    assert decide(read=(str(home),), forbidden=forbidden)[1] == []


def test_listening_socket(tmp_path: Path) -> None:
    """A root above a socket that accepts connections is refused; beside it, or with a plain file there, it is not."""
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "c").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{tmp_path}/a/b/agent.sock")
        assert decide(read=(f"{tmp_path}/a",))[1] == []
        server.listen()
        _, refusals = decide(read=(f"{tmp_path}/a",), write=(f"{tmp_path}/c",))
    assert len(refusals) == 1
    assert refusals[0].startswith("path-has-socket: --read")
    assert "agent.sock" in refusals[0]
    assert decide(read=(f"{tmp_path}/a",))[1] == []


def test_a_socket_that_need_not_listen(tmp_path: Path) -> None:
    """A datagram socket takes what is sent to it, so a root above one is refused; an unbound stream is no reason."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(f"{tmp_path}/log")
        assert decide(read=(str(tmp_path),))[1][0].startswith("path-has-socket: --read")
    assert decide(read=(str(tmp_path),))[1] == []


def test_a_socket_bound_by_a_relative_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel keeps the name as it was given; it is looked for where the processes are."""
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("here.sock")
        server.listen()
        assert decide(read=(str(tmp_path),))[1][0].startswith("path-has-socket: --read")
        assert decide(read=(f"{tmp_path}/other",))[1] == []


def test_below_what_is_podmans_or_ours(tmp_path: Path) -> None:
    """A write root inside podman's storage would change other containers; one inside HOME is the usual case."""
    (tmp_path / "home/storage/overlay").mkdir(parents=True)
    forbidden = ((f"{tmp_path}/home", "your HOME", False), (f"{tmp_path}/home/storage", "podman's storage", True))
    refusals = decide(write=(f"{tmp_path}/home/storage/overlay",), forbidden=forbidden)[1]
    assert [text.split(": ")[0] for text in refusals] == ["path-too-wide"]
    assert "lies in podman's storage" in refusals[0]
    assert decide(read=(f"{tmp_path}/home/storage/overlay",), forbidden=forbidden)[1] == []


@pytest.mark.parametrize("flag", ["read", "noexec", "write", "protect", "secret", "cwd"])
def test_a_path_that_is_not_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: str) -> None:
    """It is refused with the words to write instead, `~/` too, where no shell put the caller's HOME in its place."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/some body")
    name = {"noexec": "--read-noexec"}.get(flag, f"--{flag}")
    for text, meant in (("./a b", f"'{tmp_path}/a b'"), (".", f"{tmp_path}"), ("~/wt", "'/home/some body/wt'")):
        asked: dict[str, Any] = {flag: text if flag == "cwd" else (text,)}
        (refusal,) = policy.decide(policy.Asked(**asked), forbidden=())[1]
        assert (refusal.reason, refusal.hint) == ("relative-path", f"say {name} {meant}")


def test_contradiction(tmp_path: Path) -> None:
    """One path with two accesses is refused rather than widened; the same access twice is one root."""
    assert decide(read=(str(tmp_path),), write=(str(tmp_path),))[1][0].startswith("path-contradiction")
    found, refusals = decide(read=(str(tmp_path), str(tmp_path)))
    assert (len(found.roots), refusals) == (1, [])


def test_working_directory(tmp_path: Path) -> None:
    """`--cwd` lies inside a root, by identity; without it the first write root, or the card's HOME, is used."""
    (tmp_path / "work/sub").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    work = (f"{tmp_path}/work",)
    assert decide(write=work, cwd=f"{tmp_path}/work/sub")[0].cwd == f"{tmp_path}/work/sub"
    assert decide(write=work, cwd=f"{tmp_path}/other")[1][0].startswith("cwd-outside: --cwd")
    assert decide(write=work, cwd="sub")[1][0].startswith("relative-path: --cwd")
    assert decide()[0].cwd == policy.HOME


def git(*words: str, cwd: Path) -> None:
    """Run git, with no configuration but what the test gives it."""
    env = {"PATH": os.environ["PATH"], "HOME": str(cwd), "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ("-c", "user.name=t", "-c", "user.email=t@t.invalid", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *identity, *words], cwd=cwd, env=env, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout with a submodule and a linked worktree inside it."""
    other, tree = tmp_path / "other", tmp_path / "tree"
    for path in (other, tree):
        path.mkdir()
        git("init", "-q", cwd=path)
        (path / "file").write_text("x\n")
        git("add", "file", cwd=path)
        git("commit", "-qm", "begin", cwd=path)
    git("submodule", "add", "-q", str(other), "deep/sub", cwd=tree)
    git("commit", "-qm", "sub", cwd=tree)
    git("worktree", "add", "-q", str(tree / "linked"), cwd=tree)
    return tree


def test_git_is_closed(checkout: Path) -> None:
    """Hooks and config of a checkout, its submodules and worktrees are read-only; what holds them cannot be moved."""
    found, refusals = decide(write=(str(checkout),))
    closed = {path.removeprefix(f"{checkout}/") for path in found.closed}
    held = {path.removeprefix(f"{checkout}/") for path in found.held}
    assert refusals == []
    assert closed == {
        *(".git/hooks", ".git/config", ".git/modules/deep/sub/hooks", ".git/modules/deep/sub/config"),
        *("deep/sub/.git", "linked/.git", ".git/worktrees/linked/commondir"),
    }
    assert held == {
        *(".git", ".git/modules", ".git/modules/deep", ".git/modules/deep/sub", "deep", "deep/sub", "linked"),
        *(".git/worktrees", ".git/worktrees/linked"),
    }
    assert decide(write=(str(checkout),), git_writable=True)[0].closed == ()
    assert decide(read=(str(checkout),))[0].closed == ()


def test_a_plain_directory_is_not_littered(tmp_path: Path) -> None:
    """What is no checkout has nothing closed, and nothing is made in it."""
    (tmp_path / "work").mkdir()
    found, _ = decide(write=(f"{tmp_path}/work",))
    assert (found.held, found.closed, os.listdir(tmp_path / "work")) == ((), (), [])


def test_linked_worktree_as_a_root(checkout: Path) -> None:
    """The `.git` file of a linked worktree says where the git directory is: it is read-only as a whole."""
    assert decide(write=(f"{checkout}/linked",))[0].closed == (f"{checkout}/linked/.git",)


def test_protect(tmp_path: Path) -> None:
    """A protected path is read-only and every directory above it, up to the root, is held in place."""
    (tmp_path / "work/a/b").mkdir(parents=True)
    (tmp_path / "work/a/b/keep").touch()
    found, refusals = decide(write=(f"{tmp_path}/work",), protect=(f"{tmp_path}/work/a/b/keep",))
    assert refusals == []
    assert found.closed == (f"{tmp_path}/work/a/b/keep",)
    assert found.held == (f"{tmp_path}/work/a", f"{tmp_path}/work/a/b")
    (tmp_path / "work2").mkdir()
    outside, missing = f"{tmp_path}/work2", f"{tmp_path}/work/none"
    _, refusals = decide(write=(f"{tmp_path}/work",), protect=(outside, missing, "relative"))
    assert [refusal.split(":")[0] for refusal in refusals] == ["protect-outside", "path-missing", "relative-path"]


def test_secret(tmp_path: Path) -> None:
    """A secret inside a root is refused, also through a link on either side; beside it, it is not."""
    (tmp_path / "work").mkdir()
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys/id").touch()
    (tmp_path / "work/link").symlink_to(tmp_path / "keys/id")
    (tmp_path / "alias").symlink_to(tmp_path / "keys")
    work = (f"{tmp_path}/work",)
    assert decide(write=work, secret=(f"{tmp_path}/keys/id",))[1] == []
    assert decide(write=work, secret=(f"{tmp_path}/work/link",))[1][0].startswith("secret-exposed")
    assert decide(read=(f"{tmp_path}/alias",), secret=(f"{tmp_path}/keys/id",))[1][0].startswith("secret-exposed")
    refusals = decide(write=work, secret=(f"{tmp_path}/none", "relative"))[1]
    assert [refusal.split(":")[0] for refusal in refusals] == ["path-missing", "relative-path"]


@pytest.mark.parametrize("name", ["modules", "worktrees", "hooks", "config", "config.worktree", "commondir"])
def test_a_link_in_a_git_directory_is_refused(checkout: Path, name: str) -> None:
    """A link that an earlier worker left would be followed out of the root by a mount; nothing of it is."""
    path = checkout / ".git" / name
    if path.exists():
        path.rename(checkout / f"moved-{name}")
    assert not [text for text in decide(write=(str(checkout),))[1] if "symbolic link" in text]
    (path.rmdir if path.is_dir() else path.unlink)() if path.exists() else None
    path.symlink_to("/home")
    found, refusals = decide(write=(str(checkout),))
    assert [text for text in refusals if text.startswith(f"git-unprotectable: {path} is a symbolic link")]
    assert not [place for place in (*found.held, *found.closed) if place.startswith(str(path))]


def test_a_linked_git_directory_is_refused(checkout: Path) -> None:
    """A `.git` that is a link could be replaced by the worker's own; with --git-writable that is as asked."""
    (checkout / ".git").rename(checkout.parent / "elsewhere")
    (checkout / ".git").symlink_to("../elsewhere")
    assert decide(write=(str(checkout),))[1][0].startswith("git-unprotectable: ")
    assert decide(write=(str(checkout),), git_writable=True)[1] == []


def test_a_redirected_git_directory_is_refused(checkout: Path) -> None:
    """`commondir` in a main git directory sends git to other hooks and another config (gitrepository-layout(5))."""
    (checkout / ".git/commondir").write_text("../evil\n")
    assert decide(write=(str(checkout),))[1][0].startswith(f"git-unprotectable: {checkout}/.git/commondir sends git")


def test_a_pipe_in_a_git_directory_does_not_hang(checkout: Path) -> None:
    """Only regular files are read: an earlier worker may have left a pipe where a config is expected."""
    planted = checkout / ".git/modules/planted"
    planted.mkdir()
    (planted / "HEAD").touch()
    os.mkfifo(planted / "config")
    os.mkfifo(planted / "gitdir")
    assert f"{planted}/config" in decide(write=(str(checkout),))[0].closed


def test_a_bare_repository_is_closed(tmp_path: Path) -> None:
    """A write root that is a git directory itself has its hooks and config read-only too."""
    git("init", "-q", "--bare", str(tmp_path / "bare"), cwd=tmp_path)
    found, refusals = decide(write=(f"{tmp_path}/bare",))
    assert (found.closed, refusals) == ((f"{tmp_path}/bare/config", f"{tmp_path}/bare/hooks"), [])


def test_missing_hooks_are_made(tmp_path: Path) -> None:
    """A checkout without hooks gets an empty directory, else the worker could make it; only looking makes nothing."""
    git("init", "-q", "--template=", "tree", cwd=tmp_path)
    root = tmp_path / "tree"
    decide(write=(str(root),), look_only=True)
    assert not (root / ".git/hooks").exists()
    found, _ = decide(write=(str(root),))
    assert f"{root}/.git/hooks" in found.closed
    assert os.listdir(root / ".git/hooks") == []


def test_hooks_and_config_elsewhere_in_the_tree_are_closed(checkout: Path) -> None:
    """What `core.hooksPath` and `include.path` name inside the root is read-only, and must exist."""
    (checkout / "my hooks").mkdir()
    (checkout / "included").touch()
    git("config", "core.hooksPath", "my hooks", cwd=checkout)
    git("config", "include.path", "../included", cwd=checkout)
    git("config", "includeIf.gitdir:/x/.path", "/etc/gitconfig", cwd=checkout)
    found, refusals = decide(write=(str(checkout),))
    assert {f"{checkout}/my hooks", f"{checkout}/included"} <= set(found.closed)
    assert refusals == []
    (checkout / "included").unlink()
    assert decide(write=(str(checkout),))[1][0].startswith(f"git-unprotectable: {checkout}/included is named")


def test_too_many_git_directories_are_refused(checkout: Path) -> None:
    """A worker can make as many as it likes, and each is mounts: the next run says so instead of drowning."""
    for number in range(201):
        (checkout / f".git/modules/m{number}").mkdir()
        (checkout / f".git/modules/m{number}/HEAD").touch()
    found, refusals = decide(write=(str(checkout),))
    assert refusals[0].startswith(f"git-unprotectable: {checkout} holds more than")
    assert found.closed == ()


def test_what_is_held_and_closed_is_judged_by_identity(checkout: Path) -> None:
    """Stage 2 gets device and inode of every path that is mounted inside a root, as of when it was judged."""
    found, _ = decide(write=(str(checkout),))
    assert {path for _, _, path in found.judged} == {*found.held, *found.closed}
    assert all((os.lstat(path).st_dev, os.lstat(path).st_ino) == (dev, ino) for dev, ino, path in found.judged)


def test_protecting_through_a_link_is_refused(tmp_path: Path) -> None:
    """A link inside a write root is the worker's to replace, so its name cannot be protected; above the root it can."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work/real").touch()
    (tmp_path / "work/link").symlink_to("real")
    (tmp_path / "other").symlink_to("work")
    work = (f"{tmp_path}/work",)
    assert decide(write=work, protect=(f"{tmp_path}/work/link",))[1][0].startswith("path-linked: --protect")
    assert decide(write=work, protect=(f"{tmp_path}/other/real",))[1] == []


def test_a_read_root_inside_a_write_root_is_held(tmp_path: Path) -> None:
    """The directories above it are mount points: moving them away would put the worker's own in its place."""
    (tmp_path / "work/a/b/ro").mkdir(parents=True)
    found, _ = decide(write=(f"{tmp_path}/work",), read=(f"{tmp_path}/work/a/b/ro",))
    assert found.held == (f"{tmp_path}/work/a", f"{tmp_path}/work/a/b")


def test_a_git_directory_that_lacks_its_head_is_closed(tmp_path: Path) -> None:
    """The worker could add what is missing for git to take it."""
    (tmp_path / "tree/.git/hooks").mkdir(parents=True)
    found, refusals = decide(write=(f"{tmp_path}/tree",))
    assert (found.closed, refusals) == ((f"{tmp_path}/tree/.git/config", f"{tmp_path}/tree/.git/hooks"), [])
