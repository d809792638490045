"""A linked worktree without its repository: git could only fail, so what it needs is told."""

import os
import subprocess
from pathlib import Path

import pytest

from launcher.fs import policy
from launcher.fs.git import worktree


def notes(*tops: Path, read: tuple[str, ...] = ()) -> list[str]:
    """Return what is told of these write roots, with more to read."""
    asked = policy.Asked(write=tuple(map(str, tops)), read=read, look_only=True)
    roots = policy.decide(asked, forbidden=())[0].roots
    return list(worktree.notes([str(top) for top in tops], roots))


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """Return a linked worktree beside its repository."""
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", "-C", str(tmp_path / "a main")]
    subprocess.run(["git", "init", "-q", str(tmp_path / "a main")], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", str(tmp_path / "wt")], check=True)
    return tmp_path / "wt"


def test_its_repository_is_told_unless_the_card_has_it(linked: Path) -> None:
    """The git directory by the flags to add; with it, or with what holds it, there is nothing to tell."""
    main = linked.parent / "a main"
    (note,) = notes(linked)
    assert note.endswith(f"git needs --read '{main}/.git', and --write '{main}/.git' to commit")
    assert notes(linked, read=(f"{main}/.git",)) == []
    assert notes(linked, main) == []


FORGED: dict[str, str] = {
    "no file of git's": "hello\n",
    "nothing there": "gitdir: /nowhere\n",
    "a name that is none": "gitdir: /a\0b\n",
    "not UTF-8": "gitdir: \udcff\n",
    "one of its own making": "gitdir: forged\n",
    "another's": "gitdir: {main}/.git/worktrees/wt\n",
    "no worktree at all": "gitdir: {main}/.git\n",
}


@pytest.mark.parametrize("how", FORGED)
def test_what_a_worker_wrote_is_not_told(linked: Path, how: str) -> None:
    """A `.git` that its repository does not know names nothing that anybody is asked to open."""
    other = linked.parent / "other"
    (other / "forged").mkdir(parents=True)
    (other / "forged/commondir").write_text(f"{linked.parent}/a main/.git\n")
    (other / "forged/gitdir").write_text(f"{other}/.git\n")
    said = FORGED[how].format(main=linked.parent / "a main")
    (other / ".git").write_bytes(said.encode(errors="surrogateescape"))
    assert notes(other) == []


def test_a_pipe_in_the_place_of_a_file_holds_up_nothing(linked: Path) -> None:
    """Nobody writes to it, and nobody waits."""
    own = linked.parent / "a main/.git/worktrees/wt"
    (own / "commondir").unlink()
    os.mkfifo(own / "commondir")
    assert notes(linked) == []
