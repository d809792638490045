"""The card's network as it was asked for: which kind, who answers names, and whether the bench leads anywhere.

Pure but for reading the kernel's routing tables and resolv.conf. On the hot path.
"""

from launcher.egress import nameservers
from launcher.egress.nameservers import Nameservers
from launcher.request import Request
from oci.refusal import Refusal

PASTA, SLIRP, BRIDGE, NONE = "pasta", "slirp", "bridge", "none"
# The address at which DNS is answered inside the card. pasta is given its own explicitly, a unique local one where the
# card has no IPv4 route; slirp4netns(1) answers at the third of the network that it is given; on a bridge podman says
# (`launcher.run.bridge`).
CARD_DNS = {PASTA: "169.254.1.1", SLIRP: "10.0.2.3"}
CARD_DNS6 = "fdca:4d00::53"


def servers(request: Request) -> tuple[Nameservers, list[Refusal]]:
    """Return who is asked for the addresses of names, and why nobody can be."""
    if request.resolver is not None:
        return nameservers.from_flag(request.resolver)
    if request.net == NONE:
        return Nameservers(servers=(), source="none"), []
    return nameservers.from_file()


def card_dns(request: Request, *, route4: bool, route6: bool) -> str | None:
    """Return the address that the card asks; None where it may not ask, or podman says which it is."""
    if request.dns != "question":
        return None
    if request.net == PASTA and route6 and not route4:
        return CARD_DNS6
    return CARD_DNS.get(request.net)


def no_route(request: Request, *, route4: bool, route6: bool) -> list[Refusal]:
    """Refuse a network that leads nowhere: no probe of the wall could be told from a missing route."""
    if request.net == NONE or route4 or route6:
        return []
    return [Refusal("no-route", "the bench has no default route, so the wall cannot be felt", "use --net none")]


def routes(request: Request) -> tuple[bool, bool]:
    """Return whether the card has an IPv4 and an IPv6 route to anywhere."""
    # slirp4netns asks for its neighbour from a global address, and an answer to one of those could be routed on: the
    # wall does not pass it, so such a card has IPv4 only.
    return request.net != NONE and _default_route4(), request.net == PASTA and _default_route6()


def _default_route4() -> bool:
    """Return whether the bench has an IPv4 default route (/proc/net/route, destination and mask zero)."""
    with open("/proc/net/route") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    return any(row[1] == row[7] == "00000000" for row in rows)


def _default_route6() -> bool:
    """Return whether the bench has an IPv6 default route that is not the kernel's own reject route on lo."""
    try:
        with open("/proc/net/ipv6_route") as file:
            rows = [line.split() for line in file]
    except FileNotFoundError:
        return False
    return any(row[0] == "0" * 32 and row[1] == "00" and row[9] != "lo" for row in rows)
