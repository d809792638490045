"""Which folders of PATH programs are looked for in, and which podman that gives."""

import ast
import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher import launch
from launcher.fs import searched
from launcher.fs.paths import READ, WRITE, Root
from launcher.request import Request
from oci.refusal import Refused

ROOT = Path(__file__).parents[2]


def program(path: Path) -> str:
    """Make a program, with the folder that it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def owners(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, int, int]]:
    """Return the owner, group and mode of paths, root's alone if they are not in it; an ACL lets us write `acl`."""
    told: dict[str, tuple[int, int, int]] = {}
    real, access = os.lstat, os.access

    def look(path: str) -> Any:
        found = real(path)
        owner, group, mode = told.get(path, (0, 0, 0o755))
        return SimpleNamespace(st_uid=owner, st_gid=group, st_mode=stat.S_IFMT(found.st_mode) | mode)

    monkeypatch.setattr(os, "lstat", look)
    monkeypatch.setattr(os, "getgroups", lambda: [100])
    monkeypatch.setattr(os, "getegid", lambda: 1000)
    monkeypatch.setattr(os, "access", lambda path, how: path.endswith("acl") if how == os.W_OK else access(path, how))
    monkeypatch.delenv(searched.NAMED, raising=False)
    return told


def looked(monkeypatch: pytest.MonkeyPatch, *folders: object) -> searched.Programs:
    """Return what a PATH of these folders comes to."""
    monkeypatch.setenv("PATH", ":".join(map(str, folders)))
    return searched.look()


