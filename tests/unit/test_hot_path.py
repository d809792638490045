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
    "launcher.fs.git.checkout",
    "launcher.fs.git.config",
    "launcher.fs.git.files",
    "launcher.fs.paths",
    "launcher.fs.policy",
    "launcher.fs.protect",
    "launcher.fs.searched",
    "launcher.fs.sockets",
    "launcher.fs.sockets.judge",
    "launcher.fs.sockets.listeners",
    "launcher.fs.sockets.places",
    "launcher.fs.submounts",
    "launcher.guard",
    "launcher.launch",
    "launcher.life",
    "launcher.life.identity",
    "launcher.life.record",
    "launcher.limits",
    "launcher.network",
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
    "oci.mountinfo",
    "oci.records",
    "oci.refusal",
    "oci.strictjson",
}
# What the interpreter itself or `os` does not already bring; all are C modules of well under a millisecond.
FOREIGN = {"_json", "_socket", "fcntl", "gc"}
PROGRAM = """
import sys, os, stat, time
before = set(sys.modules)
sys.path.insert(0, sys.argv[1])
import launcher.cli
print("\\n".join(set(sys.modules) - before))
"""

# What a run needs beside: the hook waits for the plan, and two processors have podman's own start to carry.
WHILE_PODMAN_STARTS = """
from launcher.life import sweep
from launcher.run import keeper, process, session
from launcher.egress import resolver
"""
FOREIGN_THEN = {
    *("_ctypes", "errno", "select", "threading", "_weakrefset", "_thread", "_operator", "operator"),
    # of ipaddress
    *("ipaddress", "functools", "_functools", "collections", "_collections", "itertools", "keyword", "reprlib"),
    *("types", "_types"),
}


def imported(program: str) -> set[str]:
    """Return the modules that a program imports in a bare interpreter."""
    words = [sys.executable, "-I", "-S", "-c", program, str(ROOT)]
    return set(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split())


def test_imports_before_podman_is_started() -> None:
    """Nothing slow is imported by the time podman is started."""
    assert imported(PROGRAM) == OURS | FOREIGN


def test_imports_while_podman_starts() -> None:
    """No typing, contextlib, enum, re, json, socket, subprocess or DNS library: each is milliseconds of a processor."""
    found = imported(PROGRAM.replace("import launcher.cli\n", f"import launcher.cli\n{WHILE_PODMAN_STARTS}"))
    foreign = {name for name in found if name.partition(".")[0] not in {"launcher", "hooks", "oci"}}
    assert foreign <= FOREIGN | FOREIGN_THEN


def test_imports_of_a_card_file_and_a_ceiling() -> None:
    """A run by a card, or under a ceiling, pays for `re` and no other library: plain TOML is read without tomllib."""
    late = "from launcher import plaintoml, reach\nfrom launcher.cardfile import merge\n"
    found = imported(PROGRAM.replace("import launcher.cli\n", f"import launcher.cli\n{late}"))
    assert not found & {"tomllib", "tomlkit", "typing", "json", "typer", "difflib", "ipaddress", "subprocess"}
    assert "tomllib" in imported(PROGRAM.replace("import launcher.cli\n", "import tomllib\n"))


# Passing over exceptions, and waiting for several descriptors: a fraction of a millisecond.
QUIET = {"launcher.suppress", "select"}
WARM = """
import sys
sys.path.insert(0, sys.argv[1])
import launcher.cli
before = set(sys.modules)
import launcher.pool.client
print("\\n".join(set(sys.modules) - before))
"""


def test_imports_before_a_warm_card_is_taken() -> None:
    """The way to a warm card brings the pool's own few modules, and what the interpreter has built in."""
    words = [sys.executable, "-I", "-S", "-c", WARM, str(ROOT)]
    found = set(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split())
    assert found == {*(f"launcher.pool.{name}" for name in ("client", "key", "wire")), "launcher.run.events", *QUIET}
