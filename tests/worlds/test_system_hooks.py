"""The hooks registered for every user of a bench by its root, in podman's own directory and in another."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.test_install import as_user

OTHER = "/etc/containers/oci/hooks.d"
PLACES = (Path("/usr/local/lib/card-run"), Path("/usr/share/containers"), Path(OTHER), Path("/etc/containers"))
CARD = "PATH=/usr/local/bin:$PATH; "


def everything() -> list[str]:
    """Return every file and folder where a registration could leave one."""
    return sorted({str(path) for place in PLACES if place.exists() for path in place.rglob("*")})


def root(*words: str) -> None:
    """Run `card hooks` as root."""
    done = subprocess.run(["card", "hooks", *words, "--system"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("where", [(), ("--hooks-dir", OTHER)])
def test_for_every_user(where: tuple[str, ...]) -> None:
    """A user who registered nothing has hooks that fire, a prepared card starts, and root undoes all of it."""
    before = everything()
    root("install", *where)
    try:
        done = as_user(f"{CARD} card hooks status --system --json {' '.join(where)}")
        told: dict[str, Any] = json.loads(done.stdout)
        assert done.returncode == 0, told
        assert told["stages"] == ["createRuntime"]
        done = as_user(f"{CARD} card prepare --net none -- echo ran >/tmp/prepared && sh /tmp/prepared")
        assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    finally:
        root("uninstall", *where)
    assert everything() == before
    done = as_user(f"{CARD} card hooks status --system --json {' '.join(where)}")
    assert done.returncode == 1


def test_where_the_bench_names_other_directories() -> None:
    """A bench whose containers.conf leaves podman's own directory out gets a drop-in, and keeps its own hooks."""
    main = Path("/etc/containers/containers.conf")
    there, before = everything(), main.read_bytes() if main.exists() else None
    main.write_text('[engine]\nhooks_dir = ["/etc/site-hooks"]\n')
    try:
        root("install")
        done = as_user(f"{CARD} card hooks status --json")
        root("uninstall")
    finally:
        main.unlink() if before is None else main.write_bytes(before)
    told = {one["name"]: one for one in json.loads(done.stdout)["findings"]}
    assert done.returncode == 0, told
    assert told["containers.conf"]["found"].endswith("/etc/site-hooks, /usr/share/containers/oci/hooks.d")
    assert everything() == there


def test_a_user_may_not() -> None:
    """An ordinary user cannot register for everybody, and is told; nothing is written."""
    before = everything()
    done = as_user(f"{CARD} card hooks install --system")
    assert done.returncode == 2
    assert "reason=registration-unwritable " in done.stderr
    assert "as root" in done.stderr
    assert everything() == before


def test_root_is_told_what_it_cannot_try() -> None:
    """Root's own status looks, and says that only an ordinary user can prove it."""
    root("install")
    try:
        done = subprocess.run(["card", "hooks", "status", "--json"], capture_output=True, text=True, check=False)
    finally:
        root("uninstall")
    found = {one["name"]: one for one in json.loads(done.stdout)["findings"]}
    assert done.returncode == 1
    assert found["ownership"]["good"]
    assert "ordinary user" in found["trial"]["hint"]
