"""What the hooks import: the time budget and the trust both depend on it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = {
    "prestart": {
        "hooks",
        *("hooks.deadline", "hooks.lastword"),
        *("hooks.audit", "hooks.bundle", "hooks.egress", "hooks.listing", "hooks.netns", "hooks.nft", "hooks.plan"),
        *("hooks.prestart", "hooks.question", "hooks.ranges", "hooks.rules", "hooks.rundir"),
        *("oci", "oci.annotations", "oci.records", "oci.refusal", "oci.state", "oci.strictjson"),
    },
    "poststop": {
        "hooks",
        *(
            "hooks.deadline",
            "hooks.egress",
            "hooks.lastword",
            "hooks.ledger",
            "hooks.listing",
            "hooks.netns",
            "hooks.nft",
            "hooks.poststop",
            "hooks.rundir",
        ),
        *("oci", "oci.annotations", "oci.probes", "oci.refusal", "oci.state", "oci.strictjson"),
    },
}
# The standard library's modules that the hooks may load, each for a call that nothing else gives.
STANDARD = {
    "_ctypes",  # setns(2), mount(2), umount2(2)
    "_signal",  # the hook's own deadlines
    *("_socket", "_json", "fcntl", "errno", "time", "stat", "_stat"),
    *("os", "os.path", "posixpath", "genericpath", "_collections_abc"),
}
SHOW = "import sys; sys.path.insert(0, {root!r}); before = set(sys.modules); {what}; print(*set(sys.modules) - before)"


def imported(what: str) -> "set[str]":
    """Return the modules that a bare interpreter loads for a statement."""
    command = (sys.executable, "-I", "-S", "-B", "-c", SHOW.format(root=str(ROOT), what=what))
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


@pytest.mark.parametrize("verb", OURS)
def test_a_hook_imports_this_and_nothing_else(verb: str) -> None:
    """Of ours exactly what is listed, nothing of the launcher's, and of the standard library only what is listed."""
    found = imported(f"import hooks.{verb}")
    assert {name for name in found if name.partition(".")[0] in ("hooks", "oci", "launcher", "infra", "tests")} == OURS[
        verb
    ]
    assert found - OURS[verb] <= STANDARD


def test_the_control_sees_an_import() -> None:
    """A slow module would show."""
    assert {"json", "re"} <= imported("import json")
