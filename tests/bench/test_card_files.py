"""Card files run for real: what they say is what the worker has, flags go over them, and hostile ones run nothing."""

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.cards import IMAGE, Run, card, run

pytestmark = pytest.mark.usefixtures("nothing_left")
LOOK = 'pwd; cat "$1"; echo "A=$A"; ulimit -n; cat /etc/hosts | tail -n +3 | cut -d" " -f2 | sort -u | xargs echo'


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a directory with a workspace, something to read, and room for cards."""
    for name in ("work", "data"):
        (tmp_path / name).mkdir()
    (tmp_path / "data/file").write_text("read me\n")
    return tmp_path


@pytest.fixture
def defaults() -> Iterator[Path]:
    """Return where the user's defaults are; what was there comes back."""
    path = Path.home() / ".config/card-run/config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_text() if path.exists() else None
    yield path
    path.unlink(missing_ok=True)
    if before is not None:
        path.write_text(before)


def with_card(place: Path, text: str, *words: str, receipt: Path | None = None) -> Run:
    """Run a card file of this text, with flags."""
    (place / "agent.toml").write_text(text)
    return card("--card", str(place / "agent.toml"), *words, receipt=receipt)


CARD = f"""\
command = ["sh", "-c", '''{LOOK}''', "look", "../data/file"]
write = ["work"]
read = ["data"]
hosts = ["api.model.example"]
env = ["A=card"]
[limits]
nofile = 321
"""


def test_a_card_is_what_it_says(place: Path) -> None:
    """Command, directories, hosts, variables and limits of the file are the worker's; the receipt names the file."""
    receipt = place / "receipt.json"
    done = with_card(place, CARD, receipt=receipt)
    assert done.status == 0, done.err
    where, read, variable, descriptors, names = done.out.splitlines()
    assert (where, read, variable, descriptors) == (f"{place}/work", "read me", "A=card", "321")
    assert "api.model.example" in names
    assert done.receipt["card"] == "agent"
    assert done.receipt["files"]["card"]["path"] == f"{place}/agent.toml"
    digest = run(["sha256sum", f"{place}/agent.toml"]).out.split()[0]
    assert done.receipt["files"]["card"]["sha256"] == digest
    assert done.receipt["guarantees"]["resource_limits"]


def test_flags_go_over_the_card(place: Path) -> None:
    """A flag's word replaces the card's, what is a list grows, and the command after -- is the one that runs."""
    (place / "more").mkdir()
    words = ("--nofile", "111", "--env", "A=flag", "--write", f"{place}/more", "--net", "none")
    done = with_card(place, CARD, *words, "--", "sh", "-c", f"{LOOK}; touch {place}/more/x", "look", "../data/file")
    assert done.status == 0, done.err
    assert done.out.splitlines()[:4] == [f"{place}/work", "read me", "A=flag", "111"]
    assert "NOTE --net none leaves out the card file's api.model.example" in done.err
    assert (place / "more/x").exists()


def test_a_path_that_a_flag_names_is_the_flags(place: Path) -> None:
    """`--read` of the card's workspace makes this run read-only; without the flag the same write succeeds."""
    attempt = ("--", "sh", "-c", f"touch {place}/work/x")
    done = with_card(place, CARD, "-q", "--read", f"{place}/work", *attempt)
    assert "Read-only file system" in done.err
    assert not (place / "work/x").exists()
    assert with_card(place, CARD, "-q", *attempt).status == 0
    assert (place / "work/x").exists()


def test_a_users_defaults(place: Path, defaults: Path) -> None:
    """They are below the card and the flags, in runs without a card too, and the receipt names them."""
    defaults.write_text("[limits]\nnofile = 77\ntimeout = 50\n")
    receipt = place / "receipt.json"
    done = with_card(place, CARD, "-q", receipt=receipt)
    assert done.out.splitlines()[3] == "321"
    assert done.receipt["files"]["defaults"]["path"] == str(defaults)
    assert card("-q", "--", "sh", "-c", "ulimit -n").out == "77\n"
    assert card("-q", "--nofile", "78", "--", "sh", "-c", "ulimit -n").out == "78\n"


def test_a_protected_card_in_its_own_workspace(place: Path) -> None:
    """The worker reads the card and cannot write, replace or rename it; unprotected, no such run starts."""
    text = 'write = ["."]\nprotect = ["agent.toml"]\n'
    attempts = "cat agent.toml >/dev/null && echo read; echo x >> agent.toml; mv agent.toml b; rm -f agent.toml"
    attempts += "; echo y > z && mv z agent.toml"
    done = with_card(place, text, "-q", "--", "sh", "-c", attempts)
    assert done.out == "read\n"
    assert (place / "agent.toml").read_text() == text
    assert len([line for line in done.err.splitlines() if "Read-only" in line or "busy" in line]) >= 3
    refused = with_card(place, 'write = ["."]\n', "--", "echo", "ran")
    assert (refused.status, refused.out, refused.reasons) == (125, "", ["card-writable"])


ACCESS = """
[access]
workspace = "work"
workspace_read = "allow"
workspace_write = "allow"
command = "allow"
network = "allow"
"""
TRY = "touch here; cat ../data/file; curl -s --max-time 5 https://github.com >/dev/null && echo reached"


