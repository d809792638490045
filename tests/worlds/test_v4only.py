"""A bench without an IPv6 route (world v4only): no card is handed an AAAA pin that it could not use."""

from pathlib import Path

from tests.bench.cards import card


def test_no_v6_pins(tmp_path: Path) -> None:
    """Pins and the card's hosts file have v4 addresses alone, and a clone works at once."""
    words = ["sh", "-c", "cat /etc/hosts; git clone -q https://github.com/octo/hello /tmp/hello"]
    done = card("--", *words, receipt=tmp_path / "receipt.json")
    assert done.status == 0, done.err
    pins = [address for pin in done.receipt["pins"].values() for address in pin["addresses"]]
    assert pins
    assert not [address for address in pins if ":" in address]
    assert not [line for line in done.out.splitlines() if ":" in line and "localhost" not in line]
