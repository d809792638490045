"""The runtime directory's disk is full, at any moment: the card runs whole, or is refused; nothing is left.

Run as the bench's root, who can make a small disk; card-run is started as the bench's user, with it as XDG_RUNTIME_DIR.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.cards import Run

UID = 1000
HOME = "/home/card"
PLACE = Path("/run/tiny")
PAGE = 4096
FREE = (0, 1, 4, 5, 6, 7, 9, 17, 19, 20, 21, 22, 24, 32)
"""Pages left for a card; a whole run needs less than the last, and fails at another step at each of the others."""


def as_user(*words: str) -> Run:
    """Run a command as the bench's user, whose runtime directory is the small disk."""
    environment = {"HOME": HOME, "USER": "card", "PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(PLACE)}
    who = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups"]
    done = subprocess.run(
        [*who, *words], env=environment, cwd=HOME, capture_output=True, text=True, timeout=120, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return Run(status=done.returncode, out=done.stdout, err=done.stderr)


@pytest.fixture(scope="module", autouse=True)
def _small_disk() -> Iterator[None]:
    PLACE.mkdir()
    options = f"size=8m,uid={UID},gid={UID},mode=0700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tiny", str(PLACE)], check=True)
    # The first card of all makes what podman and card-run keep.
    done = as_user("card-run", "--net=none", "--", "echo", "ran")
    assert (done.status, done.out) == (0, "ran\n"), done.err
    yield
    as_user("podman", "system", "migrate")
    subprocess.run(["umount", "--lazy", str(PLACE)], check=True)


def leave(pages: int) -> None:
    """Fill the disk but for a number of pages."""
    filler = PLACE / "filler"
    with filler.open("wb") as file:
        space = os.fstatvfs(file.fileno())
        os.posix_fallocate(file.fileno(), 0, max(space.f_bavail - pages, 1) * space.f_frsize)


def there() -> list[str]:
    """Return what is in the runtime directory of card-run, and podman's containers."""
    found = sorted(str(path) for path in (PLACE / "card-run").rglob("*"))
    return found + as_user("podman", "ps", "--all", "--quiet").out.split()


@pytest.mark.parametrize("pages", FREE)
def test_a_full_disk(pages: int) -> None:
    """The worker's own status and output, or a refusal with a reason and no output; never a traceback, nothing left."""
    leave(pages)
    done = as_user("card-run", "--net=none", "--", "echo", "ran")
    (PLACE / "filler").unlink()
    assert "Traceback" not in done.err
    if done.status == 0:
        assert done.out == "ran\n"
    elif done.status == 127:
        # conmon could not write down how the worker ended: nobody knows, and that is said.
        assert "NOTE podman ended with 127, and recorded no status of the worker's" in done.err
    else:
        assert (done.status, done.out) == (125, ""), done.err
        assert done.reasons
    gone = as_user("card", "gc")
    assert gone.status == 0, gone.out
    assert there() == []


def test_both_ends_of_it() -> None:
    """The control: without any room a card is refused for that, and with enough it runs."""
    leave(0)
    done = as_user("card-run", "--net=none", "--", "echo", "ran")
    assert (done.status, done.reasons) == (125, ["run-directory"])
    assert "No space left on device" in done.err
    leave(FREE[-1])
    done = as_user("card-run", "--net=none", "--", "echo", "ran")
    (PLACE / "filler").unlink()
    assert (done.status, done.out) == (0, "ran\n"), done.err