@pytest.mark.parametrize(
    ("whose", "trusted"),
    [
        ((0, 0, 0o755), True),
        ((0, 0, 0o775), True),  # the group is root's, in which we are not
        ((0, 100, 0o755), True),
        ((0, 100, 0o775), False),
        ((0, 1000, 0o775), False),
        ((0, 0, 0o757), False),
        ((0, 0, 0o1777), False),
        ((1000, 1000, 0o755), False),
        ((65534, 65534, 0o755), False),
    ],
)
@pytest.mark.parametrize("which", ["bin", "."])
def test_what_is_trusted(
    whose: tuple[int, int, int],
    trusted: bool,  # noqa: FBT001 - a column of the table
    which: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """Root's, and nobody's else to write: the folder and every one above it; the control is PATH's next folder."""
    owners, monkeypatch = request.getfixturevalue("owners"), request.getfixturevalue("monkeypatch")
    first, other = tmp_path / "a/bin", tmp_path / "other"
    program(first / "podman")
    second = program(other / "podman")
    owners[os.path.normpath(tmp_path / "a" / which)] = whose
    found = looked(monkeypatch, first, other)
    assert found.podman == (str(first / "podman") if trusted else second)
    assert found.folders == ((str(first), str(other)) if trusted else (str(other),))
    assert found.passed == (() if trusted else (str(first / "podman"),))
    assert found.before == ()


def test_an_acl_is_asked(
    tmp_path: Path, owners: dict[str, tuple[int, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an ACL lets us write is not root's alone: its mask are the bits of the group."""
    for name, trusted in (("acl", False), ("bin", True)):
        owners[str(tmp_path / name)] = (0, 0, 0o775)
        (tmp_path / name).mkdir()
        assert (str(tmp_path / name) in looked(monkeypatch, tmp_path / name).folders) is trusted


def test_the_real_path_counts(
    tmp_path: Path, owners: dict[str, tuple[int, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link of ours into a trusted folder is searched by that folder's own name, which nobody can lead elsewhere."""
    found = program(tmp_path / "real/podman")
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours/link").symlink_to("../real")
    (tmp_path / "loop").symlink_to("loop")
    owners[str(tmp_path / "ours")] = (1000, 1000, 0o755)
    for name in ("ours/link", "ours/../real", "real/", "real/."):
        looks = looked(monkeypatch, tmp_path / "loop", tmp_path / "missing", f"{tmp_path}/{name}")
        assert (looks.podman, looks.folders) == (found, (str(tmp_path / "real"),))
    (tmp_path / "out").symlink_to("ours")
    program(tmp_path / "ours/podman")
    assert looked(monkeypatch, tmp_path / "out").folders[-1] == f"{tmp_path}/out"


def test_podman_that_is_nowhere_else(
    tmp_path: Path, owners: dict[str, tuple[int, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is used with its own folder last, whatever PATH's order is; what is before it is not searched."""
    for name in ("early", "ours", "late"):
        owners[str(tmp_path / name)] = (1000, 1000, 0o755)
        (tmp_path / name).mkdir()
    (tmp_path / "roots").mkdir()
    found = program(tmp_path / "ours/podman")
    looks = looked(monkeypatch, "", ".", "bin", *(tmp_path / name for name in ("early", "ours", "roots", "late")))
    assert (looks.podman, looks.folders) == (found, (str(tmp_path / "roots"), str(tmp_path / "ours")))
    assert (looks.before, looks.passed, looks.notes) == ((f"{tmp_path}/early/podman",), (), ())
    # With none at all, each place is one where the next would be found.
    os.unlink(found)
    looks = looked(monkeypatch, *(tmp_path / name for name in ("early", "ours", "roots", "late")))
    assert looks.podman is None
    assert looks.before == tuple(f"{tmp_path}/{name}/podman" for name in ("early", "ours", "late"))


def test_podman_that_is_passed_over(
    tmp_path: Path, owners: dict[str, tuple[int, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One earlier on PATH is told, once; neither one that is later, nor another name of the one that is used, is."""
    for name in ("early", "same", "late"):
        owners[str(tmp_path / name)] = (1000, 1000, 0o755)
    used, early = program(tmp_path / "roots/podman"), program(tmp_path / "early/podman")
    program(tmp_path / "late/podman")
    (tmp_path / "same").mkdir()
    (tmp_path / "same/podman").symlink_to(used)
    looks = looked(monkeypatch, *(tmp_path / name for name in ("early", "same", "roots", "late")))
    (note,) = looks.notes
    assert all(word in note for word in (early, used, searched.NAMED))
    assert looks.passed == (early,)
    assert looked(monkeypatch, tmp_path / "roots", tmp_path / "early").notes == ()


def test_podman_that_is_named(
    tmp_path: Path, owners: dict[str, tuple[int, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the one, with its folder last and without a note; what is no program is a refusal."""
    owners[str(tmp_path / "ours")] = (1000, 1000, 0o755)
    named = program(tmp_path / "ours/podman-6")
    program(tmp_path / "roots/podman")
    monkeypatch.setenv(searched.NAMED, named)
    looks = looked(monkeypatch, tmp_path / "ours", tmp_path / "roots")
    assert (looks.podman, looks.folders) == (named, (str(tmp_path / "roots"), str(tmp_path / "ours")))
    assert (looks.before, looks.notes) == ((), ())
    for wrong in ("podman", "./podman", f"{tmp_path}/none", str(tmp_path), "/etc/passwd"):
        monkeypatch.setenv(searched.NAMED, wrong)
        with pytest.raises(Refused) as refused:
            searched.look()
        assert [one.reason for one in refused.value.refusals] == ["bad-podman"]
        judged = launch.judge(Request(command=("true",), resolver="192.0.2.1"))[1]
        assert "bad-podman" in [one.reason for one in judged]
    monkeypatch.setenv(searched.NAMED, "")
    assert searched.look().podman == f"{tmp_path}/roots/podman"


def test_path_is_never_empty(
    tmp_path: Path, owners: dict[str, tuple[int, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a folder of root's on PATH there are the system's own, and even where root is not to be seen."""
    owners[str(tmp_path)] = (1000, 1000, 0o755)
    assert "/usr/bin" in looked(monkeypatch, tmp_path).path.split(":")
    owners["/"] = (65534, 65534, 0o755)
    assert looked(monkeypatch, tmp_path).path == "/usr/bin:/bin"
    owners.clear()
    colon = tmp_path / "a:b"
    monkeypatch.setenv(searched.NAMED, program(colon / "podman"))
    assert looked(monkeypatch, "/usr/bin").path == "/usr/bin"


def test_a_program_by_its_name(
    tmp_path: Path, owners: dict[str, tuple[int, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found in a folder of root's, or refused: a worker's own of that name is no program of the bench."""
    owners[str(tmp_path / "ours")] = (1000, 1000, 0o755)
    program(tmp_path / "ours/nsenter")
    monkeypatch.setenv("PATH", f"{tmp_path}/ours:{tmp_path}/roots")
    (tmp_path / "roots").mkdir()
    with pytest.raises(Refused) as refused:
        searched.program("nsenter")
    assert [one.reason for one in refused.value.refusals] == ["no-program"]
    real = program(tmp_path / "roots/nsenter")
    assert searched.program("nsenter") == real
    assert searched.environment()["PATH"] == f"{tmp_path}/roots"


def test_what_a_worker_could_plant(tmp_path: Path) -> None:
    """Of the places before podman, those in a write root are looked at after the run."""
    found = os.stat(tmp_path)
    root = Root(access=WRITE, path=str(tmp_path), directory=True, device=found.st_dev, inode=found.st_ino)
    before = (f"{tmp_path}/bin/podman", "/elsewhere/podman")
    assert searched.planted(before, (root,)) == before[:1]
    assert searched.planted(before, (root.replace(access=READ),)) == ()


# Python by its own path, what runs inside a card, and what is a product's or a test's own.
ELSEWHERE = {
    *("executor/child.py", "conformance/scene.py", "conformance/subject.py", "life/sweep.py"),
    *("probe/inside.py", "pool/daemon.py"),
}
STARTS = {"run", "Popen", "posix_spawn", "posix_spawnp", "execv", "execve", "execvp", "system", "popen", "spawnv"}


def starts(path: Path) -> list[ast.Call]:
    """Return the calls in a file that start a program."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    modules = {"os", "subprocess"}
    return [
        call
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in STARTS
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id in modules
    ]


def test_every_program_is_started_with_an_environment_of_its_own() -> None:
    """Nothing that card-run starts on the bench has our PATH by default, nor os.environ as it is."""
    found = 0
    for path in (ROOT / "launcher").rglob("*.py"):
        name = str(path.relative_to(ROOT / "launcher"))
        for call in starts(path) if name not in ELSEWHERE and not name.startswith("stage2/") else ():
            given = [*call.args[2:3], *(one.value for one in call.keywords if one.arg == "env")]
            assert given, f"{name}:{call.lineno}"
            assert "os.environ" not in ast.unparse(given[0]), f"{name}:{call.lineno}"
            found += 1
    assert found > 15
