"""What is mounted below a root is as closed as the root: tried from inside, as the bench's root mounts for its user."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.cards import Run, run

UID = 1000
HOME = Path("/home/card")
USER = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--init-groups", "env", "-i", f"PATH={os.environ['PATH']}"]
USER += [f"HOME={HOME}", "USER=card", f"XDG_RUNTIME_DIR=/run/user/{UID}"]
# Each is done below a directory and says its name when it worked: content and metadata, which Landlock does not judge.
ATTEMPTS = """
cd "$1" || exit 9
echo new > new && echo create
echo evil > file && echo write
chmod 700 file && echo mode
touch -d 2000-01-01 file && echo time
./program 2> /dev/null && echo run
"""
CHANGES = {"create", "write", "mode", "time"}


def mount(path: Path, *, uid: int = UID, options: str = "") -> None:
    """Mount a small file system of the user's, with a file and a program in it."""
    where = f"size=1m,mode=755,uid={uid},gid={uid}{options}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", where, "sub", str(path)], check=True)
    fill(path)


def fill(path: Path) -> None:
    """Put a file and a program of the user's there."""
    (path / "file").write_text("kept\n")
    shutil.copy("/bin/true", path / "program")
    for name in ("file", "program"):
        os.chown(path / name, UID, UID)


@pytest.fixture
def place() -> Iterator[Path]:
    """Return a directory of the user's; what a test mounts below it is unmounted."""
    path = HOME / "place"
    for folder in (path, path / "top", path / "top/sub", path / "top/sub/deep"):
        folder.mkdir()
        os.chown(folder, UID, UID)
    yield path
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for point in sorted((one for one in points if one.startswith(f"{path}/")), reverse=True):
        subprocess.run(["umount", point.replace("\\040", " ")], check=True)
    shutil.rmtree(path)


def card(*words: str) -> Run:
    """Run a card as the bench's user."""
    return run([*USER, "card-run", "--net=none", *words], stdin=subprocess.DEVNULL)


def tried(at: Path, *options: str) -> set[str]:
    """Return which attempts work below a directory in a card that must be whole."""
    done = card("--json=/home/card/receipt.json", *options, "--", "sh", "-c", ATTEMPTS, "sh", str(at))
    assert "level=full" in done.err, done.err
    receipt = json.loads((HOME / "receipt.json").read_text())
    (HOME / "receipt.json").unlink()
    assert receipt["guarantees"]["write_boundary"]
    return set(done.out.split())


@pytest.mark.parametrize("name", ["sub", "with space", "with,comma"])
def test_below_what_may_be_read(place: Path, name: str) -> None:
    """Nothing below can be changed, however it is called; the controls are the top, and the same below a write root."""
    top = place / "top"
    fill(top)
    (top / name).mkdir(exist_ok=True)
    mount(top / name)
    assert tried(top / name, f"--write={top}") == CHANGES | {"run"}
    fill(top / name)
    os.utime(top / name / "file", (1e9, 1e9))
    assert tried(top, f"--read={top}") == {"run"}
    assert tried(top / name, f"--read={top}") == {"run"}
    assert (top / name / "file").read_text() == "kept\n"
    assert (top / name / "file").stat().st_mtime == 1e9


def test_below_what_may_not_be_run(place: Path) -> None:
    """With --read-noexec no program below runs either; --read is the control."""
    top = place / "top"
    mount(top / "sub")
    assert tried(top / "sub", f"--read={top}") == {"run"}
    assert tried(top / "sub", f"--read-noexec={top}") == set()


@pytest.mark.parametrize("option", ["--read", "--protect"])
def test_below_what_is_closed_in_a_write_root(place: Path, option: str) -> None:
    """A protected directory, and a root to read, are closed in a write root with all that is mounted in them."""
    mount(place / "top/sub")
    (place / "top/sub/deep").mkdir()
    mount(place / "top/sub/deep")
    for at in (place / "top/sub", place / "top/sub/deep"):
        assert tried(at, f"--write={place}") == CHANGES | {"run"}
        fill(at)
        assert tried(at, f"--write={place}", f"{option}={place / 'top'}") == {"run"}
    assert tried(place / "top/sub/deep", f"--read={place}", f"--write={place / 'top/sub'}") == CHANGES | {"run"}


def test_what_is_mounted_while_it_starts(place: Path) -> None:
    """Stage 2 looks at what there is: what card-run could not have seen, its own mount namespace has, and podman's."""
    top = place / "top"
    assert card(f"--read={top}", "--", "true").status == 0
    pause = Path(f"/run/user/{UID}/libpod/tmp/pause.pid").read_text()
    inside = ["nsenter", "-t", pause, "-m"]
    subprocess.run([*inside, "mount", "-t", "tmpfs", "late", str(top / "sub")], check=True)
    try:
        done = card(f"--read={top}", "--", "echo", "ran")
        assert (done.status, done.out, done.reasons) == (125, "", ["mount-open"]), done.err
        assert f"{top}/sub must be mounted read-only, nosuid, nodev and is not" in done.err
    finally:
        subprocess.run([*inside, "umount", str(top / "sub")], check=True)
    assert card(f"--read={top}", "--", "true").status == 0


def test_what_cannot_be_mounted_again_is_refused(place: Path) -> None:
    """A mount that the user cannot look at would be there with no restriction: its root is refused."""
    (place / "top/sub").chmod(0o700)
    os.chown(place / "top/sub", 0, 0)
    mount(place / "top/sub/deep")
    done = card(f"--read={place / 'top'}", "--", "echo", "ran")
    assert (done.status, done.out, done.reasons) == (125, "", ["path-mounts"]), done.err
    assert f"{place / 'top/sub/deep'} is mounted in what the card may reach: Permission denied" in done.err


def test_the_state_of_other_runs_is_not_shown() -> None:
    """Whoever may read the user's runtime directory sees what is not podman's or card-run's, and no other card's."""
    runtime = Path(f"/run/user/{UID}")
    held = run([*USER, "card-run", "-d", "--", "sleep", "60"])  # with a network: podman mounts its namespace there
    (runtime / "mine").touch()
    done = card(f"--read={runtime}", "--", "sh", "-c", f"ls {runtime}; ls -A {runtime}/card-run {runtime}/netns")
    (runtime / "mine").unlink()
    run([*USER, "card", "stop", held.out.strip()])
    assert done.status == 0, done.err
    assert "mine\n" in done.out
    assert done.out.endswith(f"\n{runtime}/card-run:\n\n{runtime}/netns:\n"), done.out


def test_podmans_storage_is_not_shown() -> None:
    """Who may read the user's data reads no other container's files, which podman mounts there; the rest is there."""
    data = HOME / ".local/share"
    (data / "mine").write_text("mine\n")
    held = run([*USER, "card-run", "-d", "--net=none", "--", "sleep", "60"])
    storage = data / "containers"
    assert (storage / "storage").is_dir()
    done = card(f"--read={data}", "--", "sh", "-c", f"cat {data}/mine; ls -A {storage}; echo x > {storage}/x")
    (data / "mine").unlink()
    run([*USER, "card", "stop", held.out.strip()])
    assert done.out == "mine\n", done.err
    assert "Read-only file system" in done.err
    assert not (storage / "x").exists()
