"""What a worker that knows this code leaves behind for the next card, and for the bench; each with its control."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.bench.cards import card

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
