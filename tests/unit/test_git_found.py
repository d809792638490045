"""What of git in a write root is found and closed, wherever git itself would look for hooks and config."""

import os
import subprocess
from pathlib import Path

import pytest

from launcher.fs import policy
from launcher.fs.git import config, files
from tests.unit.test_filesystem_policy import git


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a HOME of the test's own: what a user configures counts in every repository."""
    path = tmp_path / "home"
    path.mkdir()
    monkeypatch.setenv("HOME", str(path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return path


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Return a repository with a commit, to be somebody's submodule."""
    return repository(tmp_path / "other")


def repository(path: Path, *options: str) -> Path:
    """Make a repository with one commit."""
    path.mkdir(exist_ok=True)
    git("init", "-q", "-b", "main", *options, cwd=path)
    git("commit", "-q", "--allow-empty", "-m", "begin", cwd=path)
    return path


def decided(*write: Path, make: bool = True) -> tuple[set[str], list[str]]:
    """Return what is closed in write roots, as paths from the first of them on, and the refusals."""
    asked = policy.Asked(write=tuple(map(str, write)), look_only=not make)
    found, refusals = policy.decide(asked, forbidden=())
    return {os.path.relpath(path, write[0]) for path in found.closed}, [f"{one.reason}: {one.text}" for one in refusals]


def closed(*write: Path) -> set[str]:
    """Return what is closed in write roots for which there is no refusal."""
    paths, refusals = decided(*write)
    assert refusals == []
    return paths


def refused(*write: Path) -> str:
    """Return the one refusal that write roots earn."""
    (refusal,) = decided(*write)[1]
    assert refusal.startswith("git-unprotectable: ")
    return refusal


@pytest.mark.parametrize("name", ["hooks", "info", "logs", "objects", "refs", "a/b/c/d/e/f/g/h/i/j", "x/refs"])
def test_a_submodule_of_any_name(tmp_path: Path, other: Path, name: str) -> None:
    """What git calls its own folders, and a name of many folders, are names of submodules as any other."""
    tree = repository(tmp_path / "tree")
    git("submodule", "--quiet", "add", "--name", name, str(other), "sub", cwd=tree)
    assert {f".git/modules/{name}/hooks", f".git/modules/{name}/config", "sub/.git"} <= closed(tree)


def test_a_submodule_behind_what_only_looks_like_one(tmp_path: Path, other: Path) -> None:
    """A worker can make the folder above a submodule's look like a git directory; the config says what is below it."""
    tree = repository(tmp_path / "tree")
    git("submodule", "--quiet", "add", "--name", "libs/one", str(other), "libs/one", cwd=tree)
    (tree / ".git/modules/libs/HEAD").touch()
    (tree / ".git/index").unlink()
    assert {".git/modules/libs/one/hooks", ".git/modules/libs/one/config", "libs/one/.git"} <= closed(tree)


def test_folders_too_deep_or_too_many_are_refused(tmp_path: Path) -> None:
    """What is not looked at to the end is never passed over."""
    tree = repository(tmp_path / "tree")
    modules = tree / ".git/modules"
    deep = modules.joinpath(*["d"] * 40)
    deep.mkdir(parents=True)
    assert "is too deep" in refused(tree)
    modules.rename(tmp_path / "moved")
    for number in range(2001):
        (modules / f"m{number}").mkdir(parents=True)
    assert "one of too many" in refused(tree)


@pytest.mark.parametrize("version", ["2", "4", "split"])
@pytest.mark.parametrize("kind", ["sha1", "sha256"])
def test_a_submodule_with_a_git_directory_of_its_own(tmp_path: Path, version: str, kind: str) -> None:
    """One that was cloned into its place is known by the index alone, and has its own submodules."""
    options = (f"--object-format={kind}",)
    tree = repository(tmp_path / "tree", *options)
    if version == "split":
        git("config", "core.splitIndex", "true", cwd=tree)
    else:
        git("config", "index.version", version, cwd=tree)
    for number in range(20):
        (tree / f"file {number}").touch()
    (tree / "libs").mkdir()
    repository(tree / "libs/sub", *options)
    repository(tree / "libs/sub/inner", *options)
    git("add", ".", cwd=tree / "libs/sub")
    git("commit", "-qm", "inner", cwd=tree / "libs/sub")
    git("add", ".", cwd=tree)
    wanted = {f"libs/sub/{top}.git/{name}" for top in ("", "inner/") for name in ("hooks", "config")}
    assert wanted <= closed(tree)
    # The control: a repository that is none of git's submodules is not looked for.
    for index in (tree / ".git").glob("*index*"):
        index.unlink()
    assert not wanted & closed(tree)


def test_an_index_that_is_none_says_nothing(tmp_path: Path) -> None:
    """Whatever an earlier worker wrote there, reading it ends, and what it names outside of the tree is left alone."""
    tree = repository(tmp_path / "tree")
    outside = repository(tmp_path / "outside")
    mode = (0o160000).to_bytes(4, "big")
    entry = bytes(24) + mode + bytes(32) + (10).to_bytes(2, "big") + b"../outside\0"
    for data in (b"DIRC", b"DIRC\0\0\0\4\xff\xff\xff\xff" + mode * 9, b"DIRC\0\0\0\2\0\0\0\1" + entry, mode * 1000):
        (tree / ".git/index").write_bytes(data)
        assert closed(tree) == {".git/hooks", ".git/config"}
    assert files.gitlinks(f"{tree}/.git/index") == []
    assert (outside / ".git").is_dir()
    with (tree / ".git/index").open("r+b") as file:
        file.truncate(1 << 30)
    assert "is larger than 256 MiB" in refused(tree)


def test_a_git_file_that_leads_to_a_place_in_the_root(tmp_path: Path, other: Path) -> None:
    """A bare repository beside its worktrees, and a separate git directory, are written as a `.git` would be."""
    project = tmp_path / "project"
    project.mkdir()
    git("clone", "-q", "--bare", str(other), str(project / ".bare"), cwd=tmp_path)
    (project / ".git").write_text("gitdir: ./.bare\n")
    git("worktree", "add", "-q", "main", cwd=project)
    assert {".git", "main/.git", ".bare/hooks", ".bare/config", ".bare/worktrees/main/commondir"} <= closed(project)
    assert {".git", "../.bare/hooks", "../.bare/config"} <= closed(project / "main", project)
    tree = repository(tmp_path / "tree", f"--separate-git-dir={tmp_path}/tree/.data")
    assert closed(tree) == {".git", ".data/hooks", ".data/config"}


def test_a_git_file_that_leads_astray_is_refused(tmp_path: Path) -> None:
    """A git directory behind a link, or one that is not there, would be the worker's to make."""
    tree = repository(tmp_path / "tree", f"--separate-git-dir={tmp_path}/tree/.data")
    (tree / ".data").rename(tree / "real")
    assert "is not there" in refused(tree)
    (tree / ".data").symlink_to("real")
    assert "through a symbolic link" in refused(tree)


def test_included_configs_are_followed(tmp_path: Path) -> None:
    """A config that a config includes counts as that one: it is closed, with the hooks and the configs it names."""
    tree = repository(tmp_path / "tree")
    git("config", "include.path", "../.gitconfig", cwd=tree)
    outside = tmp_path / "outside.conf"
    outside.write_text(f'[include]\n\tpath = "{tree}/.gitconfig.last"\n')
    (tree / ".gitconfig").write_text("[core]\n\thooksPath = .githooks\n[include]\n\tpath = .gitconfig.more\n")
    (tree / ".gitconfig.more").write_text(f"[include]\n\tpath = {outside}\n\tpath = .gitconfig\n")
    (tree / ".gitconfig.last").touch()
    (tree / ".githooks").mkdir()
    named = {".gitconfig", ".gitconfig.more", ".gitconfig.last", ".githooks"}
    assert closed(tree) == {".git/hooks", ".git/config", *named}
    for number in range(12):
        (tree / f"c{number}").write_text(f"[include]\n\tpath = c{number + 1}\n")
    (tree / "c12").touch()
    (tree / ".gitconfig.last").write_text("[include]\n\tpath = c0\n")
    assert "is included too deep" in refused(tree)


def test_the_worktrees_own_config_is_read(tmp_path: Path) -> None:
    """A `config.worktree` is read, and made where there could be one, in a linked worktree's git directory too."""
    tree = repository(tmp_path / "tree")
    (tree / ".hooks").mkdir()
    git("worktree", "add", "-q", "linked", cwd=tree)
    git("config", "extensions.worktreeConfig", "true", cwd=tree)
    git("config", "--worktree", "core.hooksPath", ".hooks", cwd=tree)
    found = closed(tree)
    assert {".git/config.worktree", ".hooks", ".git/worktrees/linked/config.worktree"} <= found
    assert "linked/.hooks" not in found


def test_a_root_in_a_checkout(tmp_path: Path, other: Path) -> None:
    """What the checkout around a write root runs may lie in the root: a folder of hooks, a submodule, a worktree."""
    tree = repository(tmp_path / "tree")
    (tree / "tools/githooks").mkdir(parents=True)
    assert closed(tree / "tools") == set()
    git("config", "core.hooksPath", "tools/githooks", cwd=tree)
    git("submodule", "--quiet", "add", str(other), "tools/sub", cwd=tree)
    git("worktree", "add", "-q", "tools/linked", cwd=tree)
    assert closed(tree / "tools") == {"githooks", "sub/.git", "linked/.git", "linked/tools/githooks"}


def test_hooks_of_a_linked_worktree(tmp_path: Path) -> None:
    """Its config is the main one's, outside of the root, and names hooks in each tree, which may have none yet."""
    tree = repository(tmp_path / "tree")
    git("config", "core.hooksPath", ".githooks", cwd=tree)
    git("worktree", "add", "-q", str(tmp_path / "linked"), cwd=tree)
    assert closed(tmp_path / "linked") == {".git", ".githooks"}
    assert os.listdir(tmp_path / "linked/.githooks") == []


def test_what_a_user_configures(tmp_path: Path, home: Path) -> None:
    """A user's own config counts in every repository, with hooks in its tree, and a part of it may lie in the root."""
    tree = repository(tmp_path / "tree")
    (home / "dotfiles").write_text(f'[core]\n\thooksPath = .githooks\n[includeIf "gitdir:/x/"]\n\tpath = {tree}/mine\n')
    (home / ".gitconfig").symlink_to("dotfiles")
    (tree / "mine").touch()
    assert closed(tree) == {".git/hooks", ".git/config", ".githooks", "mine"}


def test_husky(tmp_path: Path) -> None:
    """Husky's `.husky/_` runs what lies beside it."""
    tree = repository(tmp_path / "tree")
    (tree / ".husky/_").mkdir(parents=True)
    git("config", "core.hooksPath", ".husky/_", cwd=tree)
    assert closed(tree) == {".git/hooks", ".git/config", ".husky"}


def test_hooks_in_the_tree_itself_are_refused(tmp_path: Path) -> None:
    """With `core.hooksPath` = `.` every file in the root may be a hook."""
    tree = repository(tmp_path / "tree")
    git("config", "core.hooksPath", ".", cwd=tree)
    assert "is a write root itself" in refused(tree)


def test_looking_makes_nothing(tmp_path: Path) -> None:
    """`--plan` makes no folder of hooks, and does not refuse a run that would make it."""
    tree = repository(tmp_path / "tree", "--template=")
    git("config", "core.hooksPath", "none", cwd=tree)
    assert decided(tree, make=False) == ({".git/config"}, [])
    assert (os.path.lexists(tree / "none"), os.path.lexists(tree / ".git/hooks")) == (False, False)


@pytest.mark.parametrize("name", [b"\xff\xfe", b"x\x1b]0;pwn\x07"])
def test_a_name_that_no_mount_can_have(tmp_path: Path, name: bytes) -> None:
    """Podman was once asked for it all the same, and said that an image was at fault."""
    tree = repository(tmp_path / "tree")
    planted = os.fsencode(tree) + b"/.git/modules/" + name
    os.makedirs(planted)
    with open(planted + b"/HEAD", "wb"):
        pass
    refusals = decided(tree)[1]
    assert refusals
    assert all(one.startswith("git-unprotectable: ") and one.isprintable() for one in refusals)


def test_a_planted_commondir_anywhere(tmp_path: Path, other: Path) -> None:
    """A submodule's git directory is no linked worktree's either."""
    tree = repository(tmp_path / "tree")
    git("submodule", "--quiet", "add", str(other), "sub", cwd=tree)
    (tree / ".git/modules/sub/commondir").write_text("../../../e\n")
    assert f"{tree}/.git/modules/sub/commondir sends git" in refused(tree)


CONFIG = """\ufeff[core] hooksPath = one ; a comment
\thooksPath = "two # three" # four \\
[Include "x]\\"y"] path = a\\
b
# [core] hooksPath = no
[include.z]
\tPATH=a\\"b\\\\c\\td
\tpath
[submodule "a\\\\b"]\r
\tupdate = !x\x0by\r
[core]
"""


def test_configs_are_read_as_git_reads_them(tmp_path: Path) -> None:
    """Quotes, escapes, comments, lines that go on and both kinds of sections: git is asked the same."""
    (tmp_path / "config").write_bytes(CONFIG.encode())
    words = ["git", "config", "--null", "--list", "-f", str(tmp_path / "config")]
    said = subprocess.run(words, capture_output=True, check=True).stdout.decode()
    wanted = [tuple(one.partition("\n")[::2]) for one in said.split("\0")[:-1]]
    found = [
        (".".join(filter(None, (section, name, key))), value) for section, name, key, value in config.parse(CONFIG)
    ]
    assert found == wanted
