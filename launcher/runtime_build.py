"""Building the runtime: copy, relocate, compile, try it out, name it by digest, and put it in place at once.

Only imported when there is something to build, so it may import what it likes. One builder at a time (flock); the
runtime appears by rename, complete or not at all, and its manifest after it.
"""

import fcntl
import hashlib
import json
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from launcher import runtime, runtime_elf, runtime_prune
from launcher.runtime import CARD, Runtime
from launcher.seccomp import bpf, profile, table
from oci import hooksd, records
from oci.refusal import Refusal, Refused

# What goes into the card beside the interpreter, and what the hooks need, as paths below the package root.
CARD_SOURCES = (
    *("launcher/__init__.py", "launcher/stage2"),
    *("oci/__init__.py", "oci/mountinfo.py", "oci/native.py", "oci/records.py", "oci/refusal.py"),
)
CARD_ENTRY = "launcher/stage2/__main__.py"
HOOK_SOURCES = ("hooks", "oci")
HOOK_CLIENT = "hooks/client.sh"
# What decides how all of it is built.
BUILD_SOURCES = ("launcher/seccomp", "launcher/runtime.py", "launcher/runtime_build.py", "launcher/runtime_elf.py")
CONTAINERS_CONF = "launcher/run/containers.conf"

# Run by the interpreter that will run stage 2: where each module comes from that stage 2 imports.
_DISCOVER = """
import sys
sys.path.insert(0, sys.argv[1])
import os, launcher.stage2.enter
print(sys.prefix, os.__file__, sep="\\n")
for name, module in sorted(sys.modules.items()):
    spec = getattr(module, "__spec__", None)
    if spec is not None and spec.has_location:
        print(name, spec.origin, sep="\\t")
"""
# A process of its own for all of them: what else lives in a process changes the bytes that marshal writes, and the
# runtime's digest with them. The code remembers the name it has in the runtime, not the path it came from.
_COMPILE = """
import json, py_compile, sys
mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
for source, place, name in json.load(sys.stdin):
    py_compile.compile(source, place, dfile=name, doraise=True, optimize=2, invalidation_mode=mode)
"""
# Run by the finished runtime, away from everything else: it must import stage 2 and nothing from outside itself.
_TRY = """
import sys, launcher.stage2.enter
print(*(m.__file__ for m in sys.modules.values() if getattr(m, "__file__", None)), sep="\\n")
"""


@dataclass(slots=True)
class Layout:
    """A runtime in the making at `path`: all the files it is made from, and the sources among them by compiled name."""

    path: str
    python: str
    inputs: set[str] = field(default_factory=set[str])
    sources: dict[str, str] = field(default_factory=dict[str, str])
    argv: tuple[str, ...] = ()
    filter_rules: int = 0

    def put(self, name: str, data: bytes, *, mode: int = 0o644) -> None:
        """Write one file, its folders included, with exactly this mode: the card's user may be anybody."""
        place = f"{self.path}/{name}"
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "xb") as file:
            file.write(data)
        os.chmod(place, mode)

    def read(self, path: str) -> bytes:
        """Return a file's bytes and remember it as an input."""
        self.inputs.add(path)
        with open(path, "rb") as file:
            return file.read()


def build(cache: str) -> Runtime:
    """Return the runtime, built in the cache; raises Refused when this Python cannot be relocated."""
    with _locked(cache):
        found = runtime.lookup(cache)  # somebody else's build, while we waited
        if found is not None:
            return found
        from launcher.run import output  # which imports the rest of card-run, and need not be there otherwise

        output.say("card-run: building the runtime (once per Python and version) ...")
        work = tempfile.mkdtemp(prefix="building-", dir=cache)
        try:
            return _build(cache, Layout(work, runtime.base_python()))
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", None) or ""
            raise Refused([Refusal("runtime-unbuildable", f"{error} {said}".strip())]) from error
        finally:
            shutil.rmtree(work, ignore_errors=True)


