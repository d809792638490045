"""What the hot paths import: each module more is time that every card pays."""

import subprocess
import sys

from launcher import runtime

LIST = """
import sys
before = set(sys.modules)
sys.path.insert(0, sys.argv[1])
{}
print(*sorted(set(sys.modules) - before))
"""
# Python's own modules that _ctypes, os and struct bring, whatever the version; none costs more than a fraction of a ms
STANDARD = {
    *("_ctypes", "_struct", "errno", "os", "posixpath", "genericpath", "stat", "_stat"),
    *("_collections_abc", "struct", "types", "_types", "os.path", "time", "_signal"),
}


def imported(statement: str) -> set[str]:
    """Return the modules that a statement imports in a bare interpreter."""
    words = [sys.executable, "-I", "-S", "-B", "-X", "utf8=1", "-c", LIST.format(statement), runtime.package_root()]
    return set(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split())


def test_stage_2_imports_little() -> None:
    """_ctypes, os, struct, themselves and ours; above all no typing, enum, re, json, dataclasses or pathlib."""
    modules = imported("import launcher.stage2.enter")
    ours = {name for name in modules if name.partition(".")[0] in {"launcher", "oci"}}
    assert ours == {
        "launcher", "launcher.stage2", "oci", "oci.mountinfo", "oci.native", "oci.records", "oci.refusal",
        *(f"launcher.stage2.{name}" for name in (
            "abi", "channel", "conf", "enter", "landlock", "lifeline", "seccomp", "selftest", "syscalls", "worker",
        )),
    }  # fmt: skip
    assert modules - ours <= STANDARD


def test_finding_the_runtime_imports_nothing_heavy() -> None:
    """The way that every card-run takes: os and the two values of ours."""
    modules = imported("import launcher.runtime")
    assert {name for name in modules if name.startswith(("launcher", "oci"))} == {
        "launcher", "launcher.runtime", "oci", "oci.records", "oci.refusal",
    }  # fmt: skip
    assert modules - {"launcher", "launcher.runtime", "oci", "oci.records", "oci.refusal"} <= STANDARD
