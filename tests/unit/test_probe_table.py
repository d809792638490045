"""The probes are data: every guarantee that can be claimed has one, each can fail, and the judging is exact."""

import ast
import errno
import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher.probe import containers, inside, judge
from launcher.probe.containers import Asked, Scratch
from launcher.probe.judge import BROKEN, HELD, NO_CONTROL, NOT_HERE, Outcome
from launcher.probe.probes import HOST, PROBES, ROUTE4, ROUTE6, Probe
from launcher.run.receipt import Measured, guarantees
from launcher.seccomp import table
from tests.unit.surroundings import INSIDE

STAGE2 = {**INSIDE, "limit_nofile": "64"}
CALLS = [probe for probe in PROBES if probe.attempt[0] == "syscall"]


def best() -> dict[str, bool]:
    """Return the guarantees of a run that measured everything there is."""
    measured = Measured(hook={"status": "ok", "facts": {"table": "t"}}, stage2=STAGE2, times_ms={})
    return guarantees(measured, {"limit_nofile": "64"})


def test_every_guarantee_has_a_probe_and_no_other_does() -> None:
    """What the best of runs claims is what is probed; what is never claimed is not."""
    claimed = {name for name, true in best().items() if true}
    assert "target_network" not in claimed
    assert {probe.guarantee for probe in PROBES} == claimed


def test_every_guarantee_has_something_that_must_not_work() -> None:
    """A probe of what must work shows that a wall is no mere failure; it does not show the wall."""
    assert {probe.guarantee for probe in PROBES if not probe.opens} == {name for name, true in best().items() if true}


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.promise)
def test_a_probe_can_fail(probe: Probe) -> None:
    """No result passes both as walled and as control, but where the promise is that it works."""
    both = set(probe.walled) & set(probe.control)
    assert both == ({"ok"} if probe.opens else set())


def test_promises_differ() -> None:
    """A promise names one probe of its guarantee."""
    named = [(probe.guarantee, probe.promise) for probe in PROBES]
    assert len(set(named)) == len(named)


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.promise)
def test_attempts_are_ones_that_the_program_knows(probe: Probe) -> None:
    """The kind exists and takes these arguments."""
    kind, *words = probe.attempt
    inspect.signature(inside.KINDS[str(kind)]).bind(*words)


@pytest.mark.parametrize("probe", CALLS, ids=lambda probe: probe.promise)
def test_calls_meet_a_rule_of_the_wall(probe: Probe) -> None:
    """A call that is probed is one that the wall's own table denies, with that errno."""
    rules = [rule for rule in table.rules() if rule.call == probe.attempt[1]]
    assert set(probe.walled) <= {errno.errorcode[rule.errno] for rule in rules}


def one(*, opens: bool = False, needs: str = "", guarantee: str = "read_boundary") -> Probe:
    """Return a probe whose attempt must be EPERM, and ok without walls."""
    walled = ("ok",) if opens else ("EPERM",)
    return Probe(promise="x", guarantee=guarantee, attempt=("read", "/"), walled=walled, needs=needs, opens=opens)


VERDICTS = [
    (one(), "ok", "EPERM", HELD),
    (one(), "ok", "ok", BROKEN),
    (one(), "ok", "EACCES", BROKEN),
    (one(), "ok", "crashed", BROKEN),
    (one(), "EPERM", "EPERM", NO_CONTROL),
    (one(), "timeout", "EPERM", NO_CONTROL),
    # broken whatever the control says
    (one(), "EPERM", "ok", BROKEN),
    (one(opens=True), "ok", "ok", HELD),
    (one(opens=True), "ok", "EPERM", BROKEN),
    (one(opens=True), "timeout", "ok", NO_CONTROL),
    (one(needs=ROUTE4), "ok", "EPERM", HELD),
    (one(needs=ROUTE4), "ok", "ok", BROKEN),
    (one(needs=ROUTE6), "ENETUNREACH", "ENETUNREACH", NOT_HERE),
]


@pytest.mark.parametrize(("probe", "control", "walled", "verdict"), VERDICTS)
def test_verdicts(probe: Probe, control: str, walled: str, verdict: str) -> None:
    """Held needs both results; any other result in the card is broken, and a control that fails shows nothing."""
    (found,) = judge.judge((probe,), control=[control], walled=[walled], here=frozenset({ROUTE4}))
    assert found.verdict == verdict


def test_a_missing_result_is_no_verdict() -> None:
    """Fewer results than probes are refused, not judged in part."""
    with pytest.raises(ValueError, match="zip"):
        judge.judge((one(), one()), control=["ok", "ok"], walled=["EPERM"], here=frozenset())


def outcomes(*verdicts: tuple[str, str]) -> list[Outcome]:
    """Return outcomes of these guarantees and verdicts."""
    return [Outcome(probe=one(guarantee=name), control="", result="", verdict=verdict) for name, verdict in verdicts]


