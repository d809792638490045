"""`card new|set|get|lint|schema`: comments stay, a card never gets worse, a file is written whole or not at all."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from launcher.cardfile import edit, keys, lint, load, schema, template
from oci.refusal import Refused

ROOT = Path(__file__).parents[2]
PROGRAM = "import sys; sys.argv[0] = 'card'; from launcher.card import main; main()"
CARD = """\
# the nightly build
command = ["make"]  # as in CI
hosts = [
  "pypi.org",  # for pip
]
# read = ["~/reference"]

[limits]
timeout = 60  # seconds
# memory = "4g"
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory below a HOME of the test's own, and work there."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def card(*words: str) -> subprocess.CompletedProcess[str]:
    """Run `card` with these words, here."""
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "dumb"}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=False, env=settings
    )


def changed(dotted: str, *words: str, text: str = CARD) -> str:
    """Return what setting a key makes of a text."""
    key = edit.find(dotted)
    return edit.assign(text, key, edit.value(key, list(words)), base="/cards")


def diff(after: str, before: str = CARD) -> list[str]:
    """Return the lines that a change took away (-) and put in (+)."""
    old, new = before.split("\n"), after.split("\n")
    return [*(f"-{line}" for line in old if line not in new), *(f"+{line}" for line in new if line not in old)]


def test_a_value_changes_and_its_comment_stays() -> None:
    """Nothing but the value moves."""
    assert diff(changed("limits.timeout", "90")) == ["-timeout = 60  # seconds", "+timeout = 90  # seconds"]
    assert diff(changed("command", "make", "-j", "two words")) == [
        '-command = ["make"]  # as in CI',
        '+command = ["make", "-j", "two words"]  # as in CI',
    ]


def test_a_comment_that_shows_the_key_becomes_it() -> None:
    """A commented key is written where its comment stands; one without a comment goes to its table's end."""
    assert diff(changed("limits.memory", "2g")) == ['-# memory = "4g"', '+memory = "2g"']
    assert diff(changed("read", "~/a", "b")) == ['-# read = ["~/reference"]', '+read = ["~/a", "b"]']
    after = changed("net", "none")
    assert tomllib.loads(after)["net"] == "none"
    assert after.index("net = ") < after.index("[limits]")
    assert tomllib.loads(changed("worker.model_host", "a.example"))["worker"] == {"model_host": "a.example"}
    assert changed("limits.cpus", "2").endswith("cpus = 2\n")


def test_a_comment_in_another_table_is_not_taken() -> None:
    """`# timeout` of a comment that is not in [limits] would be no key of it."""
    text = '# timeout = 1\nnet = "none"\n[limits]\nnofile = 9\n'
    assert changed("limits.timeout", "5", text=text) == f"{text}timeout = 5\n"


def test_lists_grow_and_keys_go() -> None:
    """`--add` adds what is not there, keeping the list's comments; `--unset` of what is not there is no mistake."""
    key = edit.find("hosts")
    after = edit.extend(CARD, key, ["pypi.org", "registry.npmjs.org"], base="/cards")
    assert tomllib.loads(after)["hosts"] == ["pypi.org", "registry.npmjs.org"]
    assert '"pypi.org",  # for pip' in after
    assert tomllib.loads(edit.extend(CARD, edit.find("env"), ["A"], base="/cards"))["env"] == ["A"]
    assert "hosts" not in tomllib.loads(edit.remove(CARD, key, base="/cards"))
    assert edit.remove(CARD, edit.find("net"), base="/cards") == CARD
    with pytest.raises(Refused, match="is no list"):
        edit.extend(CARD, edit.find("net"), ["none"], base="/cards")


WORSE = {
    "limits.timeout": ["-5"],
    "limits.pids": ["many"],
    "limits.memory": ["4x"],
    "net": ["nonee"],
    "interactive": ["yes"],
    "image": ["alpine"],
    "hosts": ["https://x.example"],
    "worker.model_host": ["a.example", "b.example"],
    "read": ["[1, 2]"],
    "command": ["make test"],
    "env": ["[unclosed"],
    "access.network": ["allow"],
}


@pytest.mark.parametrize("dotted", WORSE)
def test_a_change_never_makes_a_card_worse(dotted: str) -> None:
    """What would be refused of a card is refused of the change."""
    with pytest.raises(Refused):
        changed(dotted, *WORSE[dotted])


def test_a_broken_card_can_be_mended_step_by_step() -> None:
    """What was wrong before does not stand in the way."""
    text = 'net = "nonee"\nimage = "alpine"\n'
    half = changed("net", "none", text=text)
    assert load.judged(changed("image", "localhost/x", text=half).encode(), base="/")[1] == []


def test_every_key_can_be_set() -> None:
    """Every key of the table is settable by its dotted name, and a misspelt one is told the nearest."""
    assert all(edit.find(key.dotted) == key for key in keys.of(defaults=False))
    said = {"memory": "limits.memory", "nett": "net", "access.netwrok": "access.network", "limits.hosts": "hosts"}
    for name, near in said.items():
        with pytest.raises(Refused, match=f"did you mean '{near}'"):
            edit.find(name)


