"""`card new|set|get|lint|schema`: comments stay, a card never gets worse, a file is written whole or not at all."""

import json
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from launcher import launch, options
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


ACCESS = '[access]\nworkspace = "."\nworkspace_read = "allow"\ncommand = "allow"\n'


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
    new = edit.value(key, list(words))
    return edit.changed(text, [lambda before: edit.assign(before, key, new)], base="/cards")


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


def test_a_key_stands_below_the_comment_that_shows_it() -> None:
    """A commented key is written below its comment, which stays; one without a comment goes to its table's end."""
    assert diff(changed("limits.memory", "2g")) == ['+memory = "2g"']
    assert '# memory = "4g"\nmemory = "2g"\n' in changed("limits.memory", "2g")
    assert diff(changed("read", "~/a", "b")) == ['+read = ["~/a", "b"]']
    assert edit.remove(changed("read", "~/a"), edit.find("read")) == CARD
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
    after = edit.extend(CARD, key, ["pypi.org", "registry.npmjs.org"])
    assert tomllib.loads(after)["hosts"] == ["pypi.org", "registry.npmjs.org"]
    assert '"pypi.org",  # for pip' in after
    assert tomllib.loads(edit.extend(CARD, edit.find("env"), ["A"]))["env"] == ["A"]
    assert "hosts" not in tomllib.loads(edit.remove(CARD, key))
    assert edit.remove(CARD, edit.find("net")) == CARD
    with pytest.raises(Refused, match="is no list"):
        edit.extend(CARD, edit.find("net"), ["none"])


LISTED = """\
hosts = [
  # mirrors
  "pypi.org",  # for pip
  "a.example",
  # the last
  "b.example", # b
]
"""


@given(st.lists(st.sampled_from(["pypi.org", "a.example", "b.example", "c.example", "d.example"]), unique=True))
def test_a_list_on_several_lines_keeps_its_comments(hosts: list[str]) -> None:
    """What stands on its own line stays, whatever the list becomes, and the list is what was asked for."""
    after = changed("hosts", json.dumps(hosts), text=LISTED)
    assert tomllib.loads(after)["hosts"] == hosts
    assert all(comment in after for comment in ("  # mirrors\n", "  # the last\n"))


def test_a_comment_beside_an_element_is_its_own() -> None:
    """It stays with an element that stays, and goes with one that goes."""
    assert diff(changed("hosts", "pypi.org", "c.example", "b.example", text=LISTED), LISTED) == [
        '-  "a.example",',
        '+  "c.example",',
    ]
    assert "# for pip" not in changed("hosts", "a.example", "b.example", text=LISTED)


@pytest.mark.parametrize("dotted", ["hosts", "limits.memory", "limits.cpus", "net", "worker.description", "command"])
def test_line_ends_stay_what_they_are(dotted: str) -> None:
    """A file of CRLF lines is one afterwards, and of LF lines too: set in place, from a comment, or added."""
    said = {"limits.memory": "2g", "limits.cpus": "2", "net": "none"}.get(dotted, "x.example")
    assert changed(dotted, said, text=CARD.replace("\n", "\r\n")) == changed(dotted, said).replace("\n", "\r\n")


def test_several_keys_are_judged_together(place: Path) -> None:
    """What is good only together can be set together; a list takes what is left; nothing is written of what is not."""
    path = place / "card.toml"
    path.write_text(f'command = ["x"]\n{ACCESS}')
    before = path.read_text()
    for alone in (("access.isolation", "unconfined"), ("access.ack_unconfined", "true")):
        assert card("set", *alone).returncode == 2
    assert card("set", "net", "none", "access.ack_unconfined", "true").returncode == 2
    assert path.read_text() == before
    done = card("set", "access.isolation", "unconfined", "access.ack_unconfined", "true", "hosts", "a.example", "net")
    assert "'net'" in done.stderr  # is no hostname, and no key after a list
    both = ("access.isolation", "unconfined", "access.ack_unconfined", "true")
    assert card("set", "card.toml", "limits.cpus", "2", *both, "read", "a", "b").returncode == 0
    found = tomllib.loads(path.read_text())
    assert (found["limits"], found["read"]) == ({"cpus": 2}, ["a", "b"])
    assert (found["access"]["isolation"], found["access"]["ack_unconfined"]) == ("unconfined", True)
    assert card("set", "--unset", "access.isolation").returncode == 2
    assert card("set", "--unset", "access.isolation", "access.ack_unconfined", "read", "limits.cpus").returncode == 0
    assert tomllib.loads(path.read_text()) == {**tomllib.loads(before), "limits": {}}


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
    assert (again.returncode, "reason=card-exists" in again.stderr) == (2, True)
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


