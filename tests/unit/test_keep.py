"""`--keep`: HOME and /tmp of a card in a directory of the bench, judged so that no worker chooses what is mounted."""

from pathlib import Path

import pytest

from launcher import launch, reach
from launcher.access.ceiling import Ceiling
from launcher.access.profile import Root as Place
from launcher.bench import CeilingFile
from launcher.fs import keep
from launcher.fs.paths import READ, WRITE, Root
from launcher.fs.policy import Filesystem
from launcher.request import Request


def root(path: Path, access: str = WRITE) -> Root:
    """Return a path as a root that was judged."""
    found = path.stat()
    return Root(access=access, path=str(path), directory=path.is_dir(), device=found.st_dev, inode=found.st_ino)


def decided(text: str, *roots: Root, look_only: bool = False) -> tuple[tuple[keep.Kept, ...], list[str]]:
    """Return what is kept, and the refusals' reasons."""
    whole = Filesystem(roots=roots, held=(), closed=(), judged=(), cwd="/card")
    kept, refusals = keep.decide(text, whole, forbidden=(), look_only=look_only)
    return kept, [one.reason for one in refusals]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a directory of ours alone."""
    path = tmp_path / "keep"
    path.mkdir(mode=0o700)
    return path


def test_home_and_tmp_are_made_and_found_again(place: Path) -> None:
    """Owner-only, in the place of the two private mounts, each with its identity; a look makes nothing."""
    assert decided(str(place), look_only=True) == ((), [])
    assert list(place.iterdir()) == []
    kept, reasons = decided(str(place))
    assert reasons == []
    assert [(one.path, one.source) for one in kept] == [("/card", f"{place}/home"), ("/tmp", f"{place}/tmp")]
    assert [one.inode for one in kept] == [(place / name).stat().st_ino for name in ("home", "tmp")]
    assert {path.stat().st_mode & 0o777 for path in place.iterdir()} == {0o700}
    assert decided(str(place)) == (kept, [])


def test_what_a_worker_could_replace_is_refused(place: Path, tmp_path: Path) -> None:
    """The directory in a write root; beside one it is fine, and in one that is only read too."""
    assert decided(str(place), root(tmp_path))[1] == ["keep-writable"]
    assert decided(str(place), root(tmp_path, READ))[1] == []


def test_what_is_not_ours_alone_is_refused(place: Path) -> None:
    """Open to others, a link in the place of one of the two, a file."""
    place.chmod(0o755)
    assert decided(str(place))[1] == ["keep-not-yours"]
    place.chmod(0o700)
    (place / "home").symlink_to("/etc")
    (place / "tmp").write_text("")
    assert decided(str(place))[1] == ["keep-not-yours", "keep-not-yours"]


def test_a_root_inside_what_is_kept_is_refused(place: Path) -> None:
    """Read-only, or closed as a checkout's hooks are, it could be written by its other way."""
    (place / "home" / "data").mkdir(parents=True, mode=0o700)
    (place / "home").chmod(0o700)
    assert decided(str(place), root(place / "home" / "data", READ))[1] == ["keep-contradiction"]


def test_mount_points_are_made_without_following_links(place: Path, tmp_path: Path) -> None:
    """What a root below /tmp is mounted on is made; where a link stands in the way the run is refused."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "file").touch()
    assert str(work).startswith("/tmp/")
    assert decided(str(place), root(work), root(work / "file", READ))[1] == []
    point = place / "tmp" / work.relative_to("/tmp")
    assert point.is_dir()
    assert (point / "file").is_file()
    outside = tmp_path / "outside"
    outside.mkdir()
    (point / "file").unlink()
    point.rmdir()
    point.parent.rmdir()
    point.parent.symlink_to(outside)
    assert decided(str(place), root(work))[1] == ["keep-in-the-way"]
    assert list(outside.iterdir()) == []


def test_what_contradicts_it(place: Path) -> None:
    """The caller's own HOME, a size for /tmp, and a secret or deciding file that lies in what is kept."""
    (place / "home").mkdir(mode=0o700)
    for name in ("secret", "egress.txt"):
        (place / "home" / name).write_text("github.com\napi.github.com\nobjects.githubusercontent.com\n")
    asked = Request(
        command=("true",),
        keep=str(place),
        home="real",
        tmp_size="1m",
        secret=(f"{place}/home/secret",),
        egress=f"{place}/home/egress.txt",
    )
    reasons = [one.reason for one in launch.judge(asked)[1]]
    assert reasons.count("keep-contradiction") == 2
    assert {"secret-exposed", "policy-writable"} <= set(reasons)


def test_a_ceiling_says_where_cards_may_keep() -> None:
    """What a card keeps is written on the bench: only where the ceiling has writing allowed, whatever card it is."""
    ceiling = Ceiling(
        workspace_read="allow",
        workspace_write="allow",
        roots=(Place(path="/srv/scratch", read="allow", write="allow"), Place(path="/srv/asked", read="gated")),
    )
    file = CeilingFile(path="/etc/card-run/config.toml", data=b"", ceiling=ceiling)
    places = ("/srv/scratch/a", "/srv/asked/a", "/srv")
    assert [reach.may_write(file, place) for place in places] == [True, False, False]
