"""The last judgement before the worker is released: every single thing that was not measured keeps it from running."""

from typing import Any

import pytest

from launcher import launch, plan
from launcher.bench import Bench
from launcher.egress.answers import Answer
from launcher.egress.policy import BASE_NAMES
from launcher.options import read
from launcher.plan import Plan
from launcher.run import receipt
from launcher.run.receipt import Measured
from tests.unit.surroundings import INSIDE


def planned(*words: str) -> Plan:
    """Return the plan of a card."""
    judged, _ = launch.judge(read([*words, "--resolver", "192.0.2.53", "--", "true"])[0])
    answers = {name: Answer(addresses=("20.0.0.1",)) for name in BASE_NAMES}
    return plan.complete(judged, bench=Bench(), answers=answers, own=(), bundle={})


def measured(whole: Plan, inside: dict[str, str] | None = None, *, hook: dict[str, Any] | None = None) -> Measured:
    """Return what a run of the plan reports when all is well, with some of it changed."""
    good: dict[str, Any] = {"status": "ok", "facts": {"digest": whole.digest, "table": "t"}}
    stage2 = {**INSIDE, "digest": whole.digest, **(inside or {})}
    return Measured(hook=good if hook is None else hook, stage2=stage2, times_ms={})


def reasons(whole: Plan, report: Measured) -> list[str]:
    """Return why the worker is not released."""
    return [refusal.reason for refusal in receipt.shortfall(whole, report)]


def test_all_measured() -> None:
    """With everything measured nothing is lacking, and the level is full."""
    whole = planned()
    assert reasons(whole, measured(whole)) == []
    assert receipt.level(receipt.guarantees(measured(whole), {})) == "full"


@pytest.mark.parametrize("key", INSIDE)
def test_each_thing_inside(key: str) -> None:
    """Whichever thing stage 2 reports otherwise, the worker is not released and the level is not full."""
    whole = planned()
    report = measured(whole, {key: "0"})
    assert reasons(whole, report) == ["not-enforced"]
    assert receipt.level(receipt.guarantees(report, {})) == "degraded"


@pytest.mark.parametrize(
    "hook", [{}, {"status": "refused"}, {"status": "ok"}, {"status": "ok", "facts": {"digest": "0"}}]
)
def test_the_hooks_own_word(hook: dict[str, Any]) -> None:
    """Without the hook's result for this very plan no report of stage 2 is believed."""
    whole = planned()
    assert reasons(whole, measured(whole, hook=hook)) == ["hook-unproven"]


def test_the_proofs_own_word() -> None:
    """A proof of another plan is not believed."""
    whole = planned()
    assert reasons(whole, measured(whole, {"digest": "0"})) == ["hook-unproven"]


def test_limits_that_were_asked_for() -> None:
    """A limit is claimed when it was read back as asked; otherwise the worker is not released."""
    whole = planned("--nofile", "64")
    assert reasons(whole, measured(whole, {"limit_nofile": "64"})) == []
    assert reasons(whole, measured(whole, {"limit_nofile": "1024"})) == ["not-enforced"]
    assert reasons(whole, measured(whole)) == ["not-enforced"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"exit_status": 0}, "exited"),
        ({"exit_status": 137}, "exited"),
        ({"exit_status": 137, "oom": True}, "out-of-memory"),
        ({"exit_status": 3, "oom": True}, "exited"),
        ({"exit_status": 124, "timed_out": True}, "timed-out"),
        ({"exit_status": 124}, "exited"),
    ],
)
def test_how_it_ended(changes: dict[str, Any], expected: str) -> None:
    """By itself, for want of memory, or because its time was over: a status alone does not say."""
    assert receipt.how(measured(planned()).replace(**changes)) == expected


@pytest.mark.parametrize(
    "words",
    [
        "Unix socket in a root that listens later",
        "cards that share a write root",
        "several datagrams (UDP_SEGMENT)",
        "set each other's limits and scheduling",
    ],
)
def test_what_no_wall_keeps_is_not_claimed(words: str) -> None:
    """What a probe showed to be open, and to stay so, is said in every receipt."""
    assert [claim for claim in receipt.NON_CLAIMS if words in claim]