@contextmanager
def _locked(cache: str) -> Generator[None]:
    descriptor = os.open(f"{cache}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _build(cache: str, layout: Layout) -> Runtime:
    _lay_card(layout)
    _lay_hooks(layout)
    _lay_seccomp(layout)
    _lay_containers_conf(layout)
    _compile(layout)
    for folder, _, _ in os.walk(layout.path):
        os.chmod(folder, 0o700 if folder == layout.path else 0o755)
    _try(layout)
    digest = content_digest(layout.path)
    final = f"{cache}/{runtime.directory_name(digest)}"
    _lay_hooksd(layout, final)
    _put_in_place(layout, final)
    _write_manifest(cache, layout, digest, final)
    found = runtime.lookup(cache)
    if found is None:
        raise Refused([Refusal("runtime-unbuildable", f"{final} changed while it was being built")])
    runtime_prune.prune(cache, keep=digest)
    return found


def _lay_card(layout: Layout) -> None:
    """Lay out what is mounted at /run/card-runtime: the loader, the interpreter, libraries, modules and stage 2."""
    prefix, landmark, modules = _discover(layout.python)
    library = os.path.relpath(os.path.dirname(landmark), prefix)
    for name, origin in [*modules.items(), ("os", landmark)]:
        if origin.endswith(".py"):
            inside = name.replace(".", "/") + ("/__init__" if origin.endswith("/__init__.py") else "")
            layout.sources[f"card/{library}/{inside}.pyc"] = origin
    extensions = [origin for origin in modules.values() if not origin.endswith(".py")]
    for origin in extensions:
        data = runtime_elf.without_run_path(layout.read(origin))
        layout.put(f"card/{library}/lib-dynload/{os.path.basename(origin)}", data)
    os.makedirs(f"{layout.path}/card/{library}/lib-dynload", exist_ok=True)
    for source in _sources(CARD_SOURCES):
        layout.sources[f"card/{library}/{source}c"] = f"{runtime.package_root()}/{source}"
    layout.sources["card/stage2.pyc"] = f"{runtime.package_root()}/{CARD_ENTRY}"
    layout.argv = (*_lay_program(layout, extensions), "-I", "-S", "-B", "-X", "utf8=1", f"{CARD}/stage2.pyc")


def _discover(python: str) -> tuple[str, str, dict[str, str]]:
    """Return Python's prefix, the path of its os module, and the path of each standard module stage 2 imports."""
    words = [python, "-I", "-S", "-B", "-X", "utf8=1", "-c", _DISCOVER, runtime.package_root()]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env={})
    prefix, landmark, *lines = done.stdout.splitlines()
    modules = dict(line.split("\t") for line in lines)
    ours = f"{runtime.package_root()}/"
    return prefix, landmark, {name: path for name, path in modules.items() if not path.startswith(ours)}


def _sources(names: tuple[str, ...]) -> list[str]:
    """Return the Python files that the names stand for (a folder: its own files), below the package root."""
    root = runtime.package_root()
    found = [name for name in names if name.endswith(".py")]
    folders = [name for name in names if not name.endswith(".py")]
    found += [f"{name}/{file}" for name in folders for file in os.listdir(f"{root}/{name}") if file.endswith(".py")]
    return sorted(found)


def _compile(layout: Layout) -> None:
    """Compile every source by the interpreter that will run it, in one order."""
    for name in layout.sources:
        os.makedirs(os.path.dirname(f"{layout.path}/{name}"), exist_ok=True)
    wanted = [[source, f"{layout.path}/{name}", name] for name, source in sorted(layout.sources.items())]
    words = [layout.python, "-I", "-S", "-B", "-X", "utf8=1", "-c", _COMPILE]
    subprocess.run(words, input=json.dumps(wanted), capture_output=True, text=True, check=True, env={})
    for name, source in layout.sources.items():
        layout.inputs.add(source)
        os.chmod(f"{layout.path}/{name}", 0o644)


def _lay_program(layout: Layout, extensions: list[str]) -> tuple[str, ...]:
    """Copy the interpreter with its loader and libraries; return the words that start it in the container."""
    program = runtime_elf.without_run_path(layout.read(layout.python))
    layout.put("card/bin/python3", program, mode=0o755)
    loader = runtime_elf.loader(layout.python)
    if loader is None:
        return (f"{CARD}/bin/python3",)
    found: dict[str, str] = {}
    for part in (layout.python, *extensions):
        found.update(runtime_elf.libraries(loader, part))
    for name, path in found.items():
        layout.put(f"card/lib/{name}", runtime_elf.without_run_path(layout.read(path)))
    layout.put("card/bin/ld.so", runtime_elf.without_preload_file(layout.read(loader)), mode=0o755)
    # The image's loader cache names the image's libraries (ld.so(8)); musl's loader has no cache and no such option.
    options = () if "musl" in os.path.basename(loader) else ("--inhibit-cache",)
    return (f"{CARD}/bin/ld.so", *options, "--library-path", f"{CARD}/lib", f"{CARD}/bin/python3")