def test_access_step_by_step() -> None:
    """A profile begins with its workspace; each level is then one word."""
    text = changed("access.workspace", ".")
    text = changed("access.workspace_read", "allow", text=text)
    text = changed("access.network", "gated", text=text)
    assert tomllib.loads(text)["access"] == {"workspace": ".", "workspace_read": "allow", "network": "gated"}


# files


def test_new_writes_a_card_that_is_good(place: Path) -> None:
    """`card new` writes a card without a problem, protects it, and does not write over one."""
    done = card("new")
    assert (done.returncode, done.stdout) == (0, "card.toml\n"), done.stderr
    text = (place / "card.toml").read_text()
    assert lint.problems("card.toml") == []
    assert text.startswith(f"#:schema file://{schema.FILE}\n")
    assert tomllib.loads(text)["protect"] == ["card.toml"]
    again = card("new")
    assert (again.returncode, "reason=card-exists" in again.stderr) == (1, True)
    (place / "card.toml").write_text("")
    assert card("new", "--force").returncode == 0
    assert (place / "card.toml").read_text() == text
    assert card("new", "none/card.toml").returncode == 2


def test_new_in_a_place_to_work_in_nowhere(place: Path) -> None:
    """In HOME the card names no directory to write, and says so."""
    done = card("new", str(place.parent / "agent.toml"))
    assert done.returncode == 0
    assert "NOTE no card may be given" in done.stderr
    assert "write" not in tomllib.loads((place.parent / "agent.toml").read_text())


def test_every_comment_of_a_new_card_is_a_key() -> None:
    """A template whose comments are taken away is a good card too, but for the two ways to say what is mounted."""
    text = template.card("card.toml", schema="x", inside=True)
    lines = [
        line[2:] if line.startswith("# ") and (" = " in line or line == "# [access]") else line
        for line in text.split("\n")
    ]
    bare = "\n".join(line for line in lines if "A coding agent would be" not in line and "instead of lists" not in line)
    table, problems = load.judged(bare.encode(), base="/cards")
    assert problems == []
    assert {"image", "read", "secret", "env", "hosts", "net", "worker", "limits", "access"} <= set(table)


def test_set_and_get(place: Path) -> None:
    """What `set` wrote `get` reads; the file's mode, and a link to it, stay."""
    real = place / "real.toml"
    real.write_text(CARD)
    real.chmod(0o640)
    (place / "card.toml").symlink_to("real.toml")
    assert card("set", "hosts", "a.example", "b.example").returncode == 0
    assert card("set", "./card.toml", "limits.memory", "1g").returncode == 0
    assert (place / "card.toml").is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert card("get", "hosts").stdout == "a.example\nb.example\n"
    assert card("get", "real.toml", "limits.memory").stdout == "1g\n"
    assert json.loads(card("get", "hosts", "--json").stdout) == ["a.example", "b.example"]
    assert (card("get", "net").returncode, card("get", "none.toml", "net").returncode) == (1, 2)
    assert sorted(os.listdir(place)) == ["card.toml", "real.toml"]


def test_a_refused_change_leaves_the_file_as_it_was(place: Path) -> None:
    """Nothing is written, and nothing is left beside the file."""
    (place / "card.toml").write_text(CARD)
    done = card("set", "net", "nonee")
    assert (done.returncode, "did you mean 'none'?" in done.stderr) == (2, True)
    assert (place / "card.toml").read_text() == CARD
    assert os.listdir(place) == ["card.toml"]


def test_lint_tells_every_problem(place: Path) -> None:
    """As compilers do, one line each, and as JSON; exit 1 for a problem, 2 for what cannot be read."""
    (place / "card.toml").write_text('comand = ["x"]\nnet = "nonee"\n')
    done = card("lint")
    assert done.returncode == 1
    assert [line.split(" ")[0] for line in done.stdout.splitlines()] == ["card.toml:1:1:", "card.toml:2:7:"]
    rows = json.loads(card("lint", "--json", "card.toml").stdout)
    assert [(row["file"], row["line"], row["column"], row["key"]) for row in rows] == [
        ("card.toml", 1, 1, "comand"),
        ("card.toml", 2, 7, "net"),
    ]
    assert card("lint", "none.toml").returncode == 2
    (place / "card.toml").write_text(CARD)
    assert (card("lint").returncode, card("lint").stdout) == (0, "")


def test_lint_knows_what_the_worker_could_rewrite(place: Path) -> None:
    """A card in what it lets the worker write is told before any run refuses it."""
    said = {
        'write = [".", "x"]': ["write.0"],
        'write = ["."]\nprotect = ["card.toml"]': [],
        'write = ["x"]': [],
        '[access]\nworkspace = "."\nworkspace_read = "allow"\nworkspace_write = "allow"': ["access.workspace"],
        '[access]\nworkspace = "."\nworkspace_read = "allow"': [],
    }
    for text, expected in said.items():
        (place / "card.toml").write_text(text)
        assert [one.key for one in lint.problems("card.toml")] == expected


def test_lint_takes_defaults_for_what_they_are(place: Path) -> None:
    """The user's own config.toml has other keys than a card."""
    config = place.parent / ".config/card-run/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('resolver = "192.0.2.1"\ncommand = ["x"]\n')
    assert [one.key for one in lint.problems(str(config))] == ["command"]


def test_schema_is_printed() -> None:
    """`card schema` prints the schema that is shipped."""
    assert json.loads(card("schema").stdout) == schema.schema()
