"""Grants for paths: bound to the very file or directory that was looked at when the grant was issued."""

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launcher.access.profile import Profile, fingerprint
from launcher.access.scope import WRITE, access_for
from launcher.grants import classes, desk, state
from launcher.grants.bindings import Binding
from launcher.grants.state import State
from oci.refusal import Refused
from tests.unit.test_grant_tokens import BINDING

PATH, TREE = "filesystem.path.write.v1", "filesystem.tree.write.v1"


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[State]:
    """Return a grant state of this test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with state.opened() as opened:
        yield opened


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Return a workspace with a file, a directory and a sibling with the same prefix."""
    path = tmp_path / "w"
    for name in ("src", "src2"):
        (path / name).mkdir(parents=True)
        (path / name / "file").write_text("before")
    return path


def profile(work: Path) -> Profile:
    """Return a profile that gates writing in the workspace."""
    return Profile(workspace=str(work), workspace_read="allow", workspace_write="gated")


def binding(work: Path) -> Binding:
    """Return the binding of a run in the workspace."""
    return BINDING.replace(profile=fingerprint(profile(work)), cwd=str(work))


def issue(held: State, work: Path, cls: str, target: Path | str) -> str:
    """Return a token for a path."""
    return desk.issue(held, profile(work), binding(work), cls=cls, target=str(target))[0]


def reasons(held: State, work: Path, text: str) -> list[str]:
    """Return what a token is refused for at the start; nothing when it holds."""
    try:
        desk.take(held, text, profile(work), binding(work))
    except Refused as error:
        return [one.reason for one in error.refusals]
    return []


def renamed(path: Path) -> None:
    """Put another thing of the same name and kind in its place."""
    if path.is_dir():
        path.rename(path.with_name("old"))
        path.mkdir()
    else:
        other = path.with_name("other")
        other.write_text("after")
        other.rename(path)


def linked(path: Path) -> None:
    """Put a link in its place, which leads to the very thing that was there."""
    old = path.with_name("old")
    path.rename(old)
    path.symlink_to(old)


def parent_renamed(path: Path) -> None:
    """Put another directory in place of the one that holds it, with a thing of the same name and kind in it."""
    kind = path.is_dir()
    path.parent.rename(path.parent.with_name("old-parent"))
    path.parent.mkdir()
    if kind:
        path.mkdir()
    else:
        path.write_text("after")


def parent_linked(path: Path) -> None:
    """Put a link in place of the directory that holds it."""
    old = path.parent.with_name("old-parent")
    path.parent.rename(old)
    path.parent.symlink_to(old)


def removed(path: Path) -> None:
    """Take it away."""
    path.rename(path.parent.parent / "elsewhere")


@pytest.mark.parametrize("swap", [renamed, linked, parent_renamed, parent_linked, removed])
@pytest.mark.parametrize(("cls", "name"), [(PATH, "src/file"), (TREE, "src")])
def test_a_swapped_target_is_changed(
    held: State, work: Path, cls: str, name: str, swap: Callable[[Path], None]
) -> None:
    """Whatever stands under the name is not what was approved, even where a link leads to that; as it was, it holds."""
    text = issue(held, work, cls, work / name)
    assert reasons(held, work, text) == []
    swap(work / name)
    assert reasons(held, work, text) == ["target-changed"]


def test_content_is_not_identity(held: State, work: Path) -> None:
    """What changes inside the file or directory changes nothing of what it is."""
    file, tree = issue(held, work, PATH, work / "src/file"), issue(held, work, TREE, work / "src")
    (work / "src/file").write_text("after")
    (work / "src/new").touch()
    assert reasons(held, work, file) == reasons(held, work, tree) == []


def test_a_target_is_resolved_when_it_is_issued(held: State, work: Path) -> None:
    """A grant for a link is one for what it leads to, asked of the profile as that; dots are no target."""
    (work.parent / "link").symlink_to(work / "src")
    text = issue(held, work, TREE, work.parent / "link")
    assert desk.take(held, text, profile(work), binding(work)).target == str(work / "src")
    (work.parent / "out").symlink_to("/etc")
    with pytest.raises(Refused, match="denied"):
        issue(held, work, TREE, work.parent / "out")
    for odd in (f"{work}/../w/src", f"{work}//src", f"{work}/src/", f"{work}/./src"):
        with pytest.raises(Refused, match="malformed"):
            issue(held, work, TREE, odd)


def test_a_link_of_a_workers_is_not_followed(held: State, work: Path) -> None:
    """Where a worker may have written, a link is refused by name: who was asked saw its name and not where it leads."""
    precious = work.parent / "precious"
    precious.touch()
    (work / "notes").symlink_to(precious)
    (work / "inner").symlink_to(work / "src")
    wide = profile(work).replace(host_read="gated", host_write="gated")
    for given, target in ((profile(work), work / "inner/file"), (wide, work / "notes"), (wide, work / "inner/file")):
        with pytest.raises(Refused, match="target-linked"):
            desk.issue(held, given, binding(work), cls=PATH, target=str(target))
    assert desk.issue(held, wide, binding(work), cls=PATH, target=str(precious))
    (work.parent / "elsewhere").symlink_to(precious)
    with pytest.raises(Refused, match="target-linked"):
        desk.issue(held, wide, binding(work), cls=PATH, target=str(work.parent / "elsewhere"))


def test_a_tree_ends_at_its_name(held: State, work: Path) -> None:
    """A tree grant's target is the directory and not what begins with its name; the profile is asked for all of it."""
    text = issue(held, work, TREE, work / "src")
    target = desk.take(held, text, profile(work), binding(work)).target
    assert target == str(work / "src")
    assert str(work / "src2").startswith(target)
    gated = profile(work)
    assert access_for(gated, WRITE, f"tree:{work / 'src2'}") == 1
    nested = gated.replace(roots=(*gated.roots, *_root(work / "src/closed")))
    with pytest.raises(Refused, match="denied"):
        desk.issue(held, nested, binding(work), cls=TREE, target=str(work / "src"))
    assert desk.issue(held, nested, binding(work), cls=TREE, target=str(work / "src2"))


def _root(path: Path) -> tuple["object", ...]:
    from launcher.access.profile import Root

    return (Root(path=str(path), read="allow"),)


@pytest.mark.parametrize("kind", ["missing", "directory", "socket", "fifo", "device"])
def test_a_path_is_a_regular_file(held: State, work: Path, kind: str) -> None:
    """What could not be mounted as exactly itself is unsupported, not mounted as something near it."""
    path = work / "odd"
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
    elif kind == "device":
        path = Path("/dev/null")
    wide = Profile(
        workspace=str(work), workspace_read="gated", host_read="gated", workspace_write="gated", host_write="gated"
    )
    with pytest.raises(Refused) as caught:
        desk.issue(held, wide, binding(work), cls=PATH, target=str(path))
    assert [one.reason for one in caught.value.refusals] == ["unsupported"]


def test_a_file_that_appears_is_another_thing(work: Path) -> None:
    """The anchor of a path is the deepest part of it that exists, so that what is made there later differs."""
    before = classes.anchor(f"{work}/new/file")
    assert before.path == str(work)
    (work / "new").mkdir()
    assert classes.anchor(f"{work}/new/file").path == f"{work}/new"
    (work / "new/file").touch()
    assert classes.anchor(f"{work}/new/file") != before