def _lay_hooks(layout: Layout) -> None:
    for source in _sources(HOOK_SOURCES):
        layout.sources[f"hooks/{source}c"] = f"{runtime.package_root()}/{source}"
    layout.put(HOOK_CLIENT, layout.read(f"{runtime.package_root()}/{HOOK_CLIENT}"))


def _lay_seccomp(layout: Layout) -> None:
    """Write the filter for stage 2, and podman's own profile with the same list on top."""
    arch, deny = table.this_machine(), table.rules()
    layout.filter_rules = len(table.on(arch, deny))
    layout.put("card/filter.bpf", bpf.compile_filter(arch, deny))
    layout.put("card/filter.rules", str(layout.filter_rules).encode())
    layout.inputs.update(profile.BASES)
    base = json.loads(layout.read(profile.base_path()))
    layout.put("seccomp.json", json.dumps(profile.apply(base, deny), indent=1).encode())
    layout.inputs.update(f"{runtime.package_root()}/{source}" for source in _sources(BUILD_SOURCES))


def _lay_containers_conf(layout: Layout) -> None:
    layout.put("containers.conf", layout.read(f"{runtime.package_root()}/{CONTAINERS_CONF}"))


def _lay_hooksd(layout: Layout, final: str) -> None:
    argv = runtime.hook_argv(layout.python, final)
    for file in hooksd.pair(path=argv[0], args=argv):
        layout.put(f"hooks.d/{file.name}", hooksd.render(file).encode())


def _try(layout: Layout) -> None:
    """Run the interpreter where it lies; raises Refused when it does not start, or reaches outside the runtime."""
    here = f"{layout.path}/card"
    words = [word.replace(CARD, here) for word in layout.argv[:-1]]
    done = subprocess.run([*words, "-c", _TRY], capture_output=True, text=True, check=False, env={}, cwd="/")
    strangers = [path for path in done.stdout.split() if not path.startswith(f"{here}/")]
    # A Python that misses a part of itself says so on stderr and goes on.
    if done.returncode or strangers or done.stderr:
        said = done.stderr.strip().splitlines()[-1:] or strangers
        hint = "is the cache on a noexec mount? set XDG_CACHE_HOME to another place"
        raise Refused([Refusal("runtime-unbuildable", f"the relocated {layout.python} fails: {' '.join(said)}", hint)])


def content_digest(path: str, *, hooksd: bool = False) -> str:
    """Return the SHA-256 of a runtime's names, modes and content; hooks.d, which names the digest, only on request."""
    total = hashlib.sha256()
    for name in _names(path):
        if hooksd or not name.startswith("hooks.d"):
            status = os.lstat(f"{path}/{name}")
            content = _content(f"{path}/{name}") if stat.S_ISREG(status.st_mode) else "-"
            total.update(f"{status.st_mode:o} {content} {name}\0".encode("utf-8", "surrogateescape"))
    return total.hexdigest()


def _content(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def _names(path: str) -> list[str]:
    """Return every file, folder and link below a path, relative to it and sorted."""
    found = [os.path.join(folder, name) for folder, folders, files in os.walk(path) for name in (*folders, *files)]
    return sorted(os.path.relpath(name, path) for name in found)


def _put_in_place(layout: Layout, final: str) -> None:
    """Make `final` the runtime: what is there already stays if it is the same to the last bit, and else is replaced."""
    if os.path.isdir(final) and not os.path.islink(final) and _same(final, layout.path):
        os.chmod(final, 0o700)
        return
    if os.path.lexists(final):
        os.rename(final, f"{layout.path}.replaced")
    os.rename(layout.path, final)
    shutil.rmtree(f"{layout.path}.replaced", ignore_errors=True)


def _same(one: str, other: str) -> bool:
    return content_digest(one, hooksd=True) == content_digest(other, hooksd=True)


def _write_manifest(cache: str, layout: Layout, digest: str, final: str) -> None:
    items = [("schema", runtime.SCHEMA), ("digest", digest), ("python", layout.python)]
    items += [("filter_rules", str(layout.filter_rules)), *(("argv", word) for word in layout.argv)]
    items += [("input", f"{runtime.input_mark(path)} {path}") for path in sorted(layout.inputs)]
    items += [("output", f"{runtime.output_mark(f'{final}/{name}')} {name}") for name in _names(final)]
    place = f"{cache}/{runtime.manifest_name()}"
    with open(f"{place}.new", "wb") as file:
        file.write(records.dump(items))
    os.rename(f"{place}.new", place)
