"""What a package holds: entries, completions that follow the options, and a list by which all of it is removed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from infra.packaging import completion, entry, install
from launcher.options import OPTIONS
from launcher.run import site
from oci.refusal import Refused

COMPLETE = """
compopt() { :; }
source "$1"
COMP_WORDS=("${@:2}") COMP_CWORD=$(($# - 2))
_card_run card-run "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(script: Path, *words: str) -> set[str]:
    """Return what bash offers for the last of some words."""
    done = subprocess.run(["bash", "-c", COMPLETE, "bash", script, *words], capture_output=True, text=True, check=True)
    assert not done.stderr
    return set(done.stdout.split())


def test_bash_completes(tmp_path: Path) -> None:
    """Options by their beginning, values by their option, and nothing of ours after the worker begins."""
    script = tmp_path / "card-run"
    script.write_text(completion.scripts()["share/bash-completion/completions/card-run"])
    assert completed(script, "card-run", "--ne") == {"--net"}
    assert completed(script, "card-run", "--net", "") == {"pasta", "slirp", "bridge", "none"}
    assert completed(script, "card-run", "--") >= {f"--{option.name}" for option in OPTIONS}
    assert completed(script, "card-run", "--memory", "") == set()
    assert completed(script, "card-run", "--", "--ne") == set()


def test_every_option_in_every_shell() -> None:
    """Each option of card-run is offered in each shell, and card's own completion is there for each."""
    scripts = completion.scripts()
    assert len(scripts) == 6
    for place, text in scripts.items():
        if place.endswith(("card-run", "card-run.fish")):
            flag = "-l {} " if place.endswith(".fish") else "--{}"
            assert all(flag.format(option.name) in text for option in OPTIONS), place
        else:
            assert "_CARD_COMPLETE" in text


@pytest.mark.parametrize("command", entry.COMMANDS)
def test_an_entry_starts_python_bare(command: str) -> None:
    """No site, no caller's variables; the packages first, the dependencies' folders last."""
    text = entry.text(entry.COMMANDS[command], python="/usr/bin/python3", lib="/l", dependencies=["/d", "/e"])
    assert text.startswith("#!/usr/bin/python3 -IS\n")
    program = text.partition("from ")[0] + "print(sys.path[0], sys.path[-2:], 'site' in sys.modules)"
    done = subprocess.run([sys.executable, "-IS", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "/l ['/d', '/e'] False\n"


def everything(top: Path) -> set[str]:
    """Return every file below a folder."""
    return {str(path.relative_to(top)) for path in top.rglob("*") if path.is_file()}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a checkout whose manual pages are built."""
    built = tmp_path / "checkout/build/man"
    built.mkdir(parents=True)
    for name in ("card-run.1", "card.1", "card-file.5"):
        (built / name).write_text(".TH\n")
    for name in (*install.PACKAGES, "infra", *install.DOCUMENTS):
        os.symlink(install.CHECKOUT / name, tmp_path / "checkout" / name)
    monkeypatch.setattr(install, "CHECKOUT", tmp_path / "checkout")
    return tmp_path / "checkout"


@pytest.mark.usefixtures("checkout")
def test_everybody_may_read_what_is_installed(tmp_path: Path) -> None:
    """Whatever umask it is installed with."""
    before = os.umask(0o077)
    try:
        install.install(install.Place("/usr", str(tmp_path / "dest"), sys.executable, site.DEFAULT))
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
    closed = [path for path in (tmp_path / "dest/usr").rglob("*") if path.stat().st_mode & 0o044 != 0o044]
    assert closed == []
    assert all(path.stat().st_mode & 0o011 for path in (tmp_path / "dest").rglob("*") if path.is_dir())


@pytest.mark.usefixtures("checkout")
@pytest.mark.parametrize(("prefix", "destdir"), [("/usr", "rel"), ("usr", "")])
def test_a_place_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str, destdir: str) -> None:
    """It is refused before anything is written."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    with pytest.raises(Refused, match="absolute"):
        install.install(install.Place(prefix, destdir, sys.executable, site.DEFAULT))
    assert os.listdir() == []


@pytest.mark.usefixtures("checkout")
def test_install_and_uninstall(tmp_path: Path) -> None:
    """What is installed is listed to the last file, carries no DESTDIR, and is removed; what is not ours stays."""
    root = tmp_path / "dest"
    place = install.Place("/usr", str(root), sys.executable, site.DEFAULT)
    install.install(place)
    strange = root / "usr/lib/card-run/strange"
    strange.write_text("not ours")
    listed = {name.lstrip("/") for name in json.loads((root / f"usr/lib/card-run/{install.LIST}").read_text())}
    registered = {name for name in everything(root) if "/registered/" in name or "hooks.d" in name}
    left = everything(root) - listed - registered
    assert left == {"usr/lib/card-run/" + name for name in ("strange", install.LIST, "registration.json")}
    pages = {"usr/share/man/man1/card.1", "usr/share/man/man5/card-file.5"}
    assert {"usr/bin/card-run", "usr/bin/card", *pages} <= listed
    assert any(name.endswith("/launcher/cardfile/card.schema.json") for name in listed)
    texts = [path.read_bytes() for path in root.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert not any(str(root).encode() in text for text in texts)
    install.uninstall(install.Place("/usr", str(root), sys.executable, site.DEFAULT))
    assert everything(root) == {"usr/lib/card-run/strange"}


def test_what_a_later_release_dropped_goes(tmp_path: Path, checkout: Path) -> None:
    """Installed over an earlier release, nothing of that is left that is not in the later one, compiled or listed."""
    root = tmp_path / "dest"
    lib = root / "usr/lib/card-run"
    (checkout / "oci").unlink()
    shutil.copytree(Path(install.__file__).parents[2] / "oci", checkout / "oci")
    for name in ("dropped.py", "gone/__init__.py", "gone/data"):
        (checkout / "oci" / name).parent.mkdir(exist_ok=True)
        (checkout / "oci" / name).touch()
    install.install(install.Place("/usr", str(root), sys.executable, site.DEFAULT))
    first = everything(root)
    assert {"oci/dropped.py", "oci/gone/data"} <= {str(path.relative_to(lib)) for path in lib.rglob("*")}
    (checkout / "oci/dropped.py").unlink()
    shutil.rmtree(checkout / "oci/gone")
    (lib / "strange").touch()
    install.install(install.Place("/usr", str(root), sys.executable, site.DEFAULT))
    dropped = {name for name in first if "/oci/dropped" in name or "/oci/gone" in name or "/dropped." in name}
    assert len(dropped) > 4  # what was compiled of it, too
    assert everything(root) == first - dropped | {"usr/lib/card-run/strange"}
    assert not (lib / "oci/gone").exists()
    install.uninstall(install.Place("/usr", str(root), sys.executable, site.DEFAULT))
    assert everything(root) == {"usr/lib/card-run/strange"}


def test_an_installation_that_fails_forgets_nothing(tmp_path: Path, checkout: Path) -> None:
    """What was there before is still listed, and so removed when all is taken away."""
    root = tmp_path / "dest"
    install.install(install.Place("/usr", str(root), sys.executable, site.DEFAULT))
    (checkout / "build/man/card.1").unlink()
    with pytest.raises(install.InstallError, match="is not built"):
        install.install(install.Place("/usr", str(root), sys.executable, site.DEFAULT))
    assert (root / "usr/share/man/man1/card.1").is_file()
    install.uninstall(install.Place("/usr", str(root), sys.executable, site.DEFAULT))
    assert everything(root) == set()


def test_uninstall_of_nothing(tmp_path: Path) -> None:
    """Where nothing is installed it says so."""
    with pytest.raises(install.InstallError, match="nothing is installed"):
        install.uninstall(install.Place("/usr", str(tmp_path), sys.executable, site.DEFAULT))


def test_the_dependencies_are_those_of_the_project() -> None:
    """The list by which they are found is pyproject.toml's."""
    names = install._requirements(list(install.DEPENDENCIES))
    import tomllib

    project = tomllib.loads((install.CHECKOUT / "pyproject.toml").read_text())["project"]
    assert names == project["dependencies"]
