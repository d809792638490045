"""The verbs of `card`: exit codes, completion, `card runtime`, and a manual page that has them all."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from launcher import options
from launcher.card import app

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "launcher/card.1.md").read_text(encoding="utf-8")
PROGRAM = "import sys; sys.argv[0] = 'card'; from launcher.card import main; main()"


def card(
    *words: str, program: str = PROGRAM, at: Path = Path("/"), **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `card` with these words in a directory; an empty variable is unset."""
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "dumb", **environment}
    settings = {name: value for name, value in settings.items() if value}
    argv = [sys.executable, "-c", program, *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=settings, cwd=at)


def verbs(command: Any, name: str = "card") -> Iterator[tuple[str, Any]]:
    """Yield every verb, those of groups too, by its full name. Which click typer brings differs by version."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for sub, one in inner.items():
        yield from verbs(one, f"{name} {sub}")


VERBS = dict(verbs(typer.main.get_command(app)))


@pytest.mark.parametrize("name", VERBS)
def test_manual_page_has_the_verb_and_its_options(name: str) -> None:
    """Every verb has its entry, and the entry its options."""
    entry = re.search(rf"^\*\*{name}\*\*(.*?)(?=^\*\*card |^# )", PAGE, re.MULTILINE | re.DOTALL)
    assert entry is not None
    options = {word for parameter in VERBS[name].params for word in parameter.opts if word.startswith("--")}
    assert {word for word in options if f"**{word}**" not in entry[1]} == set()


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_has_help(name: str) -> None:
    """Every verb says what it does, where it is asked to."""
    done = card(*name.split()[1:], "--help")
    assert done.returncode == 0, done.stderr
    assert VERBS[name].help.split()[0] in done.stdout


@pytest.mark.parametrize("name", VERBS)
def test_help_has_whole_options_at_80_columns(name: str) -> None:
    """No option's name is cut off in a terminal of the usual size."""
    shown = card(*name.split()[1:], "--help", COLUMNS="80").stdout
    options = {word for parameter in VERBS[name].params for word in parameter.opts if word.startswith("--")}
    assert {word for word in options if not re.search(rf"{word}\b", shown)} == set()


@pytest.mark.parametrize("words", [(), ("ps",), ("grant", "list")])
def test_the_short_question_is_the_long_one(words: tuple[str, ...]) -> None:
    """`-h` asks for help as `card-run -h` does, of every verb."""
    assert card(*words, "-h").stdout == card(*words, "--help").stdout != ""


