"""A bench with IPv6 alone (world v6only): pins are v6, work from the first packet, and nothing else is reached."""

from tests.bench.cards import attempts_in_card, attempts_in_plain, card
from tests.bench.test_walls import question

ATTEMPTS = [
    ["tcp", "2001:db8:1::10", 443],
    ["tcp", "2001:db8:1::10", 8443],
    ["tcp", "2001:db8:66::66", 443],
    ["tcp", "fd00:ec2::254", 80],
    ["udp", "2001:db8:1::10", 443, "00"],
]


def test_walls() -> None:
    """The pin is open, another port, another address, metadata and QUIC are refused at once; all are open without."""
    assert [result for result, _ in attempts_in_plain(ATTEMPTS)] == ["ok", "ok", "ok", "ok", "reply"]
    found = attempts_in_card(ATTEMPTS)
    assert [result for result, _ in found] == ["ok", "ECONNREFUSED", "ECONNREFUSED", "ECONNREFUSED", "EPERM"]
    assert all(took < 50 for _, took in found[1:])


def test_first_packet() -> None:
    """The first connection of a fresh card succeeds without a retransmission's second."""
    ((result, took),) = attempts_in_card([["tcp", "2001:db8:1::11", 443]])
    assert result == "ok"
    assert took < 900


def test_dns() -> None:
    """The card's DNS is a v6 address there, answers for listed names, and for no other."""
    resolv_conf = card("-q", "--", "cat", "/etc/resolv.conf").out.split()
    server = resolv_conf[resolv_conf.index("nameserver") + 1]
    attempts = [
        ["udp", server, 53, question("github.com", "AAAA")],
        ["udp", server, 53, question("unlisted.example", "AAAA")],
        ["tcp", server, 53],
    ]
    assert [result for result, _ in attempts_in_card(attempts)] == ["reply", "EPERM", "ECONNREFUSED"]


def test_clone() -> None:
    """Git clones over HTTPS, by name."""
    done = card("--", "git", "clone", "-q", "https://github.com/octo/hello", "/tmp/hello")
    assert done.status == 0, done.err
    assert "level=full" in done.err
