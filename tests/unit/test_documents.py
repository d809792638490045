"""The manual page, the README and --help speak of the same options and verbs."""

import re
from pathlib import Path

from launcher import options

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


def test_readme_names_real_targets() -> None:
    """Every `make` target in the README exists."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"make ([a-z-]+)", (ROOT / "README.md").read_text(encoding="utf-8")):
        assert f"\n{target}:" in makefile
