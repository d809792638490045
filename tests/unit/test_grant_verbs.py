"""`card grant`: the command line of the verbs, what they print, and their exit statuses."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from launcher import bench, card
from launcher.bench import Bench
from launcher.verbs import grant

POLICY = "github.com\napi.github.com\nobjects.githubusercontent.com\n"
CLASS = ["--class", "filesystem.path.write.v1"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a place with a card that gates writing, and state of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(bench, "read", lambda: (Bench(), []))
    (tmp_path / "w").mkdir()
    (tmp_path / "w/--target").touch()
    (tmp_path / "egress.txt").write_text(POLICY)
    stated = ["[access]", f"workspace = {json.dumps(str(tmp_path / 'w'))}", "workspace_read = 'allow'"]
    stated += ["workspace_write = 'gated'", "command = 'allow'", ""]
    (tmp_path / "card.toml").write_text("\n".join(stated))
    return tmp_path


def verb(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Run `card grant` and return its exit status."""
    monkeypatch.setattr(sys, "argv", ["card", "grant", *words])
    with pytest.raises(SystemExit) as ended:
        card.run()
    return int(ended.value.code or 0)


def rest(place: Path, *words: str) -> list[str]:
    """Return card-run's own options of the run."""
    own = ["--card", str(place / "card.toml"), "--egress", str(place / "egress.txt"), "--resolver=192.0.2.53"]
    return [*own, "--run", "r1", *words, "--", "make", "--class", "x", "--", "test"]


def test_issue_show_list_revoke_rotate(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One grant from its issue to its end, each verb saying what it did."""
    target = str(place / "w/--target")
    assert verb(monkeypatch, "issue", *CLASS, f"--target={target}", "--seconds", "60", *rest(place, "-q")) == 0
    token, told = capsys.readouterr()
    assert token.startswith("crg1.")
    assert token.count("\n") == 1
    assert f"filesystem.path.write.v1 {target} run=r1 for 60 seconds" in told
    identity = told.split()[1]
    assert verb(monkeypatch, "list") == 0
    assert "make --class x -- test" in capsys.readouterr().out
    assert verb(monkeypatch, "list", "--json") == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["id"], listed["state"], listed["target"]) == (identity, "open", target)
    for which in (identity, token.strip()):
        assert verb(monkeypatch, "show", which, "--json") == 0
        assert json.loads(capsys.readouterr().out)["nonce"] == listed["nonce"]
    assert verb(monkeypatch, "revoke", identity) == 0
    assert verb(monkeypatch, "revoke", identity) == 2
    assert verb(monkeypatch, "revoke", "zz") == 2
    assert verb(monkeypatch, "rotate") == 0
    assert verb(monkeypatch, "rotate", "--now") == 0
    assert "key" in capsys.readouterr().err


def test_issuing_is_done_or_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2 for what is not granted, and for a command line that describes no run; no token is printed for either."""
    assert verb(monkeypatch, "issue", *CLASS, "--target", "/etc/hostname", *rest(place)) == 2
    assert verb(monkeypatch, "issue", *CLASS, "--target", "/x", "--nonsense", *rest(place)) == 2
    assert verb(monkeypatch, "issue", *rest(place)) == 2
    assert capsys.readouterr().out == ""


def test_a_link_that_a_worker_made_is_refused_by_name(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The target is judged as it was typed, a directory as a shell completes it too; no token is printed."""
    (place / "w/src").mkdir()
    (place / "w/notes").symlink_to(place / "w/--target")
    (place / "w/into").symlink_to(place / "w/src")
    tree = ["--class", "filesystem.tree.write.v1", "--target"]
    for words in ([*CLASS, "--target", str(place / "w/notes")], [*tree, f"{place}/w/into/"]):
        assert verb(monkeypatch, "issue", *words, *rest(place)) == 2
        out, told = capsys.readouterr()
        assert (out, "target-linked" in told) == ("", True)
    assert verb(monkeypatch, "issue", *tree, f"{place}/w/src/", *rest(place)) == 0


def test_a_token_goes_to_a_new_file(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--out` makes a file of its owner's alone, and writes over none: a link there is not followed."""
    words = ["issue", *CLASS, "--target", str(place / "w/--target"), "--out", str(place / "token"), *rest(place)]
    (place / "token").symlink_to(place / "elsewhere")
    assert verb(monkeypatch, *words) == 2
    assert not (place / "elsewhere").exists()
    (place / "token").unlink()
    assert verb(monkeypatch, *words) == 0
    assert (place / "token").stat().st_mode & 0o777 == 0o600
    assert verb(monkeypatch, *words) == 2


def test_a_grant_that_nobody_holds_is_none(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the token cannot be written no grant is open afterwards, and where none is issued no file is left."""
    token, words = place / "token", [*CLASS, "--target", str(place / "w/--target")]
    token.touch()
    assert verb(monkeypatch, "issue", *words, "--out", str(token), *rest(place)) == 2
    assert verb(monkeypatch, "issue", *words, "--out", str(place / "none/token"), *rest(place)) == 2
    capsys.readouterr()
    assert (verb(monkeypatch, "list", "--json"), capsys.readouterr().out) == (0, "[]\n")
    token.unlink()
    assert verb(monkeypatch, "issue", *CLASS, "--target=/etc/hostname", "--out", str(token), *rest(place)) == 2
    assert not token.exists()
    program = [sys.executable, "-c", "from launcher.card import main; main()", "grant", "issue"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*program, *words, *rest(place)], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, "reason=token-unwritable" in done.stderr) == (2, True)
    capsys.readouterr()
    assert verb(monkeypatch, "list", "--json") == 0
    assert [one["state"] for one in json.loads(capsys.readouterr().out)] == ["revoked"]


def test_the_verbs_own_options_are_not_the_runs(place: Path) -> None:
    """What belongs to the verb is taken out before `--`, in both forms; the command is left to the letter."""
    words = [*CLASS, "--target=/x", "--require", "write_boundary", "--out", "/y", "--seconds=5", *rest(place)]
    asked = grant._request(words)
    assert asked.command == ("make", "--class", "x", "--", "test")
    assert asked.run == "r1"
