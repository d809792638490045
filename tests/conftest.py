"""What holds for every test."""

import signal

import pytest


@pytest.fixture(autouse=True, scope="session")
def _signals() -> None:
    """Take nothing over that nohup(1) or a shell's `&` had these tests ignore: a card would ignore it too."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
