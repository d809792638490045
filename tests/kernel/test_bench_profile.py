"""A podman whose own seccomp profile was replaced, on a whole bench: refused, saying what it blocks."""

import json
import os
from pathlib import Path

import pytest

from infra.bench.rootfs import TRIXIE, ensure
from tests.kernel.bench_runs import bench

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the bench is entered by root")
PROFILE = "usr/share/containers/seccomp.json"
LANDLOCK = {"landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self"}


def card_under(profile: dict[str, object], folder: Path) -> tuple[int, str, str]:
    """Return what a card comes to where podman's profile is this one."""
    path = folder / "seccomp.json"
    path.write_text(json.dumps(profile))
    path.chmod(0o644)
    options = ("--fresh", "--bind", f"{path}:/{PROFILE}")
    done = bench("card-run", "--", "echo", "ran", options=options)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_a_profile_that_blocks_landlock(tmp_path: Path) -> None:
    """The card is refused, naming the calls; with the profile as the package has it the same card runs."""
    profile = json.loads((ensure(TRIXIE).path / PROFILE).read_text())
    status, out, err = card_under(profile, tmp_path)
    assert (status, out) == (0, "ran\n"), err
    for entry in profile["syscalls"]:
        entry["names"] = [name for name in entry["names"] if name not in LANDLOCK]
    status, out, err = card_under(profile, tmp_path)
    assert (status, out) == (125, "")
    refusals = [line for line in err.splitlines() if line.startswith("SANDBOX REFUSED")]
    assert len(refusals) == 1
    assert refusals[0].startswith("SANDBOX REFUSED reason=podman-profile-blocks ")
    assert all(call in refusals[0] for call in LANDLOCK)
