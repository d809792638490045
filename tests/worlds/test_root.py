"""card-run as root of the bench: rootless is the promise, so it refuses, and says what to do."""

from tests.bench.cards import card


def test_root_is_refused() -> None:
    """Nothing runs, and the reason names the remedy."""
    done = card("--", "echo", "ran")
    assert (done.status, done.out, done.reasons) == (125, "", ["not-rootless"])
    assert "as an ordinary user" in done.err
