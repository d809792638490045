"""A path grant whose target is covered by a bind mount between issue and start, in a mount namespace of the test's."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """
import os, subprocess, sys
sys.path[:0] = [sys.argv[1], *sys.argv[3].split(":")]
from pathlib import Path
from launcher.grants import state
from tests.unit.test_grant_paths import PATH, TREE, issue, reasons
work = Path(sys.argv[2])
with state.opened() as held:
    file, tree = issue(held, work, PATH, work / "src/file"), issue(held, work, TREE, work / "src")
    found = [reasons(held, work, text) for text in (file, tree)]
    subprocess.run(["mount", "--bind", work / "src2/file", work / "src/file"], check=True)
    found += [reasons(held, work, text) for text in (file, tree)]
    subprocess.run(["umount", work / "src/file"], check=True)
    subprocess.run(["mount", "--bind", work / "src2", work / "src"], check=True)
    found += [reasons(held, work, text) for text in (file, tree)]
    print(found)
"""


def test_a_bind_mount_over_the_target(tmp_path: Path) -> None:
    """A mount over the file, or over the directory that is or holds the target, makes it another thing."""
    work = tmp_path / "w"
    for name in ("src", "src2"):
        (work / name).mkdir(parents=True)
        (work / name / "file").touch()
    words = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        [*words, str(ROOT), str(work), ":".join(sys.path)],
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        check=False,
    )
    changed = ["target-changed"]
    assert done.stdout.strip() == str([[], [], changed, [], changed, changed]), done.stderr
