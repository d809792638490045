"""The same wall on every network that a card can have."""

import pytest

from tests.bench.cards import attempts_in_card, card, is_old
from tests.bench.test_walls import question

# Debian 12's podman has no pasta, for a card or behind its bridge.
DNS = (
    {"slirp": "10.0.2.3", "bridge": "10.0.2.3"}
    if is_old()
    else {"pasta": "169.254.1.1", "slirp": "10.0.2.3", "bridge": "169.254.1.1"}
)


@pytest.mark.parametrize("net", DNS)
def test_open_and_closed(net: str) -> None:
    """A pin is open; another port, another address, metadata and the way back to the bench are refused at once."""
    attempts = [
        ["tcp", "203.0.113.10", 443],
        ["tcp", "203.0.113.10", 8443],
        ["tcp", "198.51.100.66", 443],
        ["tcp", "169.254.169.254", 80],
        ["tcp", "10.0.2.2", 22],
        ["udp", "203.0.113.10", 443, "00"],
    ]
    found = attempts_in_card(attempts, "--net", net)
    assert [result for result, _ in found] == ["ok", *["ECONNREFUSED"] * 4, "EPERM"]
    assert all(took < 50 for _, took in found[1:])


@pytest.mark.parametrize("net", DNS)
def test_dns(net: str) -> None:
    """The card's own DNS address answers for listed names and nothing else."""
    attempts = [
        ["udp", DNS[net], 53, question("github.com")],
        ["udp", DNS[net], 53, question("unlisted.example")],
        ["udp", DNS[net], 53, question("github.com", "TXT")],
        ["tcp", DNS[net], 53],
    ]
    found = attempts_in_card(attempts, "--net", net)
    assert [result for result, _ in found] == ["reply", "EPERM", "EPERM", "ECONNREFUSED"]


@pytest.mark.parametrize("net", DNS)
def test_clone(net: str) -> None:
    """Git clones over HTTPS."""
    done = card("--net", net, "--", "git", "clone", "-q", "https://github.com/octo/hello", "/tmp/hello")
    assert done.status == 0, done.err
    assert f"net={net} level=full" in done.err


@pytest.mark.usefixtures("nothing_left")
def test_a_podman_without_pasta() -> None:
    """The default network is the bench's own to have: a podman that has no pasta is told so, with what to do."""
    done = card("--net", "pasta", "--", "echo", "ran")
    if not is_old():
        assert (done.status, done.out) == (0, "ran\n"), done.err
        return
    assert (done.status, done.reasons, done.out) == (125, ["no-pasta"], "")
    assert "--net slirp" in done.err
