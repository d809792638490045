"""`make install` and `make uninstall`: everything that a package of card-run holds, below DESTDIR and PREFIX.

The rule: what is installed is listed beside it, and only what is listed is removed: by `make uninstall`, and by a later
`make install` that does not bring it any more. No network is used when the interpreter that is to run it has the
dependencies; else pip puts them beside card-run's own packages.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from infra.packaging import completion, entry
from launcher.registration import install as registration
from launcher.registration import scope, status

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGES = ("oci", "hooks", "launcher")
POLICY = "infra/image/egress.txt"
DOCUMENTS = ("README.md", "SECURITY.md", "CHANGELOG.md", "LICENSE")
# Distribution to the module by which it is found.
DEPENDENCIES = {
    "idna": "idna",
    "podman": "podman",
    "pyroute2": "pyroute2",
    "tomlkit": "tomlkit",
    "typer": "typer",
}
LIST = "installed.json"
_FIND = """
import importlib.util, json, os, sys
found = {name: importlib.util.find_spec(name) for name in sys.argv[1:]}
places = {name: spec and os.path.dirname(os.path.dirname(spec.origin)) for name, spec in found.items()}
print(json.dumps([places, [path for path in sys.path if path.endswith("-packages")]]))
"""
EXAMPLE = """\
# /etc/card-run/config.toml: this bench's own settings, its administrator's alone to write (card-run(1), FILES).

# Ranges of other benches, which no card may reach.
benches = []

