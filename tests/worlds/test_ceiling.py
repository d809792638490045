"""The bench's ceiling, written by root and felt by a user's cards: each thing it takes away has its control."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bench import inside
from tests.bench.cards import Run, run

UID = 1000
CONFIG = Path("/etc/card-run/config.toml")
OPEN = {
    "workspace_read": "allow",
    "workspace_write": "allow",
    "host_read": "allow",
    "host_write": "allow",
    "network": "allow",
    "command": "allow",
    "home": "real",
}
Config = Callable[[str], object]
Ceiling = Callable[..., None]
SOURCE = Path(__file__).parents[2]
USER = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--init-groups", "env", "-i", f"PATH={os.environ['PATH']}"]
USER += ["HOME=/home/card", "USER=card", "LOGNAME=card", "LANG=C.UTF-8", f"XDG_RUNTIME_DIR=/run/user/{UID}"]


def card(*words: str, program: str = "card-run") -> Run:
    """Run `card-run` as the bench's user."""
    return run([*USER, program, *words])


@pytest.fixture
def config() -> Iterator[Config]:
    """Return what writes settings beside those that are there; they come back alone."""
    before = CONFIG.read_text()
    yield lambda text: CONFIG.write_text(f"{before}{text}")
    CONFIG.write_text(before)
    CONFIG.chmod(0o644)
    CONFIG.parent.chmod(0o755)


@pytest.fixture
def ceiling(config: Config) -> Ceiling:
    """Return what writes a ceiling beside the settings that are there."""

    def write(extra: str = "", **levels: str) -> None:
        table = "".join(f'{name} = "{level}"\n' for name, level in {**OPEN, **levels}.items())
        config(f"[ceiling]\n{table}{extra}")

    return write


@pytest.fixture
def place() -> Iterator[Path]:
    """Return a directory of the user's, with one to work in and one to read."""
    top = Path("/home/card/ceiling")
    for path in (top, top / "work", top / "data"):
        path.mkdir()
        os.chown(path, UID, UID)
    (top / "data/file").write_text("read me\n")
    yield top
    run(["rm", "-rf", str(top)])


REACH = "curl -s --max-time 5 https://github.com >/dev/null && echo reached"
TRY = f'touch here && echo written; cat ../data/file; {REACH}; echo "$HOME"'


def tried(place: Path, *words: str) -> Run:
    """Run a card that writes, reads, connects and says what its HOME is."""
    options = ["--write", f"{place}/work", "--read", f"{place}/data", "--home", "real", *words]
    return card(*options, "--json", f"{place}/receipt.json", "--", "sh", "-c", TRY)


ALL = ["written", "read me", "reached", "/home/card"]


def test_an_open_ceiling_takes_nothing(ceiling: Ceiling, place: Path) -> None:
    """The control: with and without a ceiling that allows everything, everything works."""
    assert tried(place).out.splitlines() == ALL
    ceiling()
    done = tried(place)
    assert done.out.splitlines() == ALL, done.err
    assert "ceiling" not in done.err


NARROWED: dict[str, tuple[dict[str, str], str, str]] = {
    "writing": ({"workspace_write": "deny"}, "written", "keeps {place}/work read-only"),
    "reading": ({"host_read": "deny", "host_write": "deny"}, "read me", "closes {place}/data"),
    "the network": ({"network": "deny"}, "reached", "closes the network"),
    "HOME": ({"home": "isolated"}, "/home/card", "keeps HOME isolated"),
    "what is gated": ({"workspace_write": "gated"}, "written", "keeps {place}/work read-only"),
}


