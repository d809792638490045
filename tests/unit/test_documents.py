"""The manual page, the README and --help speak of the same options and verbs."""

import re
import tomllib
from pathlib import Path

from launcher import card, options
from launcher.access import judge
from launcher.cardfile import keys

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "launcher/card-run.1.md").read_text(encoding="utf-8")


def test_manual_page_has_every_option() -> None:
    """Every option is in the page, and the page has no other."""
    listed = set(re.findall(r"\*\*--([a-z-]+)\*\*", PAGE))
    assert listed == {option.name for option in options.OPTIONS}


def test_manual_page_has_every_choice() -> None:
    """The values that an option chooses from are in the page."""
    for option in options.OPTIONS:
        assert all(f"**{choice}**" in PAGE for choice in option.choices)


def test_card_file_page_has_every_key() -> None:
    """Every key of a card, of `[access]` and of a user's defaults is in card-file(5), and every word that one takes."""
    page = (ROOT / "launcher/card-file.5.md").read_text(encoding="utf-8")
    words = {word for key in keys.KEYS for word in key.kind.schema.get("enum", ())}
    words |= {word for choices in judge.WORDS.values() for word in choices}
    names = {*(key.name for key in keys.KEYS), *judge.KEYS, *judge.ROOT_KEYS, *words}
    assert {name for name in names if f"**{name}**" not in page} == set()
    elsewhere = {f"--{name.replace('_', '-')}" for name in keys.ELSEWHERE}
    assert {name for name in elsewhere if f"**{name}**" not in page} == set()


def test_readme_names_real_targets() -> None:
    """Every `make` target in the README exists."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"make ([a-z-]+)", (ROOT / "README.md").read_text(encoding="utf-8")):
        assert f"\n{target}:" in makefile


def test_one_version() -> None:
    """`--version` says what the package is called."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == options.VERSION


def test_manual_page_has_every_verb() -> None:
    """Every verb of `card` is in its page."""
    page = (ROOT / "launcher/card.1.md").read_text(encoding="utf-8")
    verbs = [command.name or command.callback.__name__ for command in card.app.registered_commands if command.callback]
    groups = {group.name: group.typer_instance for group in card.app.registered_groups}
    for name, group in groups.items():
        assert group is not None
        verbs += [f"{name} {one.name or one.callback.__name__}" for one in group.registered_commands if one.callback]
    assert len(verbs) >= 10
    assert all(f"**card {verb}**" in page for verb in verbs), verbs
