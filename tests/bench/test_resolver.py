"""The resolver against a real server that misbehaves: each fault is the refusal a person would want, in time."""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import dns.message
import dns.query
import pytest

from launcher.egress.policy import BASE_NAMES
from tests.bench.cards import Run, attempts_in_card, card
from tests.bench.test_walls import question

PLAN = "--plan"


def resolve(tmp_path: Path, *names: str, options: tuple[str, ...] = ()) -> tuple[Run, float]:
    """Plan a card that needs these names; return what it says and the seconds it took."""
    policy = tmp_path / "egress.txt"
    policy.write_text("\n".join((*BASE_NAMES, *names)) + "\n")
    wanted = [word for name in names for word in ("--allow-host", name)]
    start = time.monotonic()
    done = card("--egress", str(policy), *wanted, *options, PLAN, "--", "true")
    return done, time.monotonic() - start


FAULTS = {
    "nxdomain.fault.example": ("name-unresolved", "NXDOMAIN"),
    "servfail.fault.example": ("name-unresolved", "SERVFAIL"),
    "refused.fault.example": ("name-unresolved", "REFUSED"),
    "empty.fault.example": ("name-unresolved", "has no address"),
    "silent.fault.example": ("name-unresolved", "timed out"),
    "garbage.fault.example": ("name-unresolved", "could not be asked"),
    "slower.fault.example": ("name-unresolved", "timed out"),
    "loop.fault.example": ("name-unresolved", "loop"),
    "dangling.fault.example": ("name-unresolved", ""),
    "loopback.fault.example": ("address-denied", "loopback"),
    "mapped.fault.example": ("address-denied", "which is 169.254.169.254: cloud metadata"),
    "nat64.fault.example": ("address-denied", "which is 169.254.169.254: cloud metadata"),
    "sixtofour.fault.example": ("address-denied", "which is 169.254.169.254: cloud metadata"),
    "metadata.fault.example": ("address-denied", "cloud metadata"),
    "mixed.fault.example": ("address-denied", "10.0.0.8: private use"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault(name: str, tmp_path: Path) -> None:
    """One bad name refuses the plan by its own reason, within the deadline and a start-up."""
    reason, text = FAULTS[name]
    done, took = resolve(tmp_path, name)
    assert (done.status, set(done.reasons)) == (125, {reason})
    assert all(name in line for line in done.err.splitlines() if "REFUSED" in line)
    assert text in done.err
    assert took < 3.0 + 1.5


def test_every_bad_name_at_once(tmp_path: Path) -> None:
    """All faults together are told together, and cost one deadline, not one each."""
    done, took = resolve(tmp_path, *FAULTS)
    lines = [line for line in done.err.splitlines() if "REFUSED" in line]
    assert all(any(name in line for line in lines) for name in FAULTS)
    assert took < 3.0 + 1.5


def test_deadline_is_the_flags(tmp_path: Path) -> None:
    """`--resolve-timeout` bounds the whole of it."""
    done, took = resolve(tmp_path, "silent.fault.example", options=("--resolve-timeout", "0.5"))
    assert done.reasons == ["name-unresolved"]
    assert took < 0.5 + 1.5


def test_dead_server(tmp_path: Path) -> None:
    """A server that nobody runs is told for every name, in time."""
    done, took = resolve(tmp_path, options=("--resolver", "198.51.100.99", "--resolve-timeout", "1"))
    assert done.reasons == ["name-unresolved"] * 3
    assert "198.51.100.99 (--resolver)" in done.err
    assert took < 1 + 1.5


@pytest.mark.parametrize(
    ("name", "pins"),
    [
        ("slow.fault.example", ["203.0.113.20"]),
        ("many.fault.example", [f"203.0.113.{number}" for number in range(100, 160)]),
        ("chain.model.example", ["203.0.113.20", "2001:db8:1::20"]),
        ("half.fault.example", ["203.0.113.20"]),
        ("repeated.model.example", ["203.0.113.20"]),
        ("twin.model.example", ["203.0.113.20"]),
        ("v6only.model.example", ["2001:db8:1::20"]),
        ("xn--bcher-kva.example", ["203.0.113.20"]),
        ("bücher.example", ["203.0.113.20"]),
    ],
)
def test_good(name: str, pins: list[str], tmp_path: Path) -> None:
    """Slow, truncated to TCP, aliased, one-family, repeated, shared and internationalised names are pinned."""
    done, _ = resolve(tmp_path, name)
    assert done.status == 0, done.err
    ascii_name = name.encode("idna").decode()
    hosts = [line.split() for line in done.out.splitlines()]
    assert sorted(words[0] for words in hosts if words[1:] == [ascii_name]) == sorted(pins)


def test_cname_chain_is_recorded(tmp_path: Path) -> None:
    """The receipt tells through which names an address came."""
    policy = tmp_path / "egress.txt"
    policy.write_text("\n".join((*BASE_NAMES, "chain.model.example")) + "\n")
    words = ("--egress", str(policy), "--allow-host", "chain.model.example", "--", "true")
    done = card(*words, receipt=tmp_path / "receipt.json")
    assert done.receipt["pins"]["chain.model.example"]["chain"] == ["alias.model.example", "api.model.example"]


def test_asked_once_and_pinned(tmp_path: Path) -> None:
    """A name with another answer each time is asked once: what the card resolves is what is open."""
    policy = tmp_path / "egress.txt"
    policy.write_text("\n".join((*BASE_NAMES, "changing.fault.example")) + "\n")
    words = ("--egress", str(policy), "--allow-host", "changing.fault.example")
    done = card(*words, "--", "getent", "ahosts", "changing.fault.example", receipt=tmp_path / "receipt.json")
    pins = done.receipt["pins"]["changing.fault.example"]["addresses"]
    assert len(pins) == 1
    assert {line.split()[0] for line in done.out.splitlines()} == set(pins)


@pytest.fixture(scope="module")
def loopback_resolver() -> Iterator[str]:
    """Run a forwarder on the bench's loopback, as a local stub resolver is; return its address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stub:
        stub.bind(("127.0.0.54", 53))
        threading.Thread(target=_forward, args=(stub,), daemon=True).start()
        yield "127.0.0.54"


def _forward(stub: socket.socket) -> None:
    while True:
        try:
            query, client = stub.recvfrom(4096)
            stub.sendto(dns.query.udp(dns.message.from_wire(query), "192.0.2.1", timeout=2).to_wire(), client)
        except OSError:
            return


def test_a_resolver_on_the_benchs_loopback(loopback_resolver: str) -> None:
    """The launcher asks it; the card is told another address, which works, and the loopback one leads nowhere."""
    done = card("--resolver", loopback_resolver, "--", "sh", "-c", "cat /etc/resolv.conf; getent ahosts github.com")
    assert done.status == 0, done.err
    assert "203.0.113.10" in done.out
    assert loopback_resolver not in done.out
    assert "nameserver 169.254.1.1" in done.out


def test_the_cards_questions_go_to_the_resolver_that_was_named(loopback_resolver: str) -> None:
    """The card's DNS address forwards to the server of --resolver: a listed name is answered through the stub."""
    ((result, _),) = attempts_in_card(
        [["udp", "169.254.1.1", 53, question("github.com")]], "--resolver", loopback_resolver
    )
    assert result == "reply"
