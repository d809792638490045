"""What a worker may have left is looked for by what was written down before it started, as often as one likes."""

from pathlib import Path

import pytest

from launcher.fs import aftermath, policy
from launcher.fs.aftermath import Before
from tests.unit.test_filesystem_policy import checkout, git

__all__ = ["checkout"]


def before(*roots: Path, podman: tuple[str, ...] = ()) -> Before:
    """Return what is written down of write roots, as it is read again."""
    found, refusals = policy.decide(policy.Asked(write=tuple(map(str, roots))), forbidden=())
    assert refusals == []
    known = aftermath.before(found, before_podman=podman)
    assert known is not None
    assert aftermath.parse(known.to_json()) == known
    return known


def test_nothing_is_found_where_nothing_was_done(checkout: Path) -> None:
    """What git itself changes at a commit is none of it."""
    known = before(checkout)
    git("commit", "-q", "--allow-empty", "-m", "more", cwd=checkout)
    assert aftermath.look(known) == []


def test_nothing_is_written_down_without_need(tmp_path: Path) -> None:
    """A folder that is no checkout has nothing to look for."""
    found, _ = policy.decide(policy.Asked(write=(str(tmp_path),)), forbidden=())
    assert aftermath.before(found, before_podman=()) is None


@pytest.mark.parametrize("where", [".git", ".git/modules/deep/sub"])
def test_a_planted_commondir_is_removed_once(checkout: Path, where: str) -> None:
    """In a submodule's git directory too; the second look finds nothing, and a linked worktree keeps its own."""
    known = before(checkout)
    (checkout / where / "commondir").write_text("../e\n")
    (line,) = aftermath.look(known)
    assert line.startswith(f"{checkout}/{where}/commondir was made by the worker, ")
    assert line.endswith(": removed")
    assert aftermath.look(known) == []
    assert (checkout / ".git/worktrees/linked/commondir").exists()


def test_nothing_is_removed_behind_a_link(checkout: Path) -> None:
    """Whoever put a link in the git directory's place has no say in what is removed."""
    known = before(checkout)
    (checkout / ".git").rename(checkout / "moved")
    other = checkout.parent / "other/.git"
    (other / "commondir").touch()
    (checkout / ".git").symlink_to(other)
    assert any("remove it before you use git there" in line for line in aftermath.look(known))
    assert (other / "commondir").exists()


def test_what_else_is_told(checkout: Path) -> None:
    """A rebase that was changed, a git directory that is none any more, and a worktree that would not be found."""
    todo = checkout / ".git/rebase-merge/git-rebase-todo"
    todo.parent.mkdir()
    todo.touch()
    known = before(checkout)
    assert aftermath.look(known) == []
    todo.write_text("exec evil\n")
    (checkout / ".git/worktrees/linked/gitdir").write_text("/nowhere/.git\n")
    (checkout / ".git/HEAD").unlink()
    lines = sorted(aftermath.look(known))
    assert [line.split(" ")[0] for line in lines] == [
        f"{checkout}/.git",
        f"{checkout}/.git",
        f"{checkout}/.git/worktrees/linked/gitdir",
    ]
    assert "is in a rebase that the worker changed" in lines[0]
    assert "is no git directory any more" in lines[1]
    assert lines[2].endswith(f"hides the worktree {checkout}/linked: git worktree repair")


def test_a_planted_podman_is_removed(tmp_path: Path) -> None:
    """By what was written down, whatever PATH is by then."""
    planted = tmp_path / "podman"
    known = before(tmp_path, podman=(str(planted),))
    planted.touch(0o755)
    assert len(aftermath.look(known)) == 1
    assert not planted.exists()


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"closed":[[1]],"git":[],"before_podman":[]}', b'{"closed":1}'])
def test_what_is_no_record_is_none(data: bytes) -> None:
    """Another version's, say: it is told from one that has nothing."""
    with pytest.raises(ValueError, match=r"."):
        aftermath.parse(data)
