"""What holds for every test."""

import os
import signal
from collections.abc import Generator
from typing import Any

import pytest


@pytest.fixture(autouse=True, scope="session")
def _signals() -> None:
    """Take nothing over that nohup(1) or a shell's `&` had these tests ignore: a card would ignore it too."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Let a skip fail in CI, which has all that a test may want, but for what is about another machine."""
    report: pytest.TestReport = (yield).get_result()
    skipped = report.skipped and not hasattr(report, "wasxfail")
    if skipped and "CI" in os.environ and item.get_closest_marker("elsewhere") is None:
        report.outcome = "failed"
        report.longrepr = f"skipped, and CI has to have it: {report.longrepr}"