def test_version() -> None:
    """`card --version` says its name and the one version there is."""
    done = card("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"card {options.VERSION}\n", "")


@pytest.mark.parametrize("name", ["plan", "prepare", "grant issue"])
def test_who_takes_a_run_shows_where_its_command_goes(name: str) -> None:
    """The usage of what takes card-run's own words has the worker's command in it."""
    assert "[-- COMMAND [ARG]...]" in card(*name.split(), "--help").stdout


@pytest.mark.parametrize("words", [("nonesuch",), ("probe", "--nonesuch"), ("runtime", "build", "extra")])
def test_usage_errors_could_not_run(words: tuple[str, ...]) -> None:
    """A command line that cannot be read is exit 2, with nothing on stdout."""
    done = card(*words)
    assert (done.returncode, done.stdout) == (2, "")


NEARLY = {
    ("run", "--", "true"): "that is: card-run -- true",
    ("run", "true"): f"that is: {options.USAGE}",
    ("set", "command", "sh", "-c", "a b"): "as a value: card set command -- sh -c 'a b'",
    ("set", "x.toml", "command", "--add", "-v"): "as a value: card set --add x.toml command -- -v",
}


@pytest.mark.parametrize("words", NEARLY)
def test_what_was_nearly_right_is_told(words: tuple[str, ...]) -> None:
    """The command line that was meant is in the message, to be copied."""
    done = card(*words, COLUMNS="200")
    assert (done.returncode, done.stdout) == (2, "")
    assert NEARLY[words] in done.stderr


def test_a_card_file_that_is_none(tmp_path: Path) -> None:
    """What is there and cannot be one is not called missing; standard input is no file."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "open").write_text('command = ["x"]\n')
    (tmp_path / "open").chmod(0o666)
    for name, why in (("pipe", "it is not a regular file"), (".", "it is not a regular file"), ("open", "others can")):
        done = card("lint", str(tmp_path / name))
        assert done.returncode == 2
        assert "reason=card-file" in done.stderr
        assert why in done.stderr
    for done in (card("lint", "-"), card("get", "command")):
        assert "reason=card-missing" in done.stderr
        assert ("not read from standard input" in done.stderr) == ("-: there" in done.stderr)


# Without podman, a policy file that names nobody, and a HOME with nothing in it but these cards.
ANSWERS = {
    "new new.toml": 0,
    "get good.toml command": 0,
    "lint good.toml": 0,
    "ps": 0,
    "grant list": 0,
    "get good.toml net": 1,
    "lint bad.toml": 1,
    "runtime show": 1,
    "pool status": 1,
    "pool stop": 1,
    "check": 1,
    "new good.toml": 2,
    "get none.toml net": 2,
    "set good.toml nte none": 2,
    "set good.toml net nobody": 2,
    "lint none.toml bad.toml": 2,
    "plan --net none": 2,
    "plan --nte none -- true": 2,
    "plan --card good.toml --net none --image alpine": 2,
    "prepare --write relative -- true": 2,
    "pool start --write relative": 2,
    "grant issue --class command.start.v1 --run r1 --net none -- true": 2,
    "grant show ff": 2,
    "grant revoke ff": 2,
    "show r1": 2,
    "logs r1": 2,
    "wait r1": 2,
    "stop r1": 2,
    "denials r1": 2,
    "attach r1": 2,
    "egress audit r1": 2,
    "exec r1 true": 125,
}


@pytest.mark.parametrize("words", ANSWERS)
def test_what_an_exit_status_means(words: str, tmp_path: Path) -> None:
    """0 is done or yes, 1 the answer no, and 2 is what SANDBOX REFUSED lines say, and only that; an exec's is 125."""
    (tmp_path / "good.toml").write_text('command = ["true"]\n')
    (tmp_path / "bad.toml").write_text('commnad = ["true"]\n')
    (tmp_path / "runtime").mkdir(mode=0o700)
    places = dict.fromkeys(("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"), "")
    done = card(
        *words.split(),
        HOME=str(tmp_path),
        PATH="/nowhere",
        XDG_RUNTIME_DIR=f"{tmp_path}/runtime",
        **places,
        at=tmp_path,
    )
    assert done.returncode == ANSWERS[words], done.stderr
    assert ("SANDBOX REFUSED" in done.stderr) == (done.returncode >= 2)


@pytest.mark.parametrize("verb", ["build", "show"])
def test_a_refusal_could_not_run(verb: str) -> None:
    """What a verb refuses is one SANDBOX REFUSED line and exit 2."""
    done = card("runtime", verb, HOME="", XDG_CACHE_HOME="")
    assert (done.returncode, done.stdout) == (2, "")
    assert [line.split(" ")[2] for line in done.stderr.splitlines()] == ["reason=no-cache-directory"]


def test_no_runtime_says_no(tmp_path: Path) -> None:
    """Without a runtime `show` builds none, says so, and is exit 1."""
    done = card("runtime", "show", XDG_CACHE_HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert "card runtime build" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_completion() -> None:
    """The shell is told the verbs and the options."""
    verb = card(_CARD_COMPLETE="complete_bash", COMP_WORDS="card pro", COMP_CWORD="1")
    assert verb.stdout.split() == ["probe"]
    option = card(_CARD_COMPLETE="complete_bash", COMP_WORDS="card probe --im", COMP_CWORD="2")
    assert option.stdout.split() == ["--image"]


@pytest.mark.parametrize("name", ["plan", "prepare", "pool start", "grant issue"])
def test_completion_of_card_runs_options(name: str) -> None:
    """A verb that takes card-run's options completes them beside its own, and nothing among the worker's words."""
    verb = f"card {name} --allow-host x"
    words = {"--wr": ["--write"], "--hel": ["--help"], "-- --wr": []}
    for typed, found in words.items():
        line = f"{verb} {typed}"
        done = card(_CARD_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(line.split()) - 1))
        assert done.stdout.split() == found


def test_an_image_that_is_no_reference_is_refused_before_anything_runs(tmp_path: Path) -> None:
    """card-run's own refusal is passed on, and `card probe` could not run."""
    (tmp_path / "card-run").write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom launcher.cli import main\nmain()\n"
    )
    (tmp_path / "card-run").chmod(0o755)
    program = PROGRAM.replace("'card'", repr(f"{tmp_path}/card"))
    done = card("probe", "--image", "alpine", program=program, HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    reasons = re.findall(r"reason=(\S+)", done.stderr)
    assert reasons[0] == "bad-image"
    assert reasons[-1] == "no-card"


def test_no_card_run(tmp_path: Path) -> None:
    """Without a card-run there is nothing to probe with."""
    done = card("probe", PATH=str(tmp_path))
    assert done.returncode == 2
    assert "reason=no-card-run" in done.stderr


@pytest.mark.parametrize("words", [["schema"], ["check"], ["--version"], ["--help"]])
def test_output_that_cannot_be_written_is_no_success(words: list[str]) -> None:
    """A full disk is a refusal, and a reader that is gone ends the verb as it ends any tool: neither by a traceback."""
    argv = [sys.executable, "-c", PROGRAM, *words]
    # As installed, where it hears no variable of Python's.
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}
    with open("/dev/full", "wb") as full:
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=settings, cwd="/")
    reader, writer = os.pipe()
    os.close(reader)
    gone = subprocess.run(argv, stdout=writer, stderr=subprocess.PIPE, text=True, check=False, env=settings, cwd="/")
    os.close(writer)
    assert done.returncode == 2
    assert done.stderr.startswith("SANDBOX REFUSED reason=output-unwritable ")
    assert len(done.stderr.splitlines()) == 1
    assert (gone.returncode, gone.stderr) == (-signal.SIGPIPE, "")