def test_a_new_card_runs_whatever_the_umask(place: Path) -> None:
    """A card that others can write is refused, so none is made."""
    before = os.umask(0)
    try:
        assert card("new").returncode == 0
    finally:
        os.umask(before)
    assert (place / "card.toml").stat().st_mode & 0o777 == 0o644
    assert card("lint").returncode == 0


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
        'write = [".", "x"]': ["write[0]"],
        'write = ["."]\nprotect = ["card.toml"]': [],
        'write = ["x"]': [],
        f'{ACCESS}workspace_write = "allow"': ["access.workspace"],
        ACCESS: [],
    }
    for text, expected in said.items():
        (place / "card.toml").write_text(text)
        assert [one.key for one in lint.problems("card.toml")] == expected


UNREACHED = 'net = "none"\nhosts = ["pypi.org"]\n'
IMPOSSIBLE = {
    "a closed root in what may be read": (f'{ACCESS}[[access.roots]]\npath = "keys"\n', ["6:8 access.roots[0].path"]),
    "a workspace that is closed in a root": (
        '[access]\nworkspace = "."\ncommand = "allow"\n[[access.roots]]\npath = ".."\nread = "allow"\n',
        ["2:13 access.workspace"],
    ),
    "no walls": (f'{ACCESS}isolation = "unconfined"\nack_unconfined = true\n', ["5:13 access.isolation"]),
    "hosts without a network": (UNREACHED, ["2:9 hosts"]),
    "a model host without a network": (
        'net = "none"\n[worker]\nmodel_host = "a.example"\n',
        ["3:14 worker.model_host"],
    ),
    "hosts and no network of a profile": (f"{UNREACHED}{ACCESS}", ["2:9 hosts"]),
    "hosts and a profile that denies them": (f'hosts = [\n"pypi.org"]\n{ACCESS}', ["2:1 hosts[0]"]),
    "one path twice": ('read = ["x", "data"]\nwrite = ["data/../data"]\n', ["1:14 read[1]"]),
    "one path three times": (
        'read = ["data"]\nread_noexec = ["./data"]\nwrite = ["data"]\n',
        ["1:9 read[0]", "2:16 read_noexec[0]"],
    ),
    "a list beyond the profile": (f'read_noexec = ["x", "/srv/data"]\n{ACCESS}', ["1:21 read_noexec[1]"]),
    "writing beyond the profile": (f'write = ["out"]\n{ACCESS}', ["1:10 write[0]"]),
    "reading what is written": (
        f'protect = ["card.toml"]\nread = ["."]\n{ACCESS}workspace_write = "allow"\n',
        ["2:9 read[0]"],
    ),
    "a real HOME": (f'home = "real"\n{ACCESS}', ["1:8 home"]),
    "a command that is denied": (f"{ACCESS.replace('allow', 'deny')}", ["4:11 access.command"]),
    "a command that is not stated": ('image = "localhost/x"\n[access]\nworkspace = "."\n', ["2:1 access.command"]),
    "several": (
        f'home = "real"\nwrite = ["/out"]\nhosts = ["a.example"]\n{ACCESS}[[access.roots]]\npath = "keys"\n',
        ["1:8 home", "2:10 write[0]", "3:10 hosts[0]", "9:8 access.roots[0].path"],
    ),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_lint_knows_what_can_never_run(name: str, place: Path) -> None:
    """What a card contradicts in itself, or no wall can hold, is told where it stands, before any run refuses it."""
    text, expected = IMPOSSIBLE[name]
    (place / "card.toml").write_text(text)
    assert [f"{one.line}:{one.column} {one.key}" for one in lint.problems("card.toml")] == expected


POSSIBLE = {
    "a path inside another": 'read = ["data"]\nread_noexec = ["data/raw"]\nwrite = ["data/out"]\n',
    "hosts": 'hosts = ["pypi.org"]\n[worker]\nmodel_host = "a.example"\n',
    "no hosts": 'net = "none"\nhosts = []\n',
    "a host that wants a grant": f'hosts = ["pypi.org"]\n{ACCESS}network = "gated"\n',
    "a list that wants a grant": f'read = ["/srv/data"]\nwrite = ["/srv/out"]\n{ACCESS}'
    'host_read = "gated"\nhost_write = "gated"\n',
    "a start that wants a grant": ACCESS.replace('command = "allow"', 'command = "gated"'),
    "a read-only root in a workspace": (
        f'protect = ["card.toml"]\n{ACCESS}workspace_write = "allow"\n[[access.roots]]\npath = "in"\nread = "allow"\n'
    ),
    "a closed root elsewhere": f'{ACCESS}[[access.roots]]\npath = "/srv/keys"\n',
    "lists that the profile has": f'read = ["/srv/data"]\nread_noexec = ["."]\nwrite = ["/srv/out"]\n{ACCESS}'
    'host_read = "allow"\nhost_write = "allow"\n',
    "a real HOME": f'home = "real"\n{ACCESS}home = "real"\n',
}


MALFORMED = {
    "an unknown key": f'{UNREACHED}write = ["."]\ncomand = ["x"]\n',
    "a bad value elsewhere": f'{UNREACHED}write = ["."]\n[limits]\nmemory = "lots"\n',
    "a bad element before": f'{UNREACHED}write = ["\\u0007", "x", "."]\n',
    "something that is no table": f'{UNREACHED}write = ["."]\nlimits = 3\n',
    "a bad profile": f'{UNREACHED}write = ["."]\n{ACCESS}netwerk = "allow"\n',
}


@pytest.mark.parametrize("name", MALFORMED)
def test_lint_judges_the_parts_that_are_well_formed(name: str, place: Path) -> None:
    """One mistake hides no other: who could rewrite the card, and hosts that nothing reaches, are told beside it."""
    (place / "card.toml").write_text(MALFORMED[name])
    found = {one.key: one.line for one in lint.problems("card.toml")}
    writable = "write[2]" if "element" in name else "write[0]"
    assert (len(found), found.get("hosts"), found.get(writable)) == (3, 2, 3), found


HALF = {
    "a profile without a workspace": '[access]\nworkspace_write = "allow"\nworkspace_read = "allow"\n',
    "a root without a path": f'{ACCESS}[[access.roots]]\nread = "allow"\nwrite = "allow"\n',
    "a level that is no word": f'hosts = ["pypi.org"]\n{ACCESS}network = "alow"\n',
    "a protect that is no list": 'write = ["."]\nprotect = "card.toml"\n',
}


@pytest.mark.parametrize("name", HALF)
def test_lint_concludes_nothing_from_half_a_profile(name: str, place: Path) -> None:
    """A word that is missing or misspelt closes more than was meant: what would follow from that is not told."""
    (place / "card.toml").write_text(HALF[name])
    assert len(lint.problems("card.toml")) == 1, lint.problems("card.toml")


@pytest.mark.parametrize("name", POSSIBLE)
def test_lint_has_nothing_against_what_can_run(name: str, place: Path) -> None:
    """What is unusual and works, with a grant or without, is no problem."""
    (place / "card.toml").write_text(POSSIBLE[name])
    assert lint.problems("card.toml") == []


PAIRS = st.sampled_from(
    [("deny", "deny"), ("gated", "deny"), ("allow", "deny"), ("allow", "gated"), ("allow", "allow")]
)
PLACES = ("a", "a/b", "a/b/../b", "c", "link")


@st.composite
def cards(draw: st.DrawFn) -> str:
    """Return a card of lists, hosts and mostly a profile, over a few places that nest."""
    lists = {name: draw(st.lists(st.sampled_from(PLACES), max_size=1)) for name in ("read", "read_noexec", "write")}
    lines = [f"{name} = {json.dumps(paths)}" for name, paths in lists.items() if paths]
    lines += draw(st.sampled_from([[], ['net = "none"'], ['hosts = ["a.example"]'], [*UNREACHED.splitlines()]]))
    if draw(st.integers(0, 3)):
        (read, write), (host_read, host_write) = draw(PAIRS), draw(PAIRS)
        network, command = (draw(st.sampled_from(["allow", "gated", "allow", "deny"])) for _ in range(2))
        lines += ["[access]", f'workspace = "{draw(st.sampled_from(("a", "a/b")))}"']
        lines += [f'workspace_read = "{read}"', f'workspace_write = "{write}"', f'host_read = "{host_read}"']
        lines += [f'host_write = "{host_write}"', f'network = "{network}"', f'command = "{command}"']
        for path in draw(st.sampled_from([["a/b/d"], [], ["c"], ["a/b/d", "c"]])):
            read, write = draw(PAIRS)
            lines += ["[[access.roots]]", f'path = "{path}"', f'read = "{read}"', f'write = "{write}"']
    return "\n".join([*lines, ""])


NEVER = {"access-contradiction", "access-unenforceable", "denied", "no-network", "path-contradiction"}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300, deadline=None)
@given(cards())
@example('write = ["a"]\n[access]\nworkspace = "a/b"\nhost_read = "allow"\nhost_write = "allow"\ncommand = "allow"\n')
def test_lint_and_a_run_agree(place: Path, text: str) -> None:
    """What a run of the card alone would be refused for is what lint tells, and it tells no more."""
    (place / "a/b/d").mkdir(parents=True, exist_ok=True)
    (place / "c").mkdir(exist_ok=True)
    if not (place / "link").is_symlink():
        (place / "link").symlink_to("c")
    (place / "card.toml").write_text(text)
    refused = launch.judge(options.read(["--card", "card.toml", "--resolver", "192.0.2.1", "--", "x"])[0])[1]
    reasons = NEVER & {one.reason for one in refused}
    assert bool(lint.problems("card.toml")) == bool(reasons), (text, reasons, lint.problems("card.toml"))


