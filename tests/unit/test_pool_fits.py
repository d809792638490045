"""What an attendant compares itself, whatever a message says of it."""

from pathlib import Path
from typing import Any

import pytest

from launcher import launch
from launcher.launch import Launch
from launcher.pool import fits, key
from launcher.pool.declared import Card
from launcher.pool.stale import Stale
from launcher.request import Request
from launcher.run import site
from launcher.runtime import Runtime

RUNTIME = Runtime("/cache/runtime-d", {"digest": ["d"], "python": ["/py"], "argv": ["/p"], "filter_rules": ["1"]})
NAMES = "github.com\napi.github.com\nobjects.githubusercontent.com\n"


def judged(**asked: Any) -> Launch:
    """Return a launch as flags would make it."""
    return launch.judge(Request(command=("true",), resolver="192.0.2.1", **asked))[0]


def card(one: Launch) -> Card:
    """Return the card that was made of a launch."""
    found = key.of(one, RUNTIME, podman="/usr/bin/podman", hooks_dirs=site.hooks_dirs())
    return Card(launch=one, built=RUNTIME, program="/usr/bin/podman", key=found)


def test_what_was_declared_fits() -> None:
    """The same options with another command are the card's."""
    fits.look(judged().replace(command=("other",)), card(judged()), policy_path=launch.default_policy())


@pytest.mark.parametrize(
    ("asked", "why"),
    [({"read": ("/usr",)}, "--mount, roots"), ({"run": "named"}, "can have --run"), ({"tty": True}, "-t")],
)
def test_what_is_another_card(asked: dict[str, Any], why: str) -> None:
    """A launch that has not the card's own key is none for it, whichever key it came with."""
    with pytest.raises(Stale, match=why):
        fits.look(judged(**asked), card(judged()), policy_path=launch.default_policy())


def test_names_of_no_policy(tmp_path: Path) -> None:
    """A name that its file does not hold is told; one that it holds is none to tell of."""
    path = tmp_path / "egress.txt"
    path.write_text(NAMES)
    one = judged(egress=str(path))
    fits.look(one, card(one), policy_path=str(path))
    with pytest.raises(Stale, match="is not in"):
        fits.look(one.replace(names=(*one.names, "evil.example")), card(one), policy_path=str(path))


def test_a_policy_of_the_workers(tmp_path: Path) -> None:
    """A file that the worker itself could write holds no name."""
    path = tmp_path / "egress.txt"
    path.write_text(f"{NAMES}evil.example\n")
    one = judged(write=(str(tmp_path),))
    with pytest.raises(Stale, match="the worker could rewrite it"):
        fits.look(one.replace(names=("evil.example",)), card(one), policy_path=str(path))
