"""The card that an executor writes for one command is read back as just that, and misuse is told at once."""

import json
import os
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher import ExecutorSet, Profile, Refusal, Refused, Root, Settings, aio, bench
from launcher.access.table import parse
from launcher.cardfile import load
from launcher.executor import card
from launcher.executor.prepared import Command, Identity, merged
from launcher.executor.settings import CommandOptions
from launcher.executor.told import Told

PROFILE = Profile(
    workspace="/srv/work",
    workspace_read="allow",
    workspace_write="gated",
    network="allow",
    command="gated",
    roots=(Root(path="/srv/a", read="allow"), Root(path="/srv/\u00fc 'b'", read="gated")),
)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_any_value_of_a_variable_crosses_to_the_letter(value: str) -> None:
    """Quotes, newlines, what TOML has escapes for, and what it has none for."""
    table = tomllib.loads(card.text(PROFILE, Settings(), CommandOptions(env={"NAME": value}), called="x"))
    assert table["env"] == [f"NAME={value}"]


def test_the_profile_is_read_back_as_it_was(tmp_path: Path) -> None:
    """All of it, and card-run finds nothing wrong with the card."""
    settings = Settings(hosts=("a.example",), model_host="m.example", memory="64m", cpus=1.5, nofile=64, env={"A": "1"})
    options = CommandOptions(env={"A": "2"}, timeout=3.0, hosts=("b.example",))
    path = tmp_path / "card.toml"
    path.write_text(card.text(PROFILE, settings, options, called="build"))
    path.chmod(0o600)
    source = load.card(str(path))
    assert source.access is not None
    assert parse(source.access, base="/") == PROFILE
    assert source.values["allow_host"] == ("a.example", "b.example")
    assert source.values["env"] == ("A=2",)
    assert source.values["stop_timeout"] == "5"
    assert source.values["card_name"] == "build"


def command(argv: list[str] | str, **options: object) -> Command:
    """Return a command of an executor that does not exist."""
    identity = Identity(profile=PROFILE, settings=Settings(), keep="/nowhere", name="one")
    return Command(identity, argv, merged(options))  # type: ignore[arg-type]  # some of what is tried is not one


def test_a_command_is_not_one_string() -> None:
    """It would be taken letter by letter."""
    with pytest.raises(TypeError, match="list of words"):
        command("ls -l")


def test_an_option_that_is_none_is_told() -> None:
    """Also where no type checker looked."""
    with pytest.raises(TypeError, match="time_out"):
        command(["true"], time_out=3)


@pytest.mark.parametrize("key", ["", "two\nlines", "x" * 65, "\x1b[H"])
def test_a_key_that_is_no_name(key: str) -> None:
    """A card is called by its executor's key, or where that is none by what its grants are bound to."""
    assert card.name("agent 7", otherwise="id-1") == "agent 7"
    assert card.name(key, otherwise="id-1") == "id-1"


def issue(one: Command) -> tuple[Refusal, ...]:
    """Return why no grant is issued for a command."""
    with pytest.raises(Refused) as refused:
        one.issue("command.start.v1", "", seconds=None, required=())
    return refused.value.refusals


def test_what_is_refused_names_no_file_of_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The caller wrote no card file: neither its place nor a line of it is told, from here or from a card-run."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    settings = Settings(image="no image", protect=("notes",), hosts=("a host",))
    wrong = Command(Identity(profile=PROFILE, settings=settings, keep="/nowhere", name="one"), ["true"], merged({}))
    (image, hosts) = issue(wrong)
    assert image.text.startswith("image is a full image reference")
    assert hosts.text.startswith("hosts is a list of hostnames")
    said = Refusal("path-missing", "--secret '/x' does not exist", "make it; card file /proc/self/fd/7 line 10")
    reader, writer = os.pipe()
    os.write(writer, json.dumps({"event": "refused", "refusals": [said.to_json()]}).encode() + b"\n")
    os.close(writer)
    told = Told(reader)
    told.read()
    assert told.refusals == (Refusal(said.reason, said.text, "make it"),)
    assert card.origin("card file /proc/self/fd/7 line 10") == "executor"
    assert card.origin("your defaults /home/me/config.toml line 1") == "your defaults /home/me/config.toml line 1"