def test_a_profile_opens_what_it_allows(place: Path) -> None:
    """The control: everything allowed succeeds."""
    text = f'{ACCESS}[[access.roots]]\npath = "data"\nread = "allow"\n'
    done = with_card(place, text, "-q", "--", "sh", "-c", TRY)
    assert done.out.splitlines() == ["read me", "reached"], done.err
    assert (place / "work/here").exists()


@pytest.mark.parametrize("level", ["gated", "deny"])
def test_a_profile_closes_the_rest(level: str, place: Path) -> None:
    """Gated and denied alike are closed inside: nothing is written, read or reached, each in its own way."""
    text = ACCESS.replace('write = "allow"', f'write = "{level}"').replace('network = "allow"', f'network = "{level}"')
    done = with_card(place, f'{text}[[access.roots]]\npath = "data"\nread = "{level}"\n', "--", "sh", "-c", TRY)
    assert done.out == ""
    assert "Read-only file system" in done.err
    assert "No such file or directory" in done.err
    assert not (place / "work/here").exists()
    assert ("gated: closed without a grant" in done.err) == (level == "gated")


HOSTILE = {
    "not TOML": 'command = ["echo", "ran"\n',
    "an unknown key": 'command = ["echo", "ran"]\nprivileged = true\n',
    "its own policy file": 'command = ["echo", "ran"]\negress = "egress.txt"\n',
    "podman's options": 'command = ["echo", "ran"]\npodman_arg = ["--privileged"]\n',
    "your environment": 'command = ["echo", "ran"]\nenv_host = true\n',
    "HOME": 'command = ["echo", "ran"]\nwrite = ["~"]\n',
    "card-run's configuration": 'command = ["echo", "ran"]\nwrite = ["~/.config/card-run"]\n',
    "a host of its own": 'command = ["echo", "ran"]\nhosts = ["evil.example.net"]\n',
    "itself": 'command = ["echo", "ran"]\nwrite = ["."]\n',
    "a terminal's escapes": 'command = ["echo", "ran"]\nname = "\\u001b]0;x\\u0007"\n',
    "a short image": 'command = ["echo", "ran"]\nimage = "alpine"\n',
    "no walls": f'command = ["echo", "ran"]\n{ACCESS}isolation = "unconfined"\nack_unconfined = true\n',
    "nesting": "a = " + "[" * 3000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_cards_run_nothing(name: str, place: Path) -> None:
    """What no card may ask for is refused with a reason, and no escape of its text reaches the terminal."""
    done = with_card(place, HOSTILE[name])
    assert (done.status, done.out) == (125, "")
    assert done.reasons
    assert "\x1b" not in done.err
    assert "Traceback" not in done.err
    assert with_card(place, 'command = ["echo", "ran"]\n', "-q").out == "ran\n"


def test_a_card_that_is_swapped_while_it_runs(place: Path) -> None:
    """A card is read once: what is put in its place meanwhile is the next run's, and the receipt has the old digest."""
    receipt = place / "receipt.json"
    text = f'image = "{IMAGE}"\nwrite = ["work"]\ncommand = ["sh", "-c", "echo 1; sleep 1"]\n'
    (place / "agent.toml").write_text(text)
    swap = threading.Timer(0.3, lambda: os.replace(place / "other.toml", place / "agent.toml"))
    (place / "other.toml").write_text('command = ["echo", "2"]\n')
    swap.start()
    done = card("-q", "--card", str(place / "agent.toml"), receipt=receipt)
    swap.join()
    assert done.out == "1\n"
    before = run(["sh", "-c", 'printf %s "$1" | sha256sum', "sh", text]).out.split()[0]
    assert done.receipt["files"]["card"]["sha256"] == before
    assert card("-q", "--card", str(place / "agent.toml")).out == "2\n"


def test_a_new_card_runs_as_it_is(tmp_path: Path) -> None:
    """`card new`, then `card-run --card`: the first card of somebody who has read nothing works."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project/README").touch()
    made = run(["card", "new"], cwd=tmp_path / "project")
    assert (made.status, made.out) == (0, "card.toml\n")
    done = run(["card-run", "--card", "card.toml"], cwd=tmp_path / "project", stdin=subprocess.DEVNULL)
    assert done.status == 0, done.err
    assert done.out.splitlines() == [f"a card in {tmp_path}/project:", "README", "card.toml"]


def test_plan_shows_where_values_came_from(place: Path) -> None:
    """`card plan` names the line of the card for what the run would have."""
    (place / "agent.toml").write_text(CARD)
    words = ["--card", f"{place}/agent.toml", "--nofile", "99"]
    plan = run(["card", "plan", *words])
    assert plan.status == 0, plan.err
    rows = {line.split()[0]: line for line in plan.out.split("\n\n")[0].splitlines()[1:]}
    assert rows["write"].endswith(f"card file {place}/agent.toml line 2")
    assert rows["limits.nofile"].endswith("flag")
    values = json.loads(run(["card", "plan", *words, "--json", "-"]).out)["values"]
    assert {"key": "net", "value": "pasta", "origin": "default"} in values
