"""The pytest plugin `card_conformance`: lays out each suite's matrix, and fails the session when one did not run whole.

The gate goes by what the parts themselves recorded, never by what was collected: a part that was skipped, deselected,
expected to fail or replaced has recorded nothing. Works under pytest-xdist too, by what reports carry.
"""

import json
from collections.abc import Iterator

import pytest

from launcher.conformance.scene import Scene, has_ipv6
from launcher.conformance.suite import Conformance
from launcher.conformance.trial import NOT_CLAIMED, Trial, parts

_PART, _STATE = "card_conformance_part", "card_conformance_state"
_GATE = pytest.StashKey["Gate"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the gate's two options."""
    group = parser.getgroup("card_conformance", "does a sandbox hold what it claims")
    group.addoption(
        "--card-conformance-live",
        action="append",
        default=[],
        metavar="CLASS",
        help="fail unless each class of this name, or FILE::CLASS, ran whole, and there is one; may be repeated",
    )
    group.addoption(
        "--card-conformance-partial",
        action="store_true",
        help="let a matrix that did not run whole pass, for trying one part at a desk",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the gate, in the process that reports."""
    if not hasattr(config, "workerinput"):
        config.stash[_GATE] = Gate(config)
        config.pluginmanager.register(config.stash[_GATE], "card_conformance_gate")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each part of a suite's matrix."""
    suite = _suite(metafunc)
    if suite is not None and _PART in metafunc.fixturenames:
        metafunc.parametrize(_PART, parts(suite))


def _suite(owner: object) -> type[Conformance] | None:
    """Return the suite that an item, a request or a test function belongs to, if it belongs to one."""
    cls: object = getattr(owner, "cls", None)
    return cls if isinstance(cls, type) and issubclass(cls, Conformance) else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Have the item's reports say which suite it is of and what the whole of that is."""
    suite, collector = _suite(item), item.getparent(pytest.Class)
    if suite is None or collector is None:
        return
    callspec = getattr(item, "callspec", None)
    part = str(callspec.params.get(_PART, "")) if callspec is not None else ""
    # By its place: another module may have a class of that name, or the same class, and each is to run whole.
    item.user_properties.append((_PART, json.dumps([collector.nodeid, part, *parts(suite)])))
    gate = item.config.stash.get(_GATE, None)
    if gate is not None:
        gate.expect(collector.nodeid, parts(suite))


@pytest.fixture(scope="class")
def card_conformance_trial(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    """Make the subject in a scene of its own, for all the parts of one suite."""
    with Scene(str(tmp_path_factory.mktemp("conformance").resolve())) as scene:
        suite = _suite(request)
        if suite is None:
            pytest.fail("card_conformance_trial is for subclasses of Conformance")
        trial = Trial(suite(), scene)
        try:
            yield trial
        finally:
            trial.subject.close()


class Gate:
    """What each suite should have run and what it ran; a suite is a class in its module, `FILE::CLASS`."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._wanted: dict[str, list[str]] = {}
        self._states: dict[str, dict[str, str]] = {}

    def expect(self, suite: str, whole: list[str]) -> None:
        """Take note of a suite that is there to be run."""
        self._wanted.setdefault(suite, whole)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take note of what one part came to."""
        said = dict(report.user_properties)
        if _PART not in said:
            return
        suite, part, *whole = [str(word) for word in json.loads(str(said[_PART]))]
        self.expect(suite, whole)
        if report.when == "call" and report.outcome in ("passed", "failed"):
            state = said.get(_STATE, "broken" if report.failed else None)
            if state is not None:
                self._states.setdefault(suite, {})[part] = str(state)

    def missing(self) -> dict[str, str]:
        """Return why a suite's matrix shows nothing, by suite; empty when each ran whole."""
        found: dict[str, str] = {}
        for suite, whole in self._wanted.items():
            lacking = [part for part in whole if part not in self._states.get(suite, {})]
            if lacking:
                found[suite] = f"{len(lacking)} of {len(whole)} parts did not run, the first of them {lacking[0]!r}"
        live: list[str] = self._config.option.card_conformance_live
        for name in live:
            if not any(f"::{suite}".endswith(f"::{name}") for suite in self._wanted):
                found[name] = "was not collected at all"
        return found

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the session when a matrix did not run whole."""
        if self._judged() and self.missing() and session.exitstatus in (0, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _judged(self) -> bool:
        return not (self._config.option.collectonly or self._config.getoption("--card-conformance-partial"))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was tried of each suite, and which did not run whole."""
        if self._states and not has_ipv6():
            terminalreporter.write_line("card_conformance: this machine has no IPv6, and none was tried")
        for suite, states in self._states.items():
            claimed = sorted({part.split(": ")[0] for part, state in states.items() if state != NOT_CLAIMED})
            terminalreporter.write_line(f"card_conformance {suite}: tried {', '.join(claimed)}")
        for suite, reason in self.missing().items() if not self._config.option.collectonly else ():
            terminalreporter.write_line(f"card_conformance {suite}: NOT SHOWN, {reason}", red=True)