@pytest.mark.parametrize(
    ("verdicts", "strict", "lenient"),
    [
        ([("a", HELD), ("b", HELD)], [], []),
        ([("a", HELD), ("a", NOT_HERE)], [], []),
        ([("a", HELD), ("a", NO_CONTROL)], [NO_CONTROL], []),
        ([("a", HELD), ("b", NO_CONTROL)], [NO_CONTROL], [NO_CONTROL]),
        ([("a", HELD), ("a", BROKEN)], [BROKEN], [BROKEN]),
        ([("a", HELD), ("a", BROKEN), ("a", NO_CONTROL)], [BROKEN, NO_CONTROL], [BROKEN]),
    ],
)
def test_what_fails_the_whole(verdicts: list[tuple[str, str]], strict: list[str], lenient: list[str]) -> None:
    """One broken promise always does; one without a control unless told, and never for a whole guarantee."""
    found = outcomes(*verdicts)
    assert judge.failed(found, allow_no_control=False) == strict
    assert judge.failed(found, allow_no_control=True) == lenient


@pytest.mark.parametrize(
    ("four", "six", "here"),
    [
        ("EPERM,EPERM", "EPERM,EPERM", {ROUTE4, ROUTE6}),
        ("EPERM,EPERM", "ENETUNREACH,EADDRNOTAVAIL", {ROUTE4}),
        ("ENETUNREACH,EPERM", "EPERM,EPERM", {ROUTE6}),
    ],
)
def test_what_a_card_has_is_read_from_its_receipt(four: str, six: str, here: set[str]) -> None:
    """A family counts as routed when every one of stage 2's own datagrams met the wall."""
    receipt = {"stage2": {"egress_probe4": four, "egress_probe6": six}}
    assert judge.present(receipt) == here


def test_table_and_json_say_the_same() -> None:
    """Each outcome is a row and an object with the same verdict."""
    found = outcomes(("a", HELD), ("b", NO_CONTROL))
    rows = judge.table(found).splitlines()
    assert [row.split("  ")[0] for row in rows] == ["VERDICT", "held", "NO CONTROL"]
    assert [one.as_json()["verdict"] for one in found] == ["held", "no-control"]


def run_inside(*attempts: list[Any]) -> list[str]:
    """Run the program as a container would, on this machine."""
    words = [sys.executable, "-I", "-c", containers.program(), json.dumps(attempts)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found: list[str] = json.loads(done.stdout)
    return found


def test_the_program_names_what_it_met(tmp_path: Path) -> None:
    """Success, an errno, a value and the signal that ended an attempt are told apart."""
    found = run_inside(
        ["create", f"{tmp_path}/new"],
        ["read", f"{tmp_path}/none"],
        ["variable", "NONE"],
        ["rename", f"{tmp_path}", f"{tmp_path}2"],
        ["trace"],
        ["libc", "abort"],
        ["none such"],
    )
    assert found == ["ok", "ENOENT", "unset", "ok", "ok", "SIGABRT", "crashed"]
    assert list(tmp_path.iterdir()) == []


def test_the_program_suits_an_old_python() -> None:
    """The image's Python may be any of the last ten years."""
    ast.parse(containers.program(), feature_version=(3, 6))


@pytest.mark.parametrize("name", ["plain", "c,omma", "{brace}", 'q"uote', "sp ace"])
def test_scratch_paths_reach_the_attempts_whole(name: str, tmp_path: Path) -> None:
    """Whatever TMPDIR is called, the attempts and the control's mount name it as it is."""
    base = tmp_path / name
    base.mkdir()
    scratch = Scratch(base=str(base))
    scratch.fill()
    attempts = json.loads(containers.attempts(scratch))
    assert ["read", f"{base}/outside/file"] in attempts
    assert all("{work}" not in word for words in attempts for word in words if isinstance(word, str))
    assert (base / "work/link").read_bytes() == b""


def test_the_control_has_no_wall_of_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No hooks directory, no profile, no stage 2; the card's own pins, and the caller's variables."""
    (tmp_path / "podman").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    receipt = {"pins": {HOST: {"addresses": ["203.0.113.10", "2001:db8:1::10"]}}}
    asked = Asked(image="localhost/x/y:1", net="slirp", user="root")
    words = containers.control_argv(asked, Scratch(base="/tmp/x"), receipt)
    assert not any("hooks" in word or "entrypoint=[" in word or "cap-drop" in word for word in words)
    assert "--security-opt=seccomp=unconfined" in words
    assert "--env-host" in words
    assert [word for word in words if word.startswith("--add-host")] == [
        f"--add-host={HOST}:203.0.113.10",
        f"--add-host={HOST}:2001:db8:1::10",
    ]
    assert "--network=slirp4netns" in words
    assert words[-3:] == ["localhost/x/y:1", "-I", "-c"]
