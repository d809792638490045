"""The walls that the unit tests render and audit, one per placement, and hypothesis strategies for any other."""

import ipaddress
import socket

from hypothesis import settings
from hypothesis import strategies as st

from hooks.egress import Egress, Selector, is_range

# A slow machine is not a failing test, and in the bench the checkout cannot be written to.
settings.register_profile("card-run", deadline=None, database=None)
settings.load_profile("card-run")

PLACEMENTS = {"netns": "", "netdev": "veth7", "uid": "1234", "veth": "veth7"}
PINS = {
    "github.com": ("203.0.113.10", "2001:db8:1::10"),
    "api.github.com": ("203.0.113.11",),
    "objects.githubusercontent.com": ("203.0.113.12", "203.0.113.10"),
}


def wall(
    kind: str = "netns",
    *,
    dns: "str | None" = "10.88.0.53",
    pins: "dict[str, tuple[str, ...]] | None" = None,
    denied: "dict[str, str] | None" = None,
) -> Egress:
    """Return a good wall of a placement."""
    return Egress(
        run="run_1",
        selector=Selector(kind, PLACEMENTS[kind]),
        pins=PINS if pins is None else pins,
        dns=dns,
        denied={"10.77.0.0/16": "bench", "2001:db8:77::/48": "bench"} if denied is None else denied,
    )


_LABEL = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
_TOP = st.from_regex(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
_LONG = st.integers(1, 63).map(lambda size: "x" * size)
names = st.builds(lambda labels, top: ".".join((*labels, top)), st.lists(_LABEL | _LONG, min_size=1, max_size=3), _TOP)
run_ids = st.from_regex(r"[a-z0-9][a-z0-9_]{0,47}", fullmatch=True)


def _ntop(address: "ipaddress.IPv4Address | ipaddress.IPv6Address") -> str:
    """Return the address as inet_ntop(3) does, which prints the v4-mapped and compatible forms with dots."""
    return socket.inet_ntop(socket.AF_INET6, address.packed)


def _range(address: "ipaddress.IPv4Address | ipaddress.IPv6Address", prefix: int) -> str:
    return str(ipaddress.ip_network((address, prefix), strict=False))


_v6 = st.ip_addresses(v=6).filter(lambda address: "." not in _ntop(address))
_addresses = st.ip_addresses(v=4).map(str) | _v6.map(str)
_reasons = st.from_regex(r"[a-z0-9][a-zA-Z0-9._:/-]{0,60}", fullmatch=True)
_ranges = st.one_of(
    st.builds(_range, st.ip_addresses(v=4), st.integers(0, 32)),
    st.builds(_range, _v6, st.integers(0, 128)),
).filter(is_range)
selectors = st.one_of(
    st.just(Selector("netns")),
    st.integers(1, 0xFFFFFFFE).map(lambda uid: Selector("uid", str(uid))),
    st.sampled_from(["netdev", "veth"]).map(lambda kind: Selector(kind, "veth7")),
)
walls = st.builds(
    Egress,
    run=run_ids,
    selector=selectors,
    pins=st.dictionaries(names, st.lists(_addresses, max_size=4).map(tuple), max_size=6),
    dns=st.none() | _addresses,
    denied=st.dictionaries(_ranges, _reasons, max_size=5),
    ledger_size=st.integers(1, 65535),
)