def test_paths_of_settings_are_taken_as_options_are() -> None:
    """One that is not absolute is refused as such, and not looked for beside a descriptor."""
    options = card.flags(Settings(protect=("notes",), secret=("/k",)), keep="/n", executor="e", cwd=None, run_id=None)
    assert {"--protect=notes", "--secret=/k"} <= set(options)


@pytest.mark.parametrize("make", [ExecutorSet, aio.ExecutorSet])
def test_a_scratch_root_that_commands_may_write(make: "type[ExecutorSet | aio.ExecutorSet]", tmp_path: Path) -> None:
    """One could put something else in the place of the next one's HOME: there is no such set, and nothing is made."""
    (tmp_path / "work").mkdir()
    (tmp_path / "link").symlink_to("work")
    given = {"workspace": f"{tmp_path}/work", "workspace_read": "allow", "workspace_write": "allow"}
    for place in (tmp_path / "work", tmp_path / "work/deep/scratch", tmp_path / "link/scratch"):
        with pytest.raises(Refused) as refused:
            make(Profile(**given), scratch_root=place)  # type: ignore[arg-type]  # mypy takes the values for all of them
        assert [one.reason for one in refused.value.refusals] == ["keep-writable"]
    assert list((tmp_path / "work").iterdir()) == []


def test_what_a_command_would_be_held_to() -> None:
    """The report and the needed guarantees are there before anything is started; the run id stays once it is known."""
    one = command(["true"])
    assert {row.feature: row.state for row in one.report()}["command"] == "enforced"
    assert "write_boundary" in one.needed()
    assert "resource_limits" not in one.needed()
    assert one.run_id is None
    assert one.fixed_run_id() == one.fixed_run_id() == one.run_id


def test_what_the_bench_takes_away_is_taken_from_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks a person about what is gated asks about what the ceiling gates too; a broken ceiling is told."""
    config = tmp_path / "config.toml"
    monkeypatch.setattr(bench, "CONFIG", str(config))
    monkeypatch.setattr(bench, "OWNERS", (0, os.getuid()))
    state = {row.feature: row.asked for row in command(["true"]).report()}
    assert (state["command"], state["network"], state["roots[/srv/a].read"]) == ("gated", "allow", "allow")
    config.write_text('[ceiling]\ncommand = "deny"\nnetwork = "gated"\nworkspace_read = "allow"\n')
    held = {row.feature: row.asked for row in command(["true"]).report()}
    assert (held["command"], held["network"], held["workspace_read"]) == ("deny", "gated", "allow")
    assert held["workspace_write"] == held["roots[/srv/a].read"] == "deny"
    config.write_text("[ceiling]\nnetwrk = 1\n")
    broken = command(["true"])
    for asked in (broken.report, broken.needed):
        with pytest.raises(Refused) as refused:
            asked()
        assert [one.reason for one in refused.value.refusals] == ["bench-config"]


def test_the_guarantees_needed_are_those_of_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile that may write everywhere needs no boundary of writing; held to a ceiling, it does."""
    wide = Profile(
        workspace="/srv/work", workspace_read="allow", workspace_write="allow", host_read="allow", host_write="allow"
    )
    one = Command(Identity(profile=wide, settings=Settings(), keep="/nowhere", name="one"), ["true"], merged({}))
    monkeypatch.setattr(bench, "CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setattr(bench, "OWNERS", (0, os.getuid()))
    assert "write_boundary" not in one.needed()
    (tmp_path / "config.toml").write_text('[ceiling]\nhost_read = "allow"\nworkspace_read = "allow"\n')
    assert "write_boundary" in one.needed()
    assert "read_boundary" not in one.needed()
