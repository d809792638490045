"""What a prepared card's stage 2 judges by itself is what the receipt would have judged."""

import pytest

from launcher.fs.policy import Filesystem
from launcher.options import OPTIONS
from launcher.prepared import judge
from launcher.request import Request
from launcher.run import receipt
from launcher.stage2 import unattended
from oci import records
from oci.refusal import Refused
from tests.unit.surroundings import INSIDE
from tests.unit.test_receipt import measured, planned

RECORDS = {
    "schema": "1",
    "run": "r1",
    "nonce": "n",
    "digest": "d",
    "table": "t",
    "net": "none",
    "expires": "4000000000",
}
# The launcher that would end the card is the one thing that a prepared card does without.
JUDGED = [name for name in INSIDE if name != "lifeline"]
NO_ROOTS = Filesystem(roots=(), cwd="/", closed=(), held=(), judged=())


def wanted(*more: tuple[str, str], **changes: str) -> dict[str, list[str]]:
    """Return the records that `card prepare` writes, with some changed."""
    return unattended.parse(records.dump([*{**RECORDS, **changes}.items(), *more]))


@pytest.mark.parametrize("name", [*JUDGED, "digest", None])
@pytest.mark.parametrize("value", ["0", None])
def test_it_refuses_what_the_receipt_refuses(name: str | None, value: str | None) -> None:
    """Each fact that the receipt wants is wanted here too, and with all of them neither refuses."""
    whole = planned()
    facts = {**measured(whole).stage2, "table": "t"}
    if name is not None:
        facts[name] = value or ""
    if name is not None and value is None:
        del facts[name]
    attended = bool(receipt.shortfall(whole, measured(whole).replace(stage2=facts)))
    lacking = unattended.shortfall(facts, wanted(digest=whole.digest))
    assert bool(lacking) == attended == (name is not None)


def test_limits() -> None:
    """A limit that was not read back as it was asked for is refused here as there."""
    whole = planned("--nofile", "64")
    expected = wanted(("expect", "limit_nofile=64"), digest=whole.digest)
    for found, good in (("64", True), ("1024", False), ("", False)):
        report = measured(whole, {"limit_nofile": found, "table": "t"})
        assert (not receipt.shortfall(whole, report)) == good
        assert (not unattended.shortfall(report.stage2, expected)) == good


def test_another_runs_table() -> None:
    """The table that the proof names is this run's."""
    whole = planned()
    facts = {**measured(whole).stage2, "table": "other"}
    assert unattended.shortfall(facts, wanted(digest=whole.digest))


@pytest.mark.parametrize("name", RECORDS)
def test_what_prepare_does_not_write_is_refused(name: str) -> None:
    """Every record comes once, and no other comes."""
    left = [(key, value) for key, value in RECORDS.items() if key != name]
    for items in (left, [*RECORDS.items(), (name, "x")], [*RECORDS.items(), ("other", "x")]):
        with pytest.raises(Refused, match="conf-malformed"):
            unattended.parse(records.dump(items))
    with pytest.raises(Refused, match="conf-malformed"):
        unattended.parse(b"half a record")


def test_what_prepare_takes() -> None:
    """An option is held without card-run, or refused by its name; one that nobody thought of is refused."""
    default = Request(command=())
    for option in OPTIONS:
        if option.field not in default.as_dict():
            continue
        asked = default.replace(**{option.field: "something"})
        told = [one.text for one in judge.refusals(asked, NO_ROOTS)]
        assert (told == []) == (option.field in judge.HELD)
        assert all(text.startswith(f"--{option.name} ") for text in told)
    assert judge.refusals(default.replace(net="bridge"), NO_ROOTS)
    assert {"timeout", "detach", "grant", "events", "lifeline"}.isdisjoint(judge.HELD)
