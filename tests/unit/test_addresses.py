"""Every address is unwrapped, judged, and refused with the reason of the range it lies in."""

from ipaddress import IPv4Address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.egress.addresses import DENIED, unwrap, why_denied


@pytest.mark.parametrize(
    ("text", "ends_at"),
    [
        ("::ffff:169.254.169.254", "169.254.169.254"),
        ("::127.0.0.1", "127.0.0.1"),
        ("64:ff9b::a9fe:a9fe", "169.254.169.254"),
        ("2002:a9fe:a9fe::1", "169.254.169.254"),
        ("64:ff9b::8.8.8.8", "8.8.8.8"),
        ("::1", "::1"),
        ("::", "::"),
        ("2606:4700::1111", "2606:4700::1111"),
    ],
)
def test_unwrap(text: str, ends_at: str) -> None:
    """The four ways to write a v4 address in v6 end at the v4 one."""
    assert str(unwrap(text)) == ends_at


@pytest.mark.parametrize(("cidr", "reason"), DENIED)
def test_each_range_is_denied(cidr: str, reason: str) -> None:
    """The first and the last address of every range are denied, and the range has a reason."""
    network = ip_network(cidr)
    assert reason
    assert why_denied(network[0]) is not None
    assert why_denied(network[-1]) is not None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("169.254.169.254", "metadata"),
        ("fd00:ec2::254", "metadata"),
        ("168.63.129.16", "metadata"),
        ("100.100.100.200", "metadata"),
        ("::ffff:10.0.0.1", "1918"),
        ("64:ff9b:1::1", "NAT64"),
        ("fe80::1", "link-local"),
        ("255.255.255.255", "broadcast"),
        ("192.0.2.1", "documentation"),
    ],
)
def test_reason(text: str, why: str) -> None:
    """An address is refused in the words of its own range."""
    assert why in (why_denied(unwrap(text)) or "")


@pytest.mark.parametrize("text", ["140.82.112.3", "8.8.8.8", "1.1.1.1", "2606:50c0:8000::153", "2001:4860:4860::8888"])
def test_public_addresses_pass(text: str) -> None:
    """The control: ordinary public addresses are not denied."""
    assert why_denied(unwrap(text)) is None


@pytest.mark.parametrize("text", ["192.0.2.9", "198.51.100.9", "203.0.113.9", "2001:db8::9"])
def test_documentation_is_an_explicit_setting(text: str) -> None:
    """Documentation ranges pass only when the bench says so; nothing else does then."""
    assert why_denied(unwrap(text)) is not None
    assert why_denied(unwrap(text), documentation=True) is None
    assert why_denied(unwrap("10.0.0.1"), documentation=True) is not None


def test_bench_ranges_come_first() -> None:
    """A range of another bench is denied with its own reason, also inside documentation space."""
    ranges = (("203.0.113.0/28", "another bench"),)
    assert why_denied(unwrap("203.0.113.3"), documentation=True, ranges=ranges) == "another bench"
    assert why_denied(unwrap("203.0.113.99"), documentation=True, ranges=ranges) is None


@given(st.ip_addresses(v=4))
def test_wrapping_hides_nothing(address: IPv4Address) -> None:
    """However a v4 address is wrapped, the judgement is the v4 one's."""
    bare = why_denied(address)
    for wrapped in (f"::ffff:{address}", f"64:ff9b::{address}"):
        assert why_denied(unwrap(wrapped)) == bare
