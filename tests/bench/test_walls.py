"""The egress wall from inside: what is listed is open, all else is refused at once, and a plain container reaches it.

Run in two worlds, whose interfaces have different names, and as both users of a card: with keep-id the hook runs before
pasta, as root after it.
"""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import dns.message
import pytest

from tests.bench.cards import Attempt, attempts_in_card, attempts_in_plain, card

CARD_DNS = "169.254.1.1"
MODEL = "api.model.example"
PINS = [
    *("203.0.113.10", "203.0.113.11", "203.0.113.12", "203.0.113.13", "203.0.113.20"),
    *("2001:db8:1::10", "2001:db8:1::11", "2001:db8:1::12", "2001:db8:1::20"),
]
USERS = ["keep-id", "root"]


def question(name: str, kind: str = "A") -> str:
    """Return a DNS query as hex."""
    return dns.message.make_query(name, kind, use_edns=False).to_wire().hex()


DENIED_TCP: dict[str, Attempt] = {
    "another port of a listed address": ["tcp", "203.0.113.10", 8443],
    "ssh on a listed address": ["tcp", "203.0.113.10", 22],
    "plain http on a listed address": ["tcp", "203.0.113.10", 80],
    "an unlisted address": ["tcp", "198.51.100.66", 443],
    "an unlisted address, v6": ["tcp", "2001:db8:66::66", 443],
    "another port of a listed address, v6": ["tcp", "2001:db8:1::10", 8443],
    "metadata": ["tcp", "169.254.169.254", 80],
    "metadata, v6": ["tcp", "fd00:ec2::254", 80],
    "DNS over TCP at the card's own server": ["tcp", CARD_DNS, 53],
    "DNS over TCP at another server": ["tcp", "198.51.100.53", 53],
}
DENIED_UDP: dict[str, Attempt] = {
    "QUIC to a listed address": ["udp", "203.0.113.10", 443, "00"],
    "QUIC to an unlisted address": ["udp", "198.51.100.66", 443, "00"],
    "a question to another server": ["udp", "198.51.100.53", 53, question("github.com")],
    "a question to another server, v6": ["udp", "2001:db8:66::53", 53, question("github.com")],
    "a question to the bench's own server": ["udp", "192.0.2.1", 53, question("github.com")],
    "a TXT question": ["udp", CARD_DNS, 53, question("github.com", "TXT")],
    "an unlisted name": ["udp", CARD_DNS, 53, question("unlisted.example")],
    "a child of a listed name": ["udp", CARD_DNS, 53, question("evil.github.com")],
    "a listed name as a prefix": ["udp", CARD_DNS, 53, question("github.com.unlisted.example")],
    "a tunnel": ["udp", CARD_DNS, 53, question("c2VjcmV0.tunnel.example", "TXT")],
}
DENIED = {**DENIED_TCP, **DENIED_UDP}


@pytest.fixture(scope="module")
def control() -> dict[str, str]:
    """Return what each denied attempt comes to without the wall."""
    return {name: result for name, (result, _) in zip(DENIED, attempts_in_plain(list(DENIED.values())), strict=True)}


@pytest.fixture(scope="module", params=USERS)
def denied(request: pytest.FixtureRequest) -> dict[str, tuple[str, float]]:
    """Return what each attempt comes to in a card: its result, and the quickest of three tries in milliseconds."""
    many = attempts_in_card(list(DENIED.values()) * 3, "--user", request.param, "--model-host", MODEL)
    tries = [many[start :: len(DENIED)] for start in range(len(DENIED))]
    assert all(len({result for result, _ in one}) == 1 for one in tries)
    return {name: (one[0][0], min(took for _, took in one)) for name, one in zip(DENIED, tries, strict=True)}


@pytest.mark.parametrize("user", USERS)
def test_every_pin_is_open(user: str) -> None:
    """TCP 443 to every pinned address of every listed name, v4 and v6."""
    found = attempts_in_card([["tcp", address, 443] for address in PINS], "--user", user, "--model-host", MODEL)
    assert [result for result, _ in found] == ["ok"] * len(PINS)


@pytest.mark.parametrize("name", DENIED)
def test_denied(name: str, control: dict[str, str], denied: dict[str, tuple[str, float]]) -> None:
    """Each is refused within 10 ms with its exact errno, and would have worked without the wall."""
    tcp = name in DENIED_TCP
    assert control[name] == ("ok" if tcp else "reply")
    result, took = denied[name]
    assert result == ("ECONNREFUSED" if tcp else "EPERM")
    assert took < 10


@pytest.mark.parametrize("user", USERS)
def test_the_cards_own_questions(user: str) -> None:
    """A and AAAA of each listed name are answered, in any case; of the model host only when it is this run's."""
    names = ["github.com", "api.github.com", "objects.githubusercontent.com", "GitHub.COM"]
    asked = [["udp", CARD_DNS, 53, question(name, kind)] for name in names for kind in ("A", "AAAA")]
    found = attempts_in_card([*asked, ["udp", CARD_DNS, 53, question(MODEL)]], "--user", user)
    assert [result for result, _ in found] == ["reply"] * len(asked) + ["EPERM"]


def test_dns_none_closes_dns() -> None:
    """With `--dns none` even a listed name may not be asked for, and still resolves from the card's hosts file."""
    ((result, _),) = attempts_in_card([["udp", CARD_DNS, 53, question("github.com")]], "--dns", "none")
    assert result == "EPERM"
    done = card("-q", "--dns", "none", "--", "getent", "hosts", "github.com")
    assert "2001:db8:1::10" in done.out


@pytest.fixture
def listener() -> Iterator[int]:
    """Listen on every address of the bench and return the port."""
    with socket.create_server(("", 0)) as server:
        threading.Thread(target=_accept, args=(server,), daemon=True).start()
        yield server.getsockname()[1]


def _accept(server: socket.socket) -> None:
    while True:
        try:
            server.accept()[0].close()
        except OSError:
            return


def test_no_way_back_to_the_bench(listener: int) -> None:
    """The address that podman maps to the bench (host.containers.internal) leads nowhere from a card."""
    attempts: list[Attempt] = [["tcp", "169.254.1.2", listener]]
    assert attempts_in_plain(attempts)[0][0] == "ok"
    result, took = attempts_in_card(attempts)[0]
    assert result == "ECONNREFUSED"
    assert took < 10


def test_denials_are_told(tmp_path: Path) -> None:
    """The table at the end and the receipt's ledger name what was denied, and not the card's own self-test."""
    receipt = tmp_path / "receipt.json"
    attempt = "import socket\ntry: socket.create_connection(('198.51.100.66', 8080), 1)\nexcept OSError: pass"
    done = card("--", "python3", "-c", attempt, receipt=receipt)
    rows = [line.split() for line in done.err.splitlines()]
    assert ["198.51.100.66", "tcp", "8080", "1"] in rows
    assert [(row["address"], row["port"], row["packets"]) for row in done.receipt["ledger"]["denied"]] == [
        ("198.51.100.66", 8080, 1)
    ]
    assert "--allow-host" in done.err


def test_nothing_denied_says_nothing() -> None:
    """A card that stays inside its walls gets no table."""
    done = card("--", "true")
    assert "DENIED" not in done.err
