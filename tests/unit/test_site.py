"""The site's own hook directories are kept, whichever containers.conf names them; a commented option names none."""

from pathlib import Path

import pytest

from launcher.run import site
from oci.refusal import Refused

DEFAULT = "/usr/share/containers/oci/hooks.d"


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the one containers.conf that counts."""
    path = tmp_path / "containers.conf"
    monkeypatch.setenv("CONTAINERS_CONF", str(path))
    return path


def test_default(conf: Path) -> None:
    """Without a file, or with the option in a comment only, it is podman's own directory."""
    assert site.hooks_dirs() == (DEFAULT,)
    conf.write_text('[engine]\n#hooks_dir = ["/x"]\n  # hooks_dir = ["/y"]\n')
    assert site.hooks_dirs() == (DEFAULT,)


def test_named(conf: Path) -> None:
    """The option replaces the default, and with podman's append marker adds to it."""
    conf.write_text('[engine]\n  hooks_dir = ["/a", "/b"]\n')
    assert site.hooks_dirs() == ("/a", "/b")
    conf.write_text('[engine]\nhooks_dir = ["/a", {append=true}]\n')
    assert site.hooks_dirs() == (DEFAULT, "/a")


def test_later_files_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's drop-ins come after the user's file."""
    monkeypatch.delenv("CONTAINERS_CONF", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    drop_ins = tmp_path / "containers/containers.conf.d"
    drop_ins.mkdir(parents=True)
    (tmp_path / "containers/containers.conf").write_text('[engine]\nhooks_dir = ["/first"]\n')
    (drop_ins / "9.conf").write_text('[engine]\nhooks_dir = ["/last"]\n')
    assert site.hooks_dirs() == ("/last",)


def test_what_cannot_be_parsed_is_refused(conf: Path) -> None:
    """A broken file that sets the option is a refusal that names it."""
    conf.write_text("hooks_dir = [\n")
    with pytest.raises(Refused, match=str(conf)):
        site.hooks_dirs()
