"""Which addresses a name may answer: the denied ranges as data, and the judgement of one address.

An address is unwrapped first (IPv4-mapped, IPv4-compatible, NAT64, 6to4), then judged, then rendered in the form it
was judged in. Sources: the IANA IPv4 and IPv6 special-purpose address registries, RFC 6052, RFC 3056, and the
metadata addresses that cloud providers document.
"""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

DOCUMENTATION = "documentation"
DENIED = (
    ("169.254.169.254/32", "cloud metadata (AWS, Azure, GCP and others)"),
    ("168.63.129.16/32", "cloud metadata (Azure wire server)"),
    ("100.100.100.200/32", "cloud metadata (Alibaba Cloud)"),
    ("192.0.0.192/32", "cloud metadata (Oracle Cloud)"),
    ("fd00:ec2::254/128", "cloud metadata (AWS)"),
    ("fd20:ce::254/128", "cloud metadata (GCP)"),
    ("0.0.0.0/8", "this network (RFC 791)"),
    ("10.0.0.0/8", "private use (RFC 1918)"),
    ("100.64.0.0/10", "shared address space, CGNAT (RFC 6598)"),
    ("127.0.0.0/8", "loopback (RFC 1122)"),
    ("169.254.0.0/16", "link-local (RFC 3927)"),
    ("172.16.0.0/12", "private use (RFC 1918)"),
    ("192.0.0.0/24", "IETF protocol assignments (RFC 6890)"),
    ("192.0.2.0/24", DOCUMENTATION),
    ("192.31.196.0/24", "AS112 (RFC 7535)"),
    ("192.52.193.0/24", "AMT (RFC 7450)"),
    ("192.88.99.0/24", "6to4 relay anycast (RFC 7526)"),
    ("192.168.0.0/16", "private use (RFC 1918)"),
    ("192.175.48.0/24", "AS112 (RFC 7534)"),
    ("198.18.0.0/15", "benchmarking (RFC 2544)"),
    ("198.51.100.0/24", DOCUMENTATION),
    ("203.0.113.0/24", DOCUMENTATION),
    ("224.0.0.0/4", "multicast (RFC 5771)"),
    ("240.0.0.0/4", "reserved, broadcast (RFC 1112)"),
    ("::/128", "unspecified (RFC 4291)"),
    ("::1/128", "loopback (RFC 4291)"),
    ("::/96", "IPv4-compatible (RFC 4291)"),
    ("::ffff:0:0/96", "IPv4-mapped (RFC 4291)"),
    ("64:ff9b::/96", "NAT64 (RFC 6052)"),
    ("64:ff9b:1::/48", "local-use NAT64 (RFC 8215)"),
    ("100::/64", "discard-only (RFC 6666)"),
    ("100:0:0:1::/64", "dummy prefix (RFC 9780)"),
    ("2001::/23", "IETF protocol assignments, Teredo, ORCHID (RFC 2928)"),
    ("2001:db8::/32", DOCUMENTATION),
    ("2002::/16", "6to4 (RFC 3056)"),
    ("2620:4f:8000::/48", "AS112 (RFC 7534)"),
    ("3fff::/20", DOCUMENTATION),
    ("5f00::/16", "segment routing SIDs (RFC 9602)"),
    ("fc00::/7", "unique local (RFC 4193)"),
    ("fe80::/10", "link-local (RFC 4291)"),
    ("fec0::/10", "site-local (RFC 3879)"),
    ("ff00::/8", "multicast (RFC 4291)"),
)
_NETWORKS = tuple((ip_network(cidr), reason) for cidr, reason in DENIED)
_NAT64 = ip_network("64:ff9b::/96")
_COMPATIBLE = ip_network("::/96")


def unwrap(text: str) -> IPv4Address | IPv6Address:
    """Return the address that traffic to `text` ends at; raises ValueError when it is no address, or has a zone."""
    if "%" in text:
        raise ValueError(f"{text!r} has a zone, which is the bench's own")
    address = ip_address(text)
    if isinstance(address, IPv4Address):
        return address
    embedded = address.ipv4_mapped or address.sixtofour
    if embedded is not None:
        return embedded
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def why_denied(
    address: IPv4Address | IPv6Address, *, documentation: bool = False, ranges: tuple[tuple[str, str], ...] = ()
) -> str | None:
    """Return why an unwrapped address may not be pinned, or None when it may.

    `documentation` admits the documentation ranges (a test bench's "internet"); `ranges` are further (CIDR, reason)
    pairs: other benches and the bench's own addresses.
    """
    further = tuple((ip_network(cidr, strict=False), reason) for cidr, reason in ranges)
    for network, reason in (*further, *_NETWORKS):
        if address.version == network.version and address in network:
            if reason == DOCUMENTATION and documentation:
                return None
            return reason
    return None if address.is_global else "not globally routable"
