"""From what the attempts came to, in a card and without walls, to a verdict for each promise. Pure."""

from typing import Any

from launcher.probe.probes import ROUTE4, ROUTE6, Probe
from launcher.value import Value

HELD, BROKEN, NO_CONTROL, NOT_HERE = "held", "BROKEN", "NO CONTROL", "not here"
_HINTS = {
    BROKEN: "a promise is broken: report it with the output of --json (SECURITY.md)",
    NO_CONTROL: "without walls it did not work either, so the card shows nothing; --allow-no-control passes over it",
}


class Outcome(Value):
    """One probe, what it came to in the container without walls and in the card, and the verdict."""

    probe: Probe
    control: str
    result: str
    verdict: str

    def as_json(self) -> dict[str, Any]:
        """Return the outcome as plain data for JSON."""
        return {
            "promise": self.probe.promise,
            "guarantee": self.probe.guarantee,
            "attempt": list(self.probe.attempt),
            "control": self.control,
            "result": self.result,
            "wanted": {"control": list(self.probe.control), "result": list(self.probe.walled)},
            "verdict": self.verdict.lower().replace(" ", "-"),
        }


def present(receipt: dict[str, Any]) -> frozenset[str]:
    """Return what the probed card had of what a probe may need, as stage 2 measured it.

    Only what has a route meets the wall and its EPERM, see `launcher.stage2.selftest`.
    """
    families = {ROUTE4: "egress_probe4", ROUTE6: "egress_probe6"}
    met = {need: set(receipt["stage2"][key].split(",")) for need, key in families.items()}
    return frozenset(need for need, errnos in met.items() if errnos == {"EPERM"})


def judge(probes: tuple[Probe, ...], *, control: list[str], walled: list[str], here: frozenset[str]) -> list[Outcome]:
    """Return the outcomes, in the order of the probes; raises ValueError when a result is missing."""
    return [
        Outcome(probe=probe, control=without, result=within, verdict=_verdict(probe, without, within, here))
        for probe, without, within in zip(probes, control, walled, strict=True)
    ]


def _verdict(probe: Probe, control: str, result: str, here: frozenset[str]) -> str:
    if probe.needs and probe.needs not in here:
        return NOT_HERE
    if result not in probe.walled:
        return BROKEN
    return HELD if control in probe.control else NO_CONTROL


def failed(outcomes: list[Outcome], *, allow_no_control: bool) -> list[str]:
    """Return the verdicts that fail the whole, worst first; empty when every promise held.

    Passing over what had no control still leaves every guarantee with at least one promise that was seen to hold.
    """
    verdicts = {outcome.verdict for outcome in outcomes}
    held = {outcome.probe.guarantee for outcome in outcomes if outcome.verdict == HELD}
    bare = {outcome.probe.guarantee for outcome in outcomes} - held
    excused = allow_no_control and not bare
    return [verdict for verdict in (BROKEN, NO_CONTROL) if verdict in verdicts and not (verdict != BROKEN and excused)]


def hints(verdicts: list[str]) -> list[str]:
    """Return what to do about the verdicts that failed."""
    return [_HINTS[verdict] for verdict in verdicts]


def table(outcomes: list[Outcome]) -> str:
    """Return the outcomes as a table for people: a row for each, no wider than its widest cell needs."""
    rows = [("VERDICT", "GUARANTEE", "PROMISE", "CONTROL", "CARD")]
    rows += [(one.verdict, one.probe.guarantee, one.probe.promise, one.control, one.result) for one in outcomes]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(lines) + "\n"