@pytest.mark.parametrize("name", NARROWED)
def test_each_thing_is_narrowed(name: str, ceiling: Ceiling, place: Path) -> None:
    """One thing is taken away inside, everything else still works, a NOTE says so, and the receipt with the file."""
    levels, gone, said = NARROWED[name]
    ceiling(**levels)
    done = tried(place)
    expected = [line for line in ALL if line != gone] + (["/card"] if name == "HOME" else [])
    assert done.out.splitlines() == expected, done.err
    sentence = f"the bench's ceiling {said.format(place=place)}"
    assert f"NOTE {sentence}" in done.err
    receipt = _receipt(place)
    assert sentence in receipt["access"]["narrowed"]
    assert receipt["files"]["ceiling"]["path"] == str(CONFIG)
    assert receipt["files"]["ceiling"]["sha256"] == run(["sha256sum", str(CONFIG)]).out.split()[0]


def _receipt(place: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((place / "receipt.json").read_text())
    return content


SENSELESS: dict[str, tuple[dict[str, str], list[str], str]] = {
    "a command": ({"command": "deny"}, [], "ceiling-command"),
    "a workspace": ({"workspace_read": "deny", "workspace_write": "deny"}, [], "ceiling-workspace"),
    "a model": ({"network": "deny"}, ["--model-host", "api.model.example"], "ceiling-network"),
}


@pytest.mark.parametrize("name", SENSELESS)
def test_what_makes_no_sense_any_more_is_refused(name: str, ceiling: Ceiling, place: Path) -> None:
    """Nothing runs, and the reason is the ceiling's."""
    levels, words, reason = SENSELESS[name]
    ceiling(**levels)
    done = tried(place, *words)
    assert (done.status, done.out, done.reasons) == (125, "", [reason])
    ceiling()
    assert tried(place, *words).out.splitlines() == ALL


def test_a_read_only_place_inside_a_writable_one(ceiling: Ceiling, place: Path) -> None:
    """A root of the ceiling inside the workspace stays read-only, and cannot be moved out of the way."""
    (place / "work/keys").mkdir()
    os.chown(place / "work/keys", UID, UID)
    attempt = ("--write", f"{place}/work", "--", "sh", "-c", "touch a keys/b; mv keys other; ls")
    assert card("-q", *attempt).out.split() == ["a", "other"]
    run(["rm", "-rf", f"{place}/work/other", f"{place}/work/a"])
    (place / "work/keys").mkdir()
    os.chown(place / "work/keys", UID, UID)
    ceiling(f'[[ceiling.roots]]\npath = "{place}/work/keys"\nread = "allow"\n')
    done = card("-q", *attempt)
    assert done.out.split() == ["a", "keys"], done.err
    assert list((place / "work/keys").iterdir()) == []


def test_a_cards_own_profile_is_held_to_it(ceiling: Ceiling, place: Path) -> None:
    """A card that allows itself the network does not have it, with or without flags that ask again."""
    (place / "agent.toml").write_text(
        '[access]\nworkspace = "work"\nworkspace_read = "allow"\nnetwork = "allow"\ncommand = "allow"\n'
    )
    attempt = ("--", "sh", "-c", REACH)
    assert card("-q", "--card", f"{place}/agent.toml", *attempt).out == "reached\n"
    ceiling(network="deny")
    for words in ((), ("--net", "pasta", "--allow-host", "api.model.example")):
        done = card("--card", f"{place}/agent.toml", *words, *attempt)
        assert done.out == "", done.err
        assert "NOTE the bench's ceiling closes the network" in done.err


# A product that asks about what its profile gates: here nobody says no.
PRODUCT = """
import sys
from launcher import ExecutorSet, Profile
work, scratch = sys.argv[1:]
profile = Profile(workspace=work, workspace_read="allow", workspace_write="allow", command="allow")
classes = {"command": ("command.start.v1", ""), "workspace_write": ("filesystem.tree.write.v1", work)}
with ExecutorSet(profile, scratch_root=scratch) as executors:
    prepared = executors.executor("a").prepare(["touch", "made"])
    gated = [row.feature for row in prepared.report if row.asked == "gated"]
    result = prepared.run(grants=[prepared.issue_grant(*classes[feature]) for feature in gated])
    print(result.status, *gated)
"""


def test_a_program_asks_about_what_the_ceiling_gates(ceiling: Ceiling, place: Path) -> None:
    """The report of a command is what it will be held to, so that what was asked about by it suffices for the run."""
    argv = [*USER, f"PYTHONPATH={SOURCE}", "python3", "-c", PRODUCT, f"{place}/work", f"{place}/scratch"]
    assert run(argv).out == "0\n"
    (place / "work/made").unlink()
    ceiling(workspace_write="gated", command="gated")
    done = run(argv)
    assert done.out == "0 workspace_write command\n", done.err
    assert (place / "work/made").exists()


UNLISTED = "unlisted.example"
TCP = [["tcp", address, 443] for address in ("198.51.100.66", "203.0.113.10")]


def test_a_grant_exceeds_the_policy_file_where_the_bench_lets_it(config: Config, place: Path) -> None:
    """A host outside that file is `unsupported`; where the bench says so it is pinned for one run, and only granted."""
    levels = 'workspace_read = "allow"\nnetwork = "gated"\ncommand = "allow"\n'
    (place / "agent.toml").write_text(f'[access]\nworkspace = "work"\n{levels}')
    told = ["--card", f"{place}/agent.toml", "--run", "x1"]
    command = ["--", "python3", "-c", inside.PROGRAM, json.dumps(TCP)]
    token = ["--class", "network.proxy-target.v1", "--target", f"tcp:{UNLISTED}:443", "--out", f"{place}/token"]
    granted = ["-q", *told, "--json", f"{place}/receipt.json", "--grant", f"@{place}/token", *command]

    def issue() -> Run:
        (place / "token").unlink(missing_ok=True)
        return card("grant", "issue", *token, *told, *command, program="card")

    def results(*words: str) -> list[str]:
        done = card(*words)
        assert done.status == 0, done.err
        return [result for result, _ in json.loads(done.out)]

    assert issue().reasons == ["unsupported"]
    config("grants_may_exceed_policy = true\n")
    assert issue().status == 0
    config("")
    assert card(*granted).reasons == ["unsupported"]
    config("grants_may_exceed_policy = true\n")
    assert results(*granted) == ["ok", "ECONNREFUSED"]
    receipt = _receipt(place)
    assert list(receipt["pins"]) == [UNLISTED]
    assert [grant["target"] for grant in receipt["access"]["grants"]] == [f"tcp:{UNLISTED}:443"]
    assert card(*granted).reasons == ["replay"]
    assert results("-q", *told, *command) == ["ENETUNREACH", "ENETUNREACH"]
    assert card("--allow-host", UNLISTED, "--", "true").reasons == ["unknown-name"]


def test_a_ceiling_that_others_could_write_stops_every_run(ceiling: Ceiling) -> None:
    """A file, or a directory on its way, that is not root's alone decides nothing, and nothing runs without it."""
    ceiling()
    assert card("-q", "--", "echo", "ran").out == "ran\n"
    CONFIG.chmod(0o666)
    assert card("--", "echo", "ran").reasons == ["bench-config"]
    CONFIG.chmod(0o644)
    CONFIG.parent.chmod(0o777)
    done = card("--", "echo", "ran")
    assert (done.status, done.out, done.reasons) == (125, "", ["bench-config"])
    CONFIG.parent.chmod(0o755)
    os.chown(CONFIG, UID, UID)
    assert card("--", "echo", "ran").reasons == ["bench-config"]
    os.chown(CONFIG, 0, 0)


def test_card_check_shows_both(ceiling: Ceiling) -> None:
    """`card check` tells the ceiling and the user's defaults, and a ceiling that cannot be is a finding."""
    ceiling(network="deny")
    done = card("check", program="card")
    line = next(line for line in done.out.splitlines() if "ceiling" in line)
    assert str(CONFIG) in line
    assert "network deny" in line
    CONFIG.write_text("[ceiling]\nnetwrok = 1\n")
    done = card("check", program="card")
    assert done.status == 1
    assert "did you mean 'network'" in done.out