# Only a bench for tests: documentation addresses count as internet.
documentation_ranges = false
"""


class InstallError(Exception):
    """What keeps card-run from being installed."""


@dataclass(slots=True)
class Place:
    """Where to: the paths as they are once installed, the folder (DESTDIR) before them, and what was written."""

    prefix: str
    destdir: str
    python: str
    hooks_dir: str
    written: list[str] = field(default_factory=list[str])

    @property
    def lib(self) -> str:
        """The folder of card-run's own packages."""
        return f"{self.prefix}/lib/card-run"

    def real(self, path: str) -> Path:
        """Return where a path is written now."""
        return Path(f"{self.destdir}{path}")

    def put(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Write one file, its folders included, and list it."""
        real = self.real(path)
        real.parent.mkdir(parents=True, exist_ok=True)
        real.unlink(missing_ok=True)
        real.write_bytes(data)
        real.chmod(mode)
        self.written.append(path)


def install(place: Place) -> None:
    """Install everything, in place of what was installed there before, for everybody to read, whatever the umask.

    Raises Refused for a place that is none, and nothing is written; else InstallError or OSError, and then what was
    there and what was written until then are both listed.
    """
    where = _scope(place)
    registered = registration.installation(where, force=True)
    umask = os.umask(0o022)
    try:
        _install(place)
        registration.perform(registered)
    finally:
        os.umask(umask)
    unused = [] if where.root else status.unused(where, {})
    if unused:
        raise InstallError("; ".join(f"{one.found} ({one.hint})" for one in unused))


def _install(place: Place) -> None:
    earlier = _listed(place) if place.real(f"{place.lib}/{LIST}").is_file() else []
    places, missing = _dependencies(place)
    try:
        _documents(place)
        _packages(place)
        if missing:
            places = [_vendored(place, missing), *places]
        for command, module in entry.COMMANDS.items():
            program = entry.text(module, python=place.python, lib=place.lib, dependencies=places)
            place.put(f"{place.prefix}/bin/{command}", program.encode(), mode=0o755)
        _drop(place, set(earlier) - set(place.written))  # all that was compiled, too
        earlier = []
        _compile(place)
    finally:
        text = json.dumps(sorted({*earlier, *place.written}), indent=0) + "\n"
        place.put(f"{place.lib}/{LIST}", text.encode())


def _listed(place: Place) -> list[str]:
    names: list[str] = json.loads(place.real(f"{place.lib}/{LIST}").read_text(encoding="utf-8"))
    return names


def _drop(place: Place, names: Collection[str]) -> None:
    """Remove files, and the folders below the prefix that are empty then."""
    for name in names:
        place.real(name).unlink(missing_ok=True)
    for folder in sorted({parent for name in names for parent in Path(name).parents}, key=str, reverse=True):
        real = place.real(str(folder))
        if str(folder).startswith(f"{place.prefix}/") and real.is_dir() and not os.listdir(real):
            real.rmdir()


def _scope(place: Place) -> scope.Scope:
    return scope.system(prefix=place.prefix, hooks_d=place.hooks_dir, root=place.destdir, python=place.python)


def _dependencies(place: Place) -> tuple[list[str], list[str]]:
    """Return the folders in which the interpreter has dependencies, and the names of those that it lacks."""
    words = [place.python, "-I", "-c", _FIND, *DEPENDENCIES.values()]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InstallError(f"{place.python} does not run: {done.stderr.strip()}")
    found, site = json.loads(done.stdout)
    missing = [name for name, module in DEPENDENCIES.items() if not found[module]]
    # The dependencies' own dependencies may lie in another of the interpreter's folders.
    return list(dict.fromkeys([*(path for path in found.values() if path), *site])), missing


def _vendored(place: Place, missing: list[str]) -> str:
    """Let pip put the missing ones beside our packages; return that folder."""
    folder = f"{place.lib}/vendor"
    shutil.rmtree(place.real(folder), ignore_errors=True)  # pip replaces nothing, and would leave an earlier release's
    print(f"install: {place.python} lacks {', '.join(missing)}: pip brings them", file=sys.stderr)  # noqa: T201
    words = [place.python, "-I", "-m", "pip", "install", "--quiet", "--no-compile", "--target", str(place.real(folder))]
    done = subprocess.run([*words, *_requirements(missing)], check=False)
    if done.returncode:
        raise InstallError(f"pip could not bring {', '.join(missing)}: install them for {place.python} first")
    shutil.rmtree(place.real(folder) / "bin", ignore_errors=True)
    files = (path for path in place.real(folder).rglob("*") if path.is_file())
    place.written += [f"{folder}/{path.relative_to(place.real(folder))}" for path in files]
    return folder


def _requirements(names: list[str]) -> list[str]:
    """Return the lines of pyproject.toml for some distributions."""
    import tomllib

    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [line for line in project["dependencies"] if line.startswith(tuple(names))]


def _packages(place: Place) -> None:
    for package in PACKAGES:
        for path in sorted((CHECKOUT / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".md":
                place.put(f"{place.lib}/{path.relative_to(CHECKOUT)}", path.read_bytes())
    place.put(f"{place.lib}/{POLICY}", (CHECKOUT / POLICY).read_bytes())


def _compile(place: Place) -> None:
    """Compile by the interpreter that will run it; the code remembers where it will lie."""
    real = str(place.real(place.lib))
    words = [place.python, "-I", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    subprocess.run([*words, "-s", real, "-p", place.lib, real], check=True)
    for path in place.real(place.lib).rglob("*.pyc"):
        listed = f"{place.lib}/{path.relative_to(place.real(place.lib))}"
        place.written += [] if listed in place.written else [listed]


def _documents(place: Place) -> None:
    share = f"{place.prefix}/share"
    for page in ("card-run.1", "card.1", "card-file.5"):
        source = CHECKOUT / "build/man" / page
        if not source.is_file():
            raise InstallError(f"{source} is not built: make man")
        place.put(f"{share}/man/man{page[-1]}/{page}", source.read_bytes())
    for name in DOCUMENTS:
        place.put(f"{share}/doc/card-run/{name}", (CHECKOUT / name).read_bytes())
    place.put(f"{share}/doc/card-run/examples/config.toml", EXAMPLE.encode())
    place.put(f"{share}/doc/card-run/examples/egress.txt", (CHECKOUT / POLICY).read_bytes())
    for name, text in completion.scripts().items():
        place.put(f"{place.prefix}/{name}", text.encode())


def uninstall(place: Place) -> None:
    """Remove what is listed, and the folders that are empty then; raises InstallError when nothing is listed."""
    listing = place.real(f"{place.lib}/{LIST}")
    if not listing.is_file():
        raise InstallError(f"nothing is installed: there is no {listing}")
    registration.perform(registration.removal(_scope(place), force=True))
    _drop(place, (*_listed(place), f"{place.lib}/{LIST}"))
