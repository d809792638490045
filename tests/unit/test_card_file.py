"""A card file is read as a stranger's text: every problem at once, with its line, and merged so that it shows."""

import os
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import tomlkit
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher import launch, options, trust
from launcher.access import judge
from launcher.cardfile import keys, kinds, load, origin, position, schema, shape
from launcher.egress.policy import BASE_NAMES
from launcher.launch import Launch
from oci.refusal import Refusal, Refused
from tests.unit import surroundings

LEVELS = st.sampled_from(judge.LEVELS)


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test a HOME of its own, with a policy file, and a bench with a route."""
    return surroundings.own_home(tmp_path, monkeypatch)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return the directory of the card, with a directory to work in and one to read."""
    for name in ("cards", "cards/work", "cards/data"):
        (tmp_path / name).mkdir()
    return tmp_path / "cards"


def judged(place: Path, text: str, *words: str) -> tuple[Launch, list[Refusal]]:
    """Return what a card file and flags come to, and the refusals."""
    (place / "agent.toml").write_text(text)
    asked = options.read(["--card", str(place / "agent.toml"), "--resolver", "192.0.2.1", *words])[0]
    return launch.judge(asked)


def problems(text: str | bytes, *, defaults: bool = False) -> list[str]:
    """Return the problems of a text as `LINE:COLUMN text (hint)`."""
    data = text.encode() if isinstance(text, str) else text
    found = load.judged(data, base="/cards", defaults=defaults)[1]
    return [f"{one.line}:{one.column} {one.text} ({one.hint})" for one in found]


def reasons(found: list[Refusal]) -> list[str]:
    """Return the reasons of refusals."""
    return [refusal.reason for refusal in found]


# reading


def test_every_key(place: Path) -> None:
    """Each key means what its option means, relative paths starting from the card's directory, and `~` from HOME."""
    text = """
        name = "nightly"
        image = "localhost/x"
        command = ["make", "-j", "two words"]
        cwd = "work"
        read = ["data"]
        write = ["work"]
        secret = ["~/.config"]
        hosts = ["PyPI.org"]
        dns = "none"
        env = ["A=b=c"]
        interactive = true
        [worker]
        description = "a coding agent"
        model_host = "model.example.org"
        [limits]
        memory = "2g"
        pids = 100
        cpus = 1.5
        nofile = 200
        timeout = 90
    """
    found, refused = judged(place, text)
    assert refused == []
    assert found.asked.card_name == "nightly"
    assert (found.image, found.command) == ("localhost/x", ("make", "-j", "two words"))
    assert [(root.access, root.path) for root in found.filesystem.roots] == [
        ("read", str(place / "data")),
        ("write", str(place / "work")),
    ]
    assert found.filesystem.cwd == str(place / "work")
    assert found.names == (*BASE_NAMES, "model.example.org", "pypi.org")
    assert (found.dns, found.interactive, found.tty) == (None, True, False)
    assert dict(found.env)["A"] == "b=c"
    bounds = found.limits
    assert (bounds.memory, bounds.pids, bounds.cpus, bounds.nofile, bounds.timeout) == (2 << 30, 100, 1.5, 200, 90)
    assert found.asked.secret == (f"{os.environ['HOME']}/.config",)


def test_every_mistake_at_once_with_its_place() -> None:
    """One reading tells everything that is wrong, where it is, and what was probably meant."""
    text = """\
image = "alpine"
comand = ["x"]
command = "make 'all'"
read-noexec = ["a"]
hosts = ["ok.example.org",
  "http://x.example"]
memory = "2g"
egress = "/etc/egress.txt"
[worker]
hosts = ["a.example"]
[limits]
memory = "2x"
pids = true
[access]
workspace = "/w"
netwrok = "allow"
"""
    assert problems(text) == [
        "1:9 image is a full image reference, REGISTRY/NAME:TAG, not 'alpine' ()",
        "2:1 'comand' is not a key of a card file (did you mean 'command'?)",
        '3:11 command is a list of the command and its arguments, not "make \'all\'" (write command = ["make", "all"])',
        "4:1 'read-noexec' is not a key of a card file (it is written with _: read_noexec)",
        "6:3 'http://x.example' has a scheme: write the hostname alone ()",
        "7:1 'memory' is not a key of a card file (memory belongs in [limits])",
        f"8:1 'egress' is not a key of a card file ({keys.ELSEWHERE['egress']})",
        "10:1 'hosts' is not a key of [worker] (hosts belongs at the top of the file, before the first [table])",
        "12:10 memory is a size: bytes, or text such as '512m' or '2g', not '2x' ()",
        "13:8 pids is a whole number above zero, not true ()",
        "16:1 'netwrok' is not a key here (did you mean 'network'?)",
    ]


