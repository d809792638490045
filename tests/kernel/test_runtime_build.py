"""The runtime: built once, checked before every use, rebuilt when anything about it differs, owner-only."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launcher import runtime, runtime_build, runtime_elf, runtime_prune
from launcher.run import directory
from launcher.runtime import Runtime
from launcher.seccomp import bpf, profile, table
from oci import hooksd
from oci.refusal import Refused
from tests.kernel.card import BASE_PROFILE, Card

BUILD = """
import sys
sys.path.insert(0, sys.argv[1])
from launcher.seccomp import profile
profile.BASES = (sys.argv[3],)
from launcher import runtime
built = runtime.ensure(sys.argv[2])
print(built.path, built.python, *built.argv, sep="\\n")
"""


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a podman profile that this machine is taken to have."""
    path = tmp_path / "seccomp.json"
    path.write_text(BASE_PROFILE)
    monkeypatch.setattr(profile, "BASES", (str(path),))
    return path


@pytest.fixture
def cache(tmp_path: Path, base: Path) -> Iterator[str]:
    """Return an owner-only cache that is still to be made."""
    del base
    path = tmp_path / "cache"
    yield str(path)
    shutil.rmtree(path, ignore_errors=True)


def test_a_runtime_is_built_once(cache: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The first call builds and says so, the next finds it and is silent."""
    first = runtime.ensure(cache)
    assert capsys.readouterr().err.startswith("card-run: building the runtime ")
    second = runtime.ensure(cache)
    assert capsys.readouterr().err == ""
    assert (first.path, first.argv, first.digest) == (second.path, second.argv, second.digest)
    assert Path(first.path).name == f"runtime-{first.digest}" == f"runtime-{runtime_build.content_digest(first.path)}"
    left = {name.partition("-")[0] for name in os.listdir(cache)}
    assert left == {"lock", "manifest", "runtime"}


def test_it_is_the_owner_s_and_readable_by_the_card(cache: str) -> None:
    """Nobody else gets into the cache; what is mounted in the card can be read by whatever user that has."""
    built = runtime.ensure(cache)
    for path in (cache, built.path):
        assert Path(path).stat().st_mode == 0o040700
    for folder, _, names in os.walk(built.card_dir):
        assert Path(folder).stat().st_mode & 0o777 == 0o755
        for name in names:
            expected = 0o755 if Path(folder).name == "bin" else 0o644
            assert (Path(folder) / name).stat().st_mode & 0o777 == expected


def _rewrite(path: Path) -> None:
    """Change one byte and put every time but the change time back."""
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _replace_by_link(path: Path) -> None:
    copy = path.with_suffix(".copy")
    path.rename(copy)
    path.symlink_to(copy.name)


TAMPERINGS: dict[str, Callable[[Runtime], object]] = {
    "a byte of the filter": lambda built: _rewrite(Path(built.card_dir, "filter.bpf")),
    "a byte of the interpreter": lambda built: _rewrite(Path(built.card_dir, "bin", "python3")),
    "a byte of the profile": lambda built: _rewrite(Path(built.seccomp_json)),
    "a byte of a hook": lambda built: _rewrite(Path(built.hooks_dir, "hooks", "prestart.pyc")),
    "a byte of a hook file": lambda built: _rewrite(Path(built.hooksd_dir, hooksd.PRESTART_FILE)),
    "a module added": lambda built: Path(built.hooks_dir, "json.pyc").write_bytes(b""),
    "a hook file added": lambda built: Path(built.hooksd_dir, "99-other.json").write_bytes(b"{}"),
    "a file gone": lambda built: Path(built.hooksd_dir, hooksd.POSTSTOP_FILE).unlink(),
    "a folder's mode": lambda built: Path(built.hooks_dir, "hooks").chmod(0o777),
    "a folder that is a link": lambda built: _replace_by_link(Path(built.hooks_dir, "oci")),
    "a mode": lambda built: Path(built.card_dir, "stage2.pyc").chmod(0o666),
    "a link in a file's place": lambda built: _replace_by_link(Path(built.card_dir, "filter.bpf")),
    "the directory opened": lambda built: Path(built.path).chmod(0o755),
    "the directory a link": lambda built: _replace_by_link(Path(built.path)),
    "the directory gone": lambda built: shutil.rmtree(built.path),
}


@pytest.mark.parametrize("what", sorted(TAMPERINGS))
def test_what_is_not_as_it_was_built_is_built_again(cache: str, what: str) -> None:
    """Each change is seen by stat alone, and the runtime is whole again afterwards."""
    first = runtime.ensure(cache)
    whole = runtime_build.content_digest(first.path, hooksd=True)
    TAMPERINGS[what](first)
    assert runtime.lookup(cache) is None
    again = runtime.ensure(cache)
    assert again.digest == first.digest == runtime_build.content_digest(again.path)
    assert runtime_build.content_digest(again.path, hooksd=True) == whole
    assert sorted(os.listdir(again.hooksd_dir)) == [hooksd.POSTSTOP_FILE, hooksd.PRESTART_FILE]
    found = runtime.lookup(cache)
    assert found is not None
    assert found.path == again.path


@pytest.mark.parametrize("bad", [b"", b"schema=1\0", b"rubbish", b"schema=2\0digest=x\0"])
def test_a_manifest_that_is_none_is_built_again(cache: str, bad: bytes) -> None:
    """Whatever stands in the manifest's place."""
    first = runtime.ensure(cache)
    Path(cache, runtime.manifest_name()).write_bytes(bad)
    assert runtime.lookup(cache) is None
    assert runtime.ensure(cache).path == first.path


def test_a_changed_profile_is_a_new_runtime(cache: str, base: Path) -> None:
    """The profile of the machine is an input like every source: a new one is followed."""
    first = runtime.ensure(cache)
    base.write_text(json.dumps({**json.loads(BASE_PROFILE), "comment": "changed"}))
    assert runtime.lookup(cache) is None
    assert runtime.ensure(cache).digest != first.digest


def _elsewhere(python: str, root: Path, cache: str, base: Path) -> "subprocess.Popen[str]":
    """Start a build by another interpreter or from another copy of the code."""
    words = [python, "-I", "-c", BUILD, str(root), cache, str(base)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _copy(target: Path) -> Path:
    for name in ("launcher", "hooks", "oci"):
        shutil.copytree(
            Path(runtime.package_root()) / name, target / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    return target


@pytest.mark.parametrize(
    "file", ["launcher/stage2/worker.py", "hooks/prestart.py", "oci/records.py", "launcher/seccomp/table.py"]
)
def test_a_changed_source_is_a_new_runtime(tmp_path: Path, cache: str, base: Path, file: str) -> None:
    """Every source that goes in, or decides what goes in, is an input."""
    root = _copy(tmp_path / "code")
    done = [_elsewhere(sys.executable, root, cache, base).communicate(timeout=60)]
    done.append(_elsewhere(sys.executable, root, cache, base).communicate(timeout=60))
    with (root / file).open("a") as source:
        source.write("\n# changed\n")
    done.append(_elsewhere(sys.executable, root, cache, base).communicate(timeout=60))
    assert [err.count("building") for _, err in done] == [1, 0, 1]


def test_two_copies_of_the_code_do_not_rebuild_in_turns(tmp_path: Path, cache: str, base: Path) -> None:
    """Each has its own manifest; what they build alike they share."""
    first = runtime.ensure(cache)
    out, _ = _elsewhere(sys.executable, _copy(tmp_path / "code"), cache, base).communicate(timeout=60)
    assert out.splitlines()[0] == first.path
    assert runtime.lookup(cache) is not None


def test_builders_at_the_same_time_agree(cache: str, base: Path) -> None:
    """One builds, the others wait and find it; nothing half-built is left."""
    root = Path(runtime.package_root())
    builders = [_elsewhere(sys.executable, root, cache, base) for _ in range(4)]
    done = [builder.communicate(timeout=120) for builder in builders]
    assert [builder.returncode for builder in builders] == [0] * 4, done
    assert len({out for out, _ in done}) == 1
    assert sum("building" in err for _, err in done) == 1
    assert not [name for name in os.listdir(cache) if name.startswith("building-")]


def test_without_podman_s_profile_it_is_refused(cache: str, base: Path) -> None:
    """There is nothing to put the list on top of; nothing is left but the folder and its lock."""
    base.unlink()
    with pytest.raises(Refused, match="no-podman-profile"):
        runtime.ensure(cache)
    assert os.listdir(cache) == ["lock"]


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o1700])
def test_a_cache_that_others_can_enter_is_refused(cache: str, mode: int) -> None:
    """The mode must be exactly the owner's."""
    Path(cache).mkdir()
    Path(cache).chmod(mode)
    with pytest.raises(Refused, match="cache-not-ours"):
        runtime.ensure(cache)


def test_a_cache_that_is_a_link_is_refused(cache: str, tmp_path: Path) -> None:
    """Where it leads could be changed by whoever owns the link."""
    (tmp_path / "real").mkdir(mode=0o700)
    Path(cache).symlink_to(tmp_path / "real")
    with pytest.raises(Refused, match="cache-not-ours"):
        runtime.ensure(cache)


def test_the_cache_is_where_the_specification_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """XDG_CACHE_HOME when absolute, else below HOME; with neither it is refused."""
    monkeypatch.setenv("HOME", "/home/u")
    for value, expected in (
        ("/c", "/c/card-run"),
        ("relative", "/home/u/.cache/card-run"),
        ("", "/home/u/.cache/card-run"),
    ):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert runtime.default_cache() == expected
    monkeypatch.delenv("HOME")
    with pytest.raises(Refused, match="no-cache-directory"):
        runtime.default_cache()


def test_what_is_laid_out_is_what_the_list_says(cache: str) -> None:
    """Filter, its count, profile, hooks.d and containers.conf are the ones of this code."""
    built = runtime.ensure(cache)
    arch = table.this_machine()
    assert Path(built.card_dir, "filter.bpf").read_bytes() == bpf.compile_filter(arch, table.rules())
    assert (
        int(Path(built.card_dir, "filter.rules").read_text())
        == built.filter_rules
        == len(table.on(arch, table.rules()))
    )
    assert json.loads(Path(built.seccomp_json).read_text()) == profile.apply(json.loads(BASE_PROFILE), table.rules())
    conf = Path(runtime.package_root(), runtime_build.CONTAINERS_CONF)
    assert Path(built.containers_conf).read_bytes() == conf.read_bytes()
    for name, verb in ((hooksd.PRESTART_FILE, "prestart"), (hooksd.POSTSTOP_FILE, "poststop")):
        file = hooksd.parse(name, Path(built.hooksd_dir, name).read_bytes())
        assert file.args == (*built.hook_argv, verb)
        assert file.path == built.python == runtime.base_python()


def test_the_hooks_start(cache: str) -> None:
    """The hooks' program runs from the runtime with nothing of the caller's; an unknown verb is its own error."""
    built = runtime.ensure(cache)
    done = subprocess.run([*built.hook_argv, "nothing"], capture_output=True, text=True, check=False, env={}, cwd="/")
    assert done.returncode == 2
    assert done.stderr.startswith("usage: hooks ")


def test_programs_carry_no_search_paths(cache: str) -> None:
    """Taking the run paths out again changes nothing, and the loader has lost its preload file's name."""
    built = runtime.ensure(cache)
    for folder, _, names in os.walk(built.card_dir):
        for path in (Path(folder, name) for name in names):
            data = path.read_bytes()
            if data.startswith(b"\x7fELF"):
                assert runtime_elf.without_run_path(data) == data
    loader = Path(built.card_dir, "bin", "ld.so")
    if loader.exists():
        assert b"/etc/ld.so.preload" not in loader.read_bytes()
        assert b"/etc/ld.so.preload" in Path(runtime_elf.loader(built.python) or "").read_bytes()


def _changed(base: Path, comment: str) -> None:
    """Change what the runtime is made from, as an upgrade does."""
    base.write_text(json.dumps({**json.loads(BASE_PROFILE), "comment": comment}))


def _days_pass(cache: str) -> None:
    """Set every time in the cache back by more than a runtime may be out of use, but for what a manifest looks at."""
    past = time.time() - runtime_prune.UNUSED_SECONDS - 60
    for entry in os.scandir(cache):
        os.utime(entry.path, (past, past))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a run directory, the only one there is."""
    path = tmp_path / "runs" / "c0"
    (path / "hooks.d").mkdir(parents=True)
    monkeypatch.setattr(directory, "parents", lambda: [str(path.parent)])
    return path


def _living(cache: str) -> set[str]:
    """Return the runtimes in the cache, which holds nothing else but manifests, the lock, and notes of runtimes."""
    names = os.listdir(cache)
    found = {name for name in names if name.startswith("runtime-")}
    rest = {name for name in names if not name.startswith(("runtime-", "manifest-", "unused-"))}
    assert rest == {"lock"}
    assert {name.removeprefix("unused-") for name in names if name.startswith("unused-")} < found
    return found


@pytest.mark.usefixtures("run")
def test_a_runtime_goes_a_day_after_it_fell_out_of_use(cache: str, base: Path) -> None:
    """However long ago it was built: the upgrade that replaces it leaves it, and so does the next one within a day."""
    first = runtime.ensure(cache)
    _days_pass(cache)
    _changed(base, "one")
    second = runtime.ensure(cache)
    assert _living(cache) == {Path(built.path).name for built in (first, second)}
    _changed(base, "two")
    third = runtime.ensure(cache)
    assert _living(cache) == {Path(built.path).name for built in (first, second, third)}
    _days_pass(cache)
    _changed(base, "three")
    fourth = runtime.ensure(cache)
    assert _living(cache) == {Path(built.path).name for built in (third, fourth)}


@pytest.mark.usefixtures("run")
def test_a_runtime_that_comes_back_into_use_is_as_good_as_new(cache: str, base: Path) -> None:
    """The day begins again when it falls out of use again."""
    first = runtime.ensure(cache)
    _changed(base, "one")
    runtime.ensure(cache)
    _days_pass(cache)
    base.write_text(BASE_PROFILE)
    assert runtime.ensure(cache).path == first.path
    _changed(base, "two")
    runtime.ensure(cache)
    assert Path(first.path).exists()


@pytest.mark.parametrize("name", ["plan.json", f"hooks.d/{hooksd.POSTSTOP_FILE}"])
def test_a_runtime_of_a_run_that_is_there_stays(cache: str, base: Path, run: Path, name: str) -> None:
    """A card that runs for days keeps what `card exec` and its hooks start from; once it is gone, so is that."""
    first = runtime.ensure(cache)
    (run / name).write_text(json.dumps({"args": ["sh", first.client]}))
    for comment in ("one", "two"):
        _days_pass(cache)
        _changed(base, comment)
        runtime.ensure(cache)
    assert Path(first.path).exists()
    (run / name).unlink()
    _changed(base, "three")
    runtime.ensure(cache)
    assert not Path(first.path).exists()


@pytest.mark.usefixtures("run")
def test_a_manifest_that_nobody_can_go_by_keeps_nothing(tmp_path: Path, cache: str, base: Path) -> None:
    """Of a Python or a copy of the code that is gone, or damaged: its runtime is out of use too."""
    root = _copy(tmp_path / "code")
    with (root / "hooks/prestart.py").open("a") as source:
        source.write("\nCHANGED = 1\n")
    path = Path(_elsewhere(sys.executable, root, cache, base).communicate(timeout=60)[0].splitlines()[0])
    runtime.ensure(cache)
    assert len(list(Path(cache).glob("manifest-*"))) == 2
    shutil.rmtree(root)
    Path(cache, "manifest-0").write_bytes(b"rubbish")
    for comment in ("one", "two"):
        _changed(base, comment)
        runtime.ensure(cache)
        assert path.exists() == (comment == "one")
        assert os.listdir(cache).count(runtime.manifest_name()) == len(list(Path(cache).glob("manifest-*"))) == 1
        _days_pass(cache)


def _other_pythons() -> list[str]:
    """Return the machine's other Pythons that are new enough: Debian's beside pyenv's, say."""
    found: list[str] = []
    for candidate in ("/usr/bin/python3", "/usr/local/bin/python3"):
        check = "import sys; sys.exit(sys.version_info < (3, 11))"
        path = os.path.realpath(candidate)
        if (
            Path(path).exists()
            and path != runtime.base_python()
            and not subprocess.run([path, "-c", check], check=False).returncode
        ):
            found.append(path)
    return found


def test_another_python_makes_another_runtime(cache: str, base: Path) -> None:
    """Every Python of the machine can be relocated, and its stage 2 builds every wall in an empty root."""
    first = runtime.ensure(cache)
    for python in [*_other_pythons(), sys.executable]:
        out, err = _elsewhere(python, Path(runtime.package_root()), cache, base).communicate(timeout=60)
        path, base_python, *argv = out.splitlines()
        assert err == "" or path != first.path
        values = {"digest": [path.rpartition("-")[2]], "python": [base_python], "argv": argv, "filter_rules": ["0"]}
        outcome = Card(Runtime(path, values), ["worker"], system=False).run()
        assert (outcome.report["status"], outcome.status) == (["ok"], 127)
    assert runtime.lookup(cache) is not None
