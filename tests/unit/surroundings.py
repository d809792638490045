"""What card-run finds around it, as tests want it: a user's HOME, a bench with a route, and what stage 2 reports."""

from pathlib import Path

import pytest

from launcher import network
from launcher.egress.policy import BASE_NAMES

# The report of a stage 2 that found every wall standing.
INSIDE = {
    "backend": "landlock",
    "used": "7",
    "proof": "ok",
    "lifeline": "armed",
    "egress": "ok",
    "env": "scrubbed",
    "no_new_privs": "1",
    "caps": "none",
    "seccomp_mode": "2",
    "seccomp_denied": "EPERM",
    "user_namespace": "own",
    "write_outside": "EACCES",
    "read_outside": "EACCES",
}


def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test a HOME of its own, with a policy file, and a bench with a route."""
    home = tmp_path / "home"
    (home / ".config/card-run").mkdir(parents=True)
    (home / ".config/card-run/egress.txt").write_text("\n".join((*BASE_NAMES, "pypi.org", "model.example.org")) + "\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(network, "_default_route4", lambda: True)
    monkeypatch.setattr(network, "_default_route6", lambda: False)
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "TERM"):
        monkeypatch.delenv(name, raising=False)
    return home