def test_what_other_tools_call_it() -> None:
    """Names that people bring along are told where they belong."""
    hints = {
        'model_host = "x.example"': "model_host belongs in [worker]",
        'network = "none"': "write net",
        'allow_host = ["x.example"]': "write hosts",
        'write = "."': "write = ['.']",
        'tty = "yes"': "without quotes",
        'net = "nonee"': "did you mean 'none'?",
        "detach = true": "use -d",
        "worker = 1": "write [worker] above",
    }
    for text, hint in hints.items():
        (found,) = problems(text)
        assert hint in found


HOSTILE: dict[str, tuple[str | bytes, str | None]] = {
    "not TOML": (
        "a: b",
        "1:2 this is not TOML: Expected '=' after a key in a key/value pair (TOML is written KEY = VALUE)",
    ),
    "no quotes": (
        'net = "none"\nimage = x',
        '2:9 this is not TOML: Invalid value (text stands in quotes: image = "x")',
    ),
    "twice": (
        "net = 'none'\nnet = 'none'",
        "2:13 this is not TOML: Cannot overwrite a value, at the end of the file ()",
    ),
    "no UTF-8": (b'net = "none"\n\xff = 1', "2:1 this is not UTF-8 (save the file as UTF-8)"),
    "a mark": (b"\xef\xbb\xbfnet = 1", "1:1 the file starts with a byte order mark (save it as UTF-8 without one)"),
    "deep": ("read = " + "[\n" * 20_000, "1:1 it is nested too deeply ()"),
    "a control character": ('name = "a\\u001bb"', "1:8 name is one line of text, not 'a\\x1bb' ()"),
    "NUL in a path": ('read = ["a\\u0000"]', None),
    "another's home": ('read = ["~root"]', None),
    "a number too long": (f"[limits]\npids = {'9' * 5000}", None),
    "nan": ("[limits]\ncpus = nan", None),
    "infinity": ("[limits]\ntimeout = inf", None),
    "a date": ("name = 1979-05-27", None),
    "a table for a list": ("[read]\na = 1", None),
    "an array of worker": ("[[worker]]", None),
    "access as text": ('access = "allow"', None),
    "roots as text": ('[access]\nworkspace = "/w"\nroots = "x"', None),
    "a root as text": ('[access]\nworkspace = "/w"\nroots = ["x"]', None),
    "unconfined": ('[access]\nworkspace = "/w"\nisolation = "unconfined"', None),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text(name: str) -> None:
    """Whatever stands in the file is told as a problem, in bounded time, and nothing else happens."""
    text, expected = HOSTILE[name]
    found = problems(text)
    assert found
    if expected is not None and name != "twice":
        assert found == [expected]


def test_pathological_text_is_quick() -> None:
    """A file of the largest size, made to be slow to parse, takes no time that a person would notice."""
    import time

    most, dots = trust.SIZE_LIMIT, "a." * (position.MOST_PARTS - 1)
    texts = {
        "dots": "a." * (most // 2 - 9) + "b = 1",
        "dots in a header": "[" + "a." * (most // 2 - 9) + "b]",
        "dots in quotes": "'a' . " * (most // 6 - 9) + "b = 1",
        "dots inside": "a = {" + "a." * (most // 2 - 9) + "b = 1}",
        "dots enough": "".join(f"{dots}b{number} = 1.5\n" for number in range(most // 220)),
        "tables": "[[a]]\n" * (most // 6),
        "an open string": 'a = """' + "x" * (most - 9),
        "escapes": 'a = "' + '\\"' * (most // 2 - 9),
    }
    for name, text in texts.items():
        started = time.process_time()
        assert problems(text), name
        assert time.process_time() - started < 20, name
    assert problems(f"\n{texts['dots']}") == ["2:1 a key has more than 100 parts ()"]


def test_dots_in_values_are_not_counted() -> None:
    """A long list of hosts, a value full of dots, a comment: none of them is a key."""
    many = "a." * 3000
    text = f'# {many}\nenv = ["A={many}", "B=\\t{many}"] # {many}\ncommand = [\'{many}\', """{many}\n{many}"""]\n'
    assert problems(text) == []
    assert position.long_key(text) == 0


def test_a_file_that_others_could_write(place: Path) -> None:
    """A card decides for whoever can write it: it is the caller's or root's, and nobody else can write it."""
    card = place / "agent.toml"
    card.write_text('command = ["true"]\n')
    assert load.card(str(card)).values["command"] == ("true",)
    card.chmod(0o666)
    with pytest.raises(Refused) as caught:
        load.card(str(card))
    assert "others can write it (mode 0666)" in str(caught.value)
    assert f"chmod go-w {card}" in str(caught.value)
    card.chmod(0o644)
    if os.getuid() == 0:
        os.chown(card, 4242, 4242)
        with pytest.raises(Refused, match="belongs to uid 4242, not to"):
            load.card(str(card))


def test_what_is_no_file(place: Path) -> None:
    """A pipe that never answers, a directory, a device, a dangling link, nothing: each is refused at once."""
    os.mkfifo(place / "pipe.toml")
    (place / "link.toml").symlink_to("nowhere")
    (place / "large.toml").write_bytes(b"#" * (trust.SIZE_LIMIT + 1))
    said = {
        "pipe.toml": "not a regular file",
        ".": "not a regular file",
        "/dev/zero": "not a regular file",
        "link.toml": "there is no card file",
        "none.toml": "card new",
        "large.toml": "larger than 256 KiB",
        "a\0b": "null byte",
    }
    for name, words in said.items():
        with pytest.raises(Refused) as caught:
            load.card(os.path.join(place, name))
        assert words in str(caught.value)


# merging


def test_flags_override_and_lists_add(place: Path) -> None:
    """A flag replaces the card's word; where either is a list, the flag adds; the command is replaced as a whole."""
    text = """
        command = ["a", "b"]
        net = "slirp"
        write = ["work"]
        hosts = ["pypi.org"]
        env = ["A=card", "B=card"]
        [limits]
        timeout = 9
    """
    (place / "more").mkdir()
    words = ["--net", "pasta", "--timeout", "7", "--write", f"{place}/more", "--env", "A=flag"]
    found, refused = judged(place, text, *words, "--allow-host", "model.example.org", "--", "c")
    assert refused == []
    assert (found.command, found.net, found.limits.timeout) == (("c",), "pasta", 7)
    assert [root.path for root in found.filesystem.roots] == [f"{place}/work", f"{place}/more"]
    assert found.filesystem.cwd == f"{place}/work"
    assert found.names == (*BASE_NAMES, "pypi.org", "model.example.org")
    assert (dict(found.env)["A"], dict(found.env)["B"]) == ("flag", "card")


def test_a_flag_takes_a_path_out_of_the_cards_lists(place: Path) -> None:
    """The same path by flag is the flag's, whichever list of the card has it, and however it is written."""
    found, refused = judged(place, 'write = ["work", "data/../data"]', "--read", f"{place}/data", "--", "x")
    assert refused == []
    assert {root.path: root.access for root in found.filesystem.roots} == {
        f"{place}/data": "read",
        f"{place}/work": "write",
    }


def test_a_protected_card_can_be_run_read_only(place: Path) -> None:
    """`--read` of the workspace takes what is protected in it along: it is read-only with the rest."""
    text = 'write = ["."]\nprotect = ["agent.toml"]'
    found, refused = judged(place, text, "--read", str(place), "--", "x")
    assert (refused, found.filesystem.closed) == ([], ())
    (place / "work/key").touch()
    text = 'write = [".", "work"]\nprotect = ["agent.toml", "work/key"]'
    found, refused = judged(place, text, "--read", str(place), "--", "x")
    assert (refused, found.filesystem.closed) == ([], (f"{place}/work/key",))
    words = ("--read", str(place), "--write", f"{place}/work")
    found, refused = judged(place, 'write = ["."]\nprotect = ["work/key"]', *words, "--", "x")
    assert (refused, found.filesystem.closed) == ([], (f"{place}/work/key",))
    gated = ACCESS.replace('"work"', '"."').replace('write = "allow"', 'write = "gated"')
    found, refused = judged(place, f'protect = ["agent.toml"]\n{gated}', "--", "x")
    assert (refused, found.filesystem.closed) == ([], ())
    assert reasons(judged(place, 'write = ["work"]\nprotect = ["data"]', "--", "x")[1]) == ["protect-outside"]


def test_no_network_by_flag_leaves_the_cards_hosts_out(place: Path) -> None:
    """`--net none` is enough to run a card without its network; said in the card itself, it is a contradiction."""
    text = 'hosts = ["pypi.org"]\n[worker]\nmodel_host = "model.example.org"'
    found, refused = judged(place, text, "--net", "none", "--", "x")
    assert refused == []
    assert found.names == ()
    assert "--net none leaves out the card file's pypi.org model.example.org" in found.notes
    assert reasons(judged(place, f'net = "none"\n{text}', "--", "x")[1]) == ["no-network", "no-network"]


def test_a_users_defaults_lie_below_the_card(place: Path, own_home: Path) -> None:
    """What the card does not say is the defaults'; a run by flags alone has them too."""
    config = own_home / ".config/card-run/config.toml"
    config.write_text('image = "localhost/mine"\nhosts = ["pypi.org"]\nnet = "slirp"\n[limits]\nnofile = 99\n')
    found, refused = judged(place, 'net = "pasta"', "--", "x")
    assert refused == []
    assert (found.image, found.net, found.limits.nofile) == ("localhost/mine", "pasta", 99)
    plain = launch.judge(options.read(["--resolver", "192.0.2.1", "--image", "localhost/flag", "--", "x"])[0])[0]
    assert (plain.image, plain.net, plain.names) == ("localhost/flag", "slirp", (*BASE_NAMES, "pypi.org"))


def test_defaults_that_are_not_defaults(own_home: Path) -> None:
    """What opens the bench to every card is no default, and a card's keys are not a user's."""
    config = own_home / ".config/card-run/config.toml"
    for text in ('write = ["/srv"]', 'read = ["/srv"]', 'env = ["A"]', 'command = ["x"]', "[access]", "[worker]"):
        config.write_text(text)
        with pytest.raises(Refused) as caught:
            options.read(["--", "x"])
        assert reasons(list(caught.value.refusals)) == ["user-config"]
    config.write_text("")
    config.chmod(0o622)
    with pytest.raises(Refused, match="others can write it"):
        options.read(["--", "x"])


def test_flags_and_files_are_wrong_at_once(place: Path, own_home: Path) -> None:
    """One run tells what is wrong with the command line, the card and the defaults."""
    (own_home / ".config/card-run/config.toml").write_text("nonsense = 1")
    (place / "agent.toml").write_text("nonsense = 1\nagain = 2")
    with pytest.raises(Refused) as caught:
        options.read(["--nonsense", "--card", str(place / "agent.toml")])
    assert sorted(reasons(list(caught.value.refusals))) == ["bad-command-line", "card-file", "card-file", "user-config"]


def test_help_needs_no_good_files(own_home: Path) -> None:
    """`--help` and `--version` answer whatever stands in the files."""
    (own_home / ".config/card-run/config.toml").write_text("nonsense = 1")
    assert options.read(["--help", "--card", "/none"])[1]["help"]


# what the worker could rewrite


def test_a_card_that_the_worker_could_rewrite(place: Path) -> None:
    """A card in its own write root decides the next run: refused by flag and by card, unless it is protected."""
    assert reasons(judged(place, 'write = ["."]', "--", "x")[1]) == ["card-writable"]
    assert reasons(judged(place, "", "--write", str(place), "--", "x")[1]) == ["card-writable"]
    assert judged(place, 'write = ["."]\nprotect = ["agent.toml"]', "--", "x")[1] == []
    assert judged(place, "", "--write", str(place), "--protect", f"{place}/agent.toml", "--", "x")[1] == []
    assert judged(place, 'write = ["work"]', "--", "x")[1] == []


def test_a_card_behind_a_link_that_the_worker_could_replace(place: Path) -> None:
    """A link in a write root is the worker's, wherever it leads; protecting what it leads to does not keep it."""
    judged(place, 'write = ["work"]')
    (place / "work/agent.toml").symlink_to(place / "agent.toml")
    (place / "agent.toml").write_text(f'write = ["{place}/work"]\nprotect = ["agent.toml"]\ncommand = ["x"]')
    asked = options.read(["--card", f"{place}/work/agent.toml", "--resolver", "192.0.2.1"])[0]
    assert "card-writable" in reasons(launch.judge(asked)[1])
    (place / "work/real.toml").write_text('command = ["x"]\nwrite = ["."]\nprotect = ["real.toml"]\n')
    (place / "work/link.toml").symlink_to("real.toml")
    for name, expected in (("real", []), ("link", ["card-writable"])):
        asked = options.read(["--card", f"{place}/work/{name}.toml", "--resolver", "192.0.2.1"])[0]
        assert reasons(launch.judge(asked)[1]) == expected


def test_the_advice_about_a_card_behind_a_link_leads_on(place: Path) -> None:
    """A link cannot be protected: what to name and to protect instead is said, and then the run is not refused."""
    (place / "kept").mkdir()
    for folder, also in (("work", f", and protect that: --protect {place}/work/real.toml"), ("kept", "")):
        (place / f"{folder}/real.toml").write_text(f'command = ["x"]\nwrite = ["{place}/work"]\n')
        (place / "work/link.toml").unlink(missing_ok=True)
        (place / "work/link.toml").symlink_to(place / f"{folder}/real.toml")
        asked = options.read(["--card", f"{place}/work/link.toml", "--resolver", "192.0.2.1"])[0]
        (refusal,) = launch.judge(asked)[1]
        assert refusal.hint == f"a link leads to it: name {place}/{folder}/real.toml itself{also}"
        words = ["--protect", f"{place}/work/real.toml"] if also else []
        asked = options.read(["--card", f"{place}/{folder}/real.toml", "--resolver", "192.0.2.1", *words])[0]
        assert launch.judge(asked)[1] == []


def test_variables_that_the_worker_could_rewrite(place: Path) -> None:
    """A file of variables names what crosses next time: the same rule."""
    (place / "work/vars").write_text("A=b\n")
    text = 'write = ["work"]\nenv_file = ["work/vars"]\n'
    assert reasons(judged(place, text, "--", "x")[1]) == ["env-file-writable"]
    assert judged(place, f'{text}protect = ["work/vars"]', "--", "x")[1] == []


# profiles


ACCESS = """
[access]
workspace = "work"
workspace_read = "allow"
workspace_write = "allow"
command = "allow"
network = "allow"
"""


def roots(found: Launch) -> dict[str, str]:
    """Return the access of each root by the end of its path."""
    return {os.path.basename(root.path): root.access for root in found.filesystem.roots}


def test_a_profile_says_what_is_mounted(place: Path) -> None:
    """The workspace and the roots are mounted as far as they are allowed, and the worker starts in the workspace."""
    found, refused = judged(place, f'{ACCESS}[[access.roots]]\npath = "data"\nread = "allow"\n', "--", "x")
    assert refused == []
    assert roots(found) == {"work": "write", "data": "read"}
    assert found.filesystem.cwd == f"{place}/work"
    readable, refused = judged(place, ACCESS.replace('workspace_write = "allow"', ""), "--", "x")
    assert refused == []
    assert (roots(readable), readable.filesystem.cwd) == ({"work": "read"}, f"{place}/work")


@pytest.mark.parametrize("level", ["gated", "deny"])
def test_what_is_not_allowed_stays_closed(level: str, place: Path) -> None:
    """Gated and denied alike are not mounted, not reached, not started; only gated says that a grant would open it."""
    text = ACCESS.replace('write = "allow"', f'write = "{level}"').replace('network = "allow"', f'network = "{level}"')
    found, refused = judged(place, text, "--", "x")
    assert refused == []
    assert (roots(found), found.net) == ({"work": "read"}, "none")
    assert any("gated" in note for note in found.notes) == (level == "gated")
    closed = ACCESS.replace('command = "allow"', f'command = "{level}"')
    assert reasons(judged(place, closed, "--", "x")[1]) == ["required" if level == "gated" else "denied"]


CONTRADICTIONS = {
    "a list beyond the profile": (f'read = ["data"]\n{ACCESS}', []),
    "a write list over a read-only workspace": (
        f'write = ["work"]\n{ACCESS.replace("workspace_write", "host_read")}',
        [],
    ),
    "a read list over a writable workspace": (f'read = ["work"]\n{ACCESS}', []),
    "a flag beyond the profile": (ACCESS, ["--read", "{place}/data"]),
    "hosts without a network": (f'hosts = ["pypi.org"]\n{ACCESS.replace("network", "host_read")}', []),
    "a host by flag without a network": (ACCESS.replace("network", "host_read"), ["--allow-host", "pypi.org"]),
    "a real HOME": (f'home = "real"\n{ACCESS}', []),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictions_between_profile_and_lists(name: str, place: Path) -> None:
    """Where a list and the profile differ, neither silently wins."""
    text, words = CONTRADICTIONS[name]
    _, refused = judged(place, text, *(word.format(place=place) for word in words), "--", "x")
    assert "access-contradiction" in reasons(refused)


@pytest.mark.parametrize("name", ["read", "read_noexec", "write"])
def test_a_listed_path_that_is_gated_wants_a_grant(name: str, place: Path) -> None:
    """A card that lists what it gates contradicts nothing: its run is `required` to have a grant, and says for what."""
    text = f'{name} = ["data"]\n{ACCESS}host_read = "gated"\nhost_write = "gated"\n'
    refused = judged(place, text, "--", "x")[1]
    assert [(one.reason, one.hint) for one in refused] == [("required", "card grant issue")]
    assert f"{place}/data" in refused[0].text
    denied = judged(place, text.replace("gated", "deny"), "--", "x")[1]
    assert reasons(denied) == ["access-contradiction"]


def test_defaults_do_not_contradict_a_profile(place: Path, own_home: Path) -> None:
    """What a user's defaults say for every card gives way to what this card says of itself."""
    (own_home / ".config/card-run/config.toml").write_text('hosts = ["pypi.org"]\nhome = "real"\n')
    found, refused = judged(place, ACCESS.replace("network", "host_read"), "--", "x")
    assert refused == []
    assert (found.net, found.names, dict(found.env)["HOME"]) == ("none", (), "/card")


def test_a_flag_may_ask_for_less(place: Path) -> None:
    """`--read` of a workspace that may be written narrows this run; and what the profile allows may be listed too."""
    found, refused = judged(place, ACCESS, "--read", f"{place}/work", "--", "x")
    assert (refused, roots(found)) == ([], {"work": "read"})
    wide = ACCESS + 'host_read = "allow"\n'
    found, refused = judged(place, f'read = ["data"]\nwrite = ["work"]\n{wide}', "--", "x")
    assert (refused, roots(found)) == ([], {"work": "write", "data": "read"})


def test_what_no_wall_can_hold_is_refused(place: Path) -> None:
    """A place inside a mounted tree cannot be closed to reading, and no run is unconfined."""
    (place / "work/keys").mkdir()
    _, refused = judged(place, f'{ACCESS}[[access.roots]]\npath = "work/keys"\n', "--", "x")
    assert reasons(refused) == ["access-unenforceable"]
    text = f'{ACCESS}isolation = "unconfined"\nack_unconfined = true\n'
    assert reasons(judged(place, text, "--", "x")[1]) == ["access-unenforceable"]
    nested, refused = judged(place, f'{ACCESS}[[access.roots]]\npath = "work/keys"\nread = "allow"\n', "--", "x")
    assert (refused, roots(nested)) == ([], {"work": "write", "keys": "read"})


# where it came from


def test_origins(place: Path, own_home: Path) -> None:
    """Each value of a plan says which flag or line it came from."""
    config = own_home / ".config/card-run/config.toml"
    config.write_text('hosts = ["pypi.org"]\n[limits]\nnofile = 99\n')
    text = 'write = [\n  "work",\n]\n[worker]\nmodel_host = "model.example.org"\n[limits]\ntimeout = 5\n'
    found, refused = judged(place, text, "--read", f"{place}/data", "--timeout", "6", "--", "x", "y z")
    assert refused == []
    rows = {(row.key, row.value): row.origin for row in origin.rows(found)}
    card = f"card file {place}/agent.toml line"
    assert rows["write", f"{place}/work"] == f"{card} 2"
    assert rows["worker.model_host", "model.example.org"] == f"{card} 5"
    assert rows["read", f"{place}/data"] == "flag"
    assert rows["limits.timeout", "6"] == "flag"
    assert rows["limits.nofile", "99"] == f"your defaults {config} line 3"
    assert rows["hosts", "pypi.org"] == f"your defaults {config} line 1"
    assert rows["command", "x 'y z'"] == "flag"
    assert rows["net", "pasta"] == "default"
    assert rows["name", "agent"] == f"the name of {place}/agent.toml"


def test_what_every_layer_says_is_told_once(place: Path, own_home: Path) -> None:
    """A host that a flag, the card and the defaults name is one row, the flag's."""
    (own_home / ".config/card-run/config.toml").write_text('hosts = ["pypi.org", "model.example.org"]\n')
    found, _ = judged(place, 'hosts = ["pypi.org"]\n', "--allow-host", "pypi.org", "--", "x")
    rows = [(row.value, row.origin.rpartition(" ")[2]) for row in origin.rows(found) if row.key == "hosts"]
    assert rows == [("pypi.org", "flag"), ("model.example.org", "1")]


@pytest.mark.parametrize(("said", "line"), [('network = "deny"\n', 4), ("", 1)])
def test_a_network_that_the_profile_closes_is_its_doing(said: str, line: int, place: Path) -> None:
    """`net = none` comes from the line that denies the network, or from the table that does not speak of it."""
    found, refused = judged(place, f'[access]\nworkspace = "work"\ncommand = "allow"\n{said}', "--", "x")
    assert refused == []
    rows = {(row.key, row.value): row.origin for row in origin.rows(found)}
    assert rows["net", "none"] == f"card file {place}/agent.toml line {line}"


def test_what_outlives_a_run_is_shown(place: Path) -> None:
    """`--keep` is a value of the plan too."""
    kept = place / "kept"
    kept.mkdir(mode=0o700)
    found, refused = judged(place, "", "--keep", str(kept), "--", "x")
    assert refused == []
    assert ("--keep", str(kept), "flag") in [(row.key, row.value, row.origin) for row in origin.rows(found)]


def test_a_plan_shows_no_variables_value(place: Path) -> None:
    """A plan is for showing: it names variables, and where they come from."""
    found, _ = judged(place, 'env = ["TOKEN=s3cret"]', "--env", "KEY=al so", "--env", "HOME", "--", "x")
    rows = [(row.value, row.origin.rpartition(" ")[2]) for row in origin.rows(found) if row.key == "env"]
    assert rows == [("TOKEN=...", "1"), ("KEY=...", "flag"), ("HOME", "flag")]
    assert "s3cret" not in repr(origin.rows(found))


def test_a_refusal_names_the_line(place: Path) -> None:
    """What a run finds wrong with a value of the card says which line that is."""
    found, refused = judged(place, 'command = ["x"]\nhosts = ["pypi.org",\n "unlisted.example.org"]\nread = ["none"]')
    told = [refusal.hint for refusal in origin.explained(refused, found.asked)]
    assert [hint.rpartition("line ")[2] for hint in told] == ["3", "4"]
    found, refused = judged(place, ACCESS.replace('"work"', '"wrok"'), "--", "x")
    told = [refusal.hint for refusal in origin.explained(refused, found.asked)]
    assert told == [f"card file {place}/agent.toml line 3"]


def test_a_card_of_the_usual_name_is_called_as_its_directory(place: Path) -> None:
    """`card.toml` is what most cards are called: the directory tells them apart in `card ps`."""
    (place / "card.toml").write_text('command = ["x"]')
    assert options.read(["--card", f"{place}/card.toml"])[0].card_name == "cards"
    assert judged(place, 'name = "mine"', "--", "x")[0].asked.card_name == "mine"


# the schema


VALIDATOR = jsonschema.Draft7Validator(schema.schema())


def test_the_shipped_schema_is_the_tables() -> None:
    """The file for editors is what the table of keys makes, and itself a schema."""
    assert Path(schema.FILE).read_text(encoding="utf-8") == schema.text()
    jsonschema.Draft7Validator.check_schema(schema.schema())


@pytest.mark.parametrize(
    ("kind", "text"),
    [(kinds.NAME, "a"), (kinds.IMAGE, "localhost/x"), (kinds.PATH, "/a"), (kinds.HOST, "a.b"), (kinds.SIZE, "2g")],
)
def test_a_line_end_is_no_end(kind: kinds.Kind, text: str) -> None:
    """Validators differ in what `$` matches: a line end behind a good value is refused by all, as by card-run."""
    validator = jsonschema.Draft7Validator(kind.schema)
    assert (kinds.fits(text, kind.schema), validator.is_valid(text)) == (True, True)
    assert (kinds.fits(f"{text}\n", kind.schema), validator.is_valid(f"{text}\n")) == (False, False)


def valid(kind: kinds.Kind) -> st.SearchStrategy[Any]:
    """Return values that a kind takes."""
    words: list[tuple[kinds.Kind, st.SearchStrategy[Any]]] = [
        (kinds.NAME, st.sampled_from(["a", "ü 1"])),
        (kinds.LINE, st.sampled_from(["a", "b c"])),
        (kinds.IMAGE, st.sampled_from(["localhost/x", "r.example:5000/a/b@sha256:0", "a.b/c"])),
        (kinds.PATH, st.sampled_from(["/a", "a/../b", "~", "~/x", ".", "a\\b'\""])),
        (kinds.HOST, st.sampled_from(["a.example", "A.Example.", "xn--bcher-kva.example"])),
        (kinds.FLAG, st.booleans()),
        (kinds.SIZE, st.sampled_from([1, 4096, "2g", "10", "7B"])),
        (kinds.COUNT, st.integers(1, 1 << 40)),
        (kinds.AMOUNT, st.one_of(st.integers(1, 10**6), st.floats(0.001, 1e6))),
        (kinds.COMMAND, st.lists(st.sampled_from(["a", "", "-x y"]), min_size=1, max_size=3)),
        (kinds.ENV, st.lists(st.sampled_from(["A", "A=", "B=c\nd", "a.b=ü"]), max_size=3)),
        (kinds.HOSTS, st.lists(st.sampled_from(["a.example", "b.example"]), max_size=3)),
        (kinds.PATHS, st.lists(st.sampled_from(["/a", "b", "~/c"]), max_size=3)),
    ]
    found = next((strategy for one, strategy in words if one is kind), None)
    return found if found is not None else st.sampled_from(kind.schema["enum"])


KEYS = {key.dotted: key for key in keys.of(defaults=False)}
ACCESSES = st.fixed_dictionaries(
    {"workspace": st.sampled_from(["/w", "~/w", "."])},
    optional={
        **{name: st.sampled_from(words) for name, words in judge.WORDS.items()},
        "ack_unconfined": st.booleans(),
        "roots": st.lists(
            st.fixed_dictionaries(
                {"path": st.sampled_from(["/r", "/s", "t"])}, optional={"read": LEVELS, "write": LEVELS}
            ),
            max_size=2,
        ),
    },
)


@st.composite
def cards(draw: st.DrawFn) -> dict[str, Any]:
    """Return the table of a card whose every value has the shape of its key."""
    table: dict[str, Any] = {}
    for key in map(KEYS.__getitem__, draw(st.lists(st.sampled_from(sorted(KEYS)), unique=True, max_size=6))):
        inner = table.setdefault(key.table, {}) if key.table else table
        inner[key.name] = draw(valid(key.kind))
    if draw(st.booleans()):
        table["access"] = draw(ACCESSES)
    return table


# JSON does not tell 1e12 from an integer, so no such float is in here
ODD = st.sampled_from(
    [
        0,
        -1,
        1.5,
        10**30,
        1e12 + 0.5,
        True,
        "",
        "x\x01",
        " ",
        "~root",
        "none",
        [],
        [1],
        ["ok", 2],
        {},
        {"a": 1},
        ["x\x00"],
    ]
)


@given(cards())
def test_good_cards_are_good_by_both(table: dict[str, Any]) -> None:
    """The schema takes every card of the right shape, and so does card-run but for what `[access]` says of itself."""
    assert VALIDATOR.is_valid(table)
    assert [one for one in shape.problems(table, base="/cards") if one.where[0] != "access"] == []


@settings(max_examples=400)
@given(cards(), st.sampled_from(sorted(KEYS)), ODD, st.sampled_from(["value", "key", "table"]))
def test_the_schema_and_card_run_agree(table: dict[str, Any], name: str, odd: Any, where: str) -> None:
    """Outside `[access]` they take and refuse the same tables."""
    key = KEYS[name]
    if where == "table" and key.table:
        table[key.table] = odd
    elif where == "key":
        inner = table.setdefault(key.table, {}) if key.table else table
        inner[key.name + "x"] = odd
    else:
        inner = table.setdefault(key.table, {}) if key.table else table
        inner[key.name] = odd
    found = [one for one in shape.problems(table, base="/cards") if one.where[0] != "access"]
    # what a hostname is, no schema says
    by_name = [one for one in found if one.text.startswith("'") and shape.NO_KEY not in one.text]
    assert VALIDATOR.is_valid(table) or len(found) > len(by_name)
    assert not VALIDATOR.is_valid(table) or len(found) == len(by_name)


BOUNDS: dict[str, list[Any]] = {
    "limits.pids": [0, 1, (1 << 63) - 1, 1 << 63, "1", 1.5],
    "limits.memory": [0, 1, (1 << 63) - 1, 1 << 63, "0", "00g", "01k", "1kb", "2 g", "9" * 21],
    "limits.timeout": [0, 0.0001, 0.001, 999_999_999, 1e9, "5"],
    "name": ["", "x" * 64, "x" * 65, "a\nb", "\u0080"],
    "image": ["alpine", "a/b", "a.b/", "a.b/c", "-a.b/c", "localhost/x y", "a:1/b", "localhost/" + "x" * 4096],
    "command": [[], [""], ["a"], "a", ["a\x00"]],
    "env": [[], ["=x"], ["A B"], ["A="], ["A=\x00"], ["\u00c4"]],
    "read": [["~"], ["~a"], ["~/a"], [""], ["a\x7f"], ["a" * 4096], ["a" * 4097]],
}


@pytest.mark.parametrize("name", BOUNDS)
def test_the_schema_and_card_run_agree_at_the_edges(name: str) -> None:
    """The values on both sides of each bound are taken or refused by both, and some are taken."""
    key = KEYS[name]
    taken = []
    for value in BOUNDS[name]:
        table = {key.table: {key.name: value}} if key.table else {key.name: value}
        good = shape.problems(table, base="/cards") == []
        assert VALIDATOR.is_valid(table) == good, value
        taken.append(good)
    assert {True, False} == set(taken)


@given(ACCESSES, st.sampled_from(sorted(judge.KEYS)), ODD)
def test_the_schema_refuses_no_profile_that_is_good(table: dict[str, Any], key: str, odd: Any) -> None:
    """What the schema refuses of `[access]`, card-run refuses; pairs and places are card-run's alone to judge."""
    table = {**table, key: odd}
    if not VALIDATOR.is_valid({"access": table}):
        assert shape.problems({"access": table}, base="/cards")


@given(cards())
def test_cards_written_as_toml_are_read_the_same(table: dict[str, Any]) -> None:
    """Through TOML nothing of a card changes, and every value has a place of its own kind."""
    text = tomlkit.dumps(table)
    assert tomllib.loads(text) == table
    found = position.marks(text)
    lines = text.split("\n")
    for where in walk(table):
        line, column = found[where].value
        assert lines[line - 1][column - 1 :].strip(), (where, text)


def walk(value: Any, where: position.Where = ()) -> list[position.Where]:
    """Return the place of every key and element of a table."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for step, inner in items for place in ((*where, step), *walk(inner, (*where, step)))]


FRAGMENTS = st.sampled_from(
    [
        *(
            "[a]",
            "[[a.b]]",
            "[a.b.c]",
            "a = 1",
            "a.b = {c = 1, 'd' = [2]}",
            'a = "x\\"y"',
            "a = '''x\n'''",
            "# c",
            "net = 1",
        ),
        *(
            "read = [",
            '"x",',
            "]",
            "[limits]",
            "pids = 1",
            "[access]",
            "workspace = 1",
            "[[access.roots]]",
            "path = 1",
            "{",
            "}",
        ),
        *(
            'a = """',
            '"""',
            "'''",
            '"',
            "'",
            "\\",
            "=",
            ".",
            ",",
            " ",
            "\t",
            "\r",
            "\x00",
            "é",
            "1979-05-27 07:32:00",
            "\n",
        ),
    ]
)


@settings(max_examples=500)
@given(
    st.builds("\n".join, st.lists(FRAGMENTS, max_size=8)), st.text(st.sampled_from("a.=[]{}\"'#,\n \\"), max_size=12)
)
def test_any_text_is_answered(text: str, more: str) -> None:
    """Whatever the text, there is an answer, and every problem stands in the text."""
    for whole in (text, text + more, more + text):
        for one in load.judged(whole.encode(), base="/cards")[1]:
            assert 1 <= one.line <= whole.count("\n") + 2
            assert one.column >= 1


ODD_TOML = """\
a = 1 # x = "
"q.\\"b".c = [ 1, "x]", [2,
 3], ] # ]
d = 1979-05-27 07:32:00
[t.u]
x = {a = "}", b.c = '''z
'''''}
[[r]]
p=\"\"\"a\\\"\"\" \"\"\"
[[r]]
p=2
[r.z]
'l\\' = [{k = 1}, {k = 2}]
"""


def test_places_in_odd_toml() -> None:
    """Quotes in keys, strings of every kind, dates with a space, inline tables, arrays of tables: all are found."""
    found = position.marks(ODD_TOML)
    assert set(walk(tomllib.loads(ODD_TOML))) <= set(found)
    assert found["t", "u", "x", "b", "c"].value == (6, 21)
    assert found['q."b', "c", 2, 1].value == (3, 2)
    assert found["r", 1, "z", "l\\", 1, "k"] == position.Mark(key=(13, 19), value=(13, 23))
    assert position.nearest(found, ("t", "u", "none", "deeper")).key == (5, 1)
