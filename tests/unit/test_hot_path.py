"""card-run's hot path imports what is listed here and nothing else: each module more is time in every card."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
OURS = {
    "launcher",
    "launcher.bench",
    "launcher.cli",
    "launcher.egress",
    "launcher.environment",
    "launcher.egress.names",
    "launcher.egress.nameservers",
    "launcher.egress.policy",
    "launcher.fs",
    "launcher.fs.git",
    "launcher.fs.paths",
    "launcher.fs.policy",
    "launcher.fs.protect",
    "launcher.guard",
    "launcher.launch",
    "launcher.life",
    "launcher.life.identity",
    "launcher.life.record",
    "launcher.limits",
    "launcher.options",
    "launcher.pool",
    "launcher.pool.place",
    "launcher.request",
    "launcher.run",
    "launcher.run.channel",
    "launcher.run.command",
    "launcher.run.directory",
    "launcher.run.exchange",
    "launcher.run.perform",
    "launcher.run.site",
    "launcher.run.spawn",
    "launcher.runtime",
    "launcher.trust",
    "launcher.value",
    "oci",
    "oci.annotations",
    "oci.hooksd",
    "oci.records",
    "oci.refusal",
    "oci.strictjson",
}
# What the interpreter itself or `os` does not already bring; all are C modules of well under a millisecond.
FOREIGN = {"_json", "_socket", "fcntl"}
PROGRAM = """
import sys, os, stat, time
before = set(sys.modules)
sys.path.insert(0, sys.argv[1])
import launcher.cli
print("\\n".join(set(sys.modules) - before))
"""


def test_imports_before_podman_is_started() -> None:
    """Nothing slow is imported by the time podman is started."""
    words = [sys.executable, "-I", "-S", "-c", PROGRAM, str(ROOT)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == OURS | FOREIGN