def test_lint_has_nothing_against_the_examples(place: Path) -> None:
    """The cards that the documents show are good ones."""
    page = (ROOT / "launcher/card-file.5.md").read_text().partition("# EXAMPLES")[2]
    blocks = re.findall(r"(?:^(?:    .*)?\n)+", page, re.MULTILINE)
    shown = [textwrap.dedent(block) for block in blocks if "=" in block and "[ceiling]" not in block]
    shown += re.findall(r"^\$ cat card.toml\n((?:(?!\$).*\n)+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(shown) == 4
    for text in shown:
        (place / "card.toml").write_text(text)
        assert lint.problems("card.toml") == [], text


def test_what_is_not_there_can_be_made(place: Path) -> None:
    """`card lint` and `card get` without a card say how to have one; a card of the wrong mode, how to mend it."""
    for words in (("lint",), ("get", "net"), ("lint", "my cards/a.toml")):
        done = card(*words)
        file = "'my cards/a.toml'" if words[1:] == ("my cards/a.toml",) else "card.toml"
        assert done.returncode == 2
        assert f"there is no such file (hint: card new {file})" in done.stderr
    (place / "card.toml").write_text(CARD)
    (place / "card.toml").chmod(0o666)
    told = [card(*words).stderr for words in (("lint",), ("set", "net", "none"))]
    assert all("reason=card-file card.toml: others can write it" in stderr for stderr in told)
    assert "(hint: chmod go-w card.toml)" in card("lint").stderr
    config = place.parent / ".config/card-run/config.toml"
    assert "hint" not in card("lint", str(config)).stderr  # that is no card


def test_lint_takes_defaults_for_what_they_are(place: Path) -> None:
    """The user's own config.toml has other keys than a card."""
    config = place.parent / ".config/card-run/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('resolver = "192.0.2.1"\ncommand = ["x"]\n')
    assert [one.key for one in lint.problems(str(config))] == ["command"]


def test_schema_is_printed() -> None:
    """`card schema` prints the schema that is shipped."""
    assert json.loads(card("schema").stdout) == schema.schema()
