"""Which run a word on the command line means, for every verb that takes one; and what a shell completes it to.

The rule: a run is named whole. A word that names none is refused with those that come near.
"""

import difflib
from collections.abc import Iterable

from launcher.life import runs
from launcher.life.runs import Ended, Run
from oci.refusal import Refusal, Refused

_NEAR = 3


def any_of(words: list[str]) -> list[Run | Ended]:
    """Return the runs of these ids, living or ended; raises Refused (`no-such-run`) with each that is none."""
    found = {word: runs.find(word) for word in words}
    missing = [_no_such_run(word, known()) for word, run in found.items() if run is None]
    if missing:
        raise Refused(missing)
    return [run for run in found.values() if run is not None]


def living(words: list[str]) -> list[Run]:
    """Return the living runs of these ids; raises Refused (`no-such-run`, `run-ended`) with each that is none."""
    found = any_of(words)
    over = [one.run for one in found if isinstance(one, Ended)]
    if over:
        raise Refused([Refusal("run-ended", f"{run} has ended", f"card show {run}") for run in over])
    return [one for one in found if isinstance(one, Run)]


def running(word: str) -> Run:
    """Return the run of that id, whose worker runs and whose launcher answers for it; raises Refused."""
    (run,) = living([word])
    if run.state != runs.RUNNING:
        raise Refused([_not_running(run)])
    return run


def refuse(found: Iterable[Run | Ended], states: tuple[str, ...]) -> None:
    """Raise Refused (`not-running`) with each run that is in one of these states."""
    wrong = [_not_running(one) for one in found if isinstance(one, Run) and one.state in states]
    if wrong:
        raise Refused(wrong)


def _not_running(run: Run) -> Refusal:
    hints = {
        runs.ORPHANED: "card gc",
        runs.PREPARED: f"podman starts it, and nobody has; card stop {run.run} discards it",
        runs.UNATTENDED: f"podman started it and answers for it, as card-{run.run}",
    }
    return Refusal("not-running", f"{run.run} is {run.state}", hints.get(run.state, ""))


def _no_such_run(word: str, names: list[str]) -> Refusal:
    near = [name for name in names if word and name.startswith(word)] or difflib.get_close_matches(word, names, _NEAR)
    hint = f"did you mean {' or '.join(near[:_NEAR])}?" if near else "card ps --all lists them"
    return Refusal("no-such-run", f"there is no run called {word!r}", hint)


def known() -> list[str]:
    """Return every run id once, the living first."""
    return list(dict.fromkeys([one.run for one in runs.living()] + [one.run for one in runs.ended()]))


def complete_any(incomplete: str) -> list[str]:
    """Return the runs whose ids go on like this."""
    return [name for name in known() if name.startswith(incomplete)]


def complete_living(incomplete: str) -> list[str]:
    """Return the living runs whose ids go on like this."""
    return [one.run for one in runs.living() if one.run.startswith(incomplete)]
