"""Nothing crosses unasked, and what `--env-host` passes cannot act or leak."""

from pathlib import Path

import pytest

from launcher import environment

DANGEROUS = {
    "SSH_AUTH_SOCK": "/tmp/agent",
    "LD_PRELOAD": "/tmp/x.so",
    "PYTHONPATH": "/tmp",
    "PYTHONSTARTUP": "/tmp/x.py",
    "NODE_OPTIONS": "--require /tmp/x.js",
    "BASH_ENV": "/tmp/x.sh",
    "_": "/usr/bin/card-run",
    "GIT_CONFIG_GLOBAL": "/tmp/x",
    "GIT_SSH_COMMAND": "/tmp/x",
    "TMPDIR": "/home/me/tmp",
    "https_proxy": "http://me:secret@proxy.example:3128",
    "HTTP_PROXY": "http://me:secret@proxy.example:3128",
    "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/user/1000/bus",
    "BASH_FUNC_ls%%": "() { :; }",
}
HARMLESS = {"LANG": "C.UTF-8", "EDITOR": "vi", "no_proxy": "localhost", "ftp_proxy": "http://proxy.example:3128"}


@pytest.fixture(autouse=True)
def known_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the test an environment that is known."""
    monkeypatch.setattr("os.environ", {**DANGEROUS, **HARMLESS, "TERM": "xterm"})


def decide(
    asked: tuple[str, ...] = (), files: tuple[str, ...] = (), *, host: bool = False
) -> tuple[dict[str, str], list[str], list[str]]:
    """Return the variables, the notes, and the refusals' reasons."""
    values, notes, refusals = environment.decide(home="/card", asked=asked, files=files, host=host)
    return dict(values), notes, [refusal.reason for refusal in refusals]


def test_nothing_unasked() -> None:
    """Only the card's own variables, and the terminal's kind."""
    assert decide() == ({"HOME": "/card", "TMPDIR": "/tmp", "TERM": "xterm"}, [], [])


def test_host_is_scrubbed_and_told() -> None:
    """Everything that could act or leak is left out and named in one note; the rest passes."""
    values, notes, _ = decide(host=True)
    assert {name for name in DANGEROUS if name in values} == {"TMPDIR"}
    assert values["TMPDIR"] == "/tmp"
    assert {name: values[name] for name in HARMLESS} == HARMLESS
    assert len(notes) == 1
    assert all(name in notes[0] for name in DANGEROUS)
    assert "secret" not in notes[0]


def test_what_is_named_passes() -> None:
    """A name that is asked for passes, even one that `--env-host` leaves out: it was asked for."""
    values, _, _ = decide(("LD_PRELOAD", "A=1=2", "EMPTY="), host=True)
    assert (values["LD_PRELOAD"], values["A"], values["EMPTY"]) == ("/tmp/x.so", "1=2", "")


def test_file(tmp_path: Path) -> None:
    """A file's lines are read as podman reads them; `--env` wins over them."""
    path = tmp_path / "env"
    path.write_text("# comment\n\nA=from file\nB=x=y\nLANG\n")
    values, _, reasons = decide(("A=from flag",), (str(path),))
    assert (values["A"], values["B"], values["LANG"], reasons) == ("from flag", "x=y", "C.UTF-8", [])


def test_bad_names_and_files(tmp_path: Path) -> None:
    """Every bad name and file is told, with its line."""
    path = tmp_path / "env"
    path.write_text("A B=1\nC=2\n")
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff=1\n")
    _, _, reasons = decide(("=x", "a b=1"), (str(path), str(binary), f"{tmp_path}/none"))
    assert sorted(reasons) == ["bad-env", "bad-env", "env-file", "env-file", "env-file"]
