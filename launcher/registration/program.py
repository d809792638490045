"""The hook program that is registered: a copy of `hooks` and `oci` that no rebuilt runtime and no upgrade takes away.

Named by the digest of its files, so a copy is whole or not there. Source beside compiled form: another Python than the
one that compiled it still runs it, only slower, where a compiled file alone would fail every card.
"""

import hashlib
import os
import subprocess
import sys

from launcher import runtime
from launcher.registration.scope import Scope
from oci import hooksd
from oci.hooksd import HookFile

PACKAGES = ("hooks", "oci")
ENTRY = "hooks/__main__.py"
_SYSTEM_PYTHON = "/usr/bin/python3"
_DIGEST_LENGTH = 16


def sources() -> dict[str, bytes]:
    """Return the program's files by their place in it: this card-run's own."""
    found: dict[str, bytes] = {}
    for package in PACKAGES:
        folder = f"{runtime.package_root()}/{package}"
        for name in sorted(os.listdir(folder)):
            if name.endswith(".py"):
                with open(f"{folder}/{name}", "rb") as file:
                    found[f"{package}/{name}"] = file.read()
    return found


def digest(files: dict[str, bytes]) -> str:
    """Return the name of a program with these files."""
    total = hashlib.sha256()
    for name, data in sorted(files.items()):
        total.update(f"{name}\0{len(data)}\0".encode())
        total.update(data)
    return total.hexdigest()[:_DIGEST_LENGTH]


def python(scope: Scope) -> str:
    """Return the interpreter to register: the scope's, or the name that an upgrade keeps of the one we run on."""
    if scope.python:
        return scope.python
    own = runtime.base_python()
    return _SYSTEM_PYTHON if os.path.realpath(_SYSTEM_PYTHON) == own else own


def pair(scope: Scope, files: dict[str, bytes]) -> tuple[HookFile, HookFile]:
    """Return the hooks.d files that register the program in a scope."""
    words = (python(scope), "-I", "-S", "-B", f"{scope.programs}/{digest(files)}/{ENTRY}")
    return hooksd.pair(path=words[0], args=words)


def entry_of(file: HookFile) -> str:
    """Return the program that a hooks.d file of ours starts, "" when it starts something else."""
    return next((word for word in file.args if word.endswith((f"/{ENTRY}", f"/{ENTRY}c"))), "")


def is_this_version(file: HookFile) -> bool:
    """Return whether a registered program is, to the byte, what this card-run would register."""
    place = entry_of(file).removesuffix(f"/{ENTRY}")
    wanted = sources()
    try:
        return read(place, wanted) == wanted
    except OSError:
        return False


def read(place: str, names: "dict[str, bytes]") -> dict[str, bytes]:
    """Return the named files of a copy; raises OSError for one that is missing."""
    found: dict[str, bytes] = {}
    for name in names:
        with open(f"{place}/{name}", "rb") as file:
            found[name] = file.read()
    return found


def compile_all(scope: Scope, place: str) -> None:
    """Compile the copy that will lie at `place`, by the interpreter that will run it. A failure costs speed only."""
    real = scope.real(place)
    words = [python(scope), "-I", "-S", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    done = subprocess.run([*words, "-s", real, "-p", place, real], capture_output=True, text=True, check=False, env={})
    if done.returncode:
        sys.stderr.write(f"NOTE the hooks are not compiled: {done.stderr.strip()[-200:]}\n")
