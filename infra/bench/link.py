"""The link between bench and world: a veth pair, addresses and routes by iproute2, and the world's count of packets.

Imports the standard library and siblings.
"""

import re
import subprocess
from ipaddress import ip_address
from pathlib import Path

from infra.bench.world import World

IP = "/usr/sbin/ip"
NFT = "/usr/sbin/nft"
FAR = "world"  # the world's end of the veth pair
EVERYWHERE = {4: "0.0.0.0/0", 6: "::/0"}
# duplicate address detection would make each address unusable for a second, and solicitations only add noise
QUIET = {"accept_dad": "0", "dad_transmits": "0", "router_solicitations": "0", "accept_ra": "0"}
# what arrives, counted once per connection and per datagram, before anything decides about it
COUNTING = f"""table inet seen {{
  set seen4 {{ type ipv4_addr . inet_proto . inet_service; size 65535; flags dynamic; counter; }}
  set seen6 {{ type ipv6_addr . inet_proto . inet_service; size 65535; flags dynamic; counter; }}
  chain arriving {{
    type filter hook prerouting priority raw; policy accept;
    iifname != "{FAR}" accept
    meta l4proto tcp tcp flags & (syn | ack) != syn accept
    meta l4proto {{ tcp, udp }} update @seen4 {{ ip daddr . meta l4proto . th dport counter }}
    meta l4proto {{ tcp, udp }} update @seen6 {{ ip6 daddr . meta l4proto . th dport counter }}
  }}
}}
"""
ELEMENT = re.compile(r"([0-9a-f.:]+) \. (\w+) \. (\d+) counter packets (\d+)")
PROTOCOLS = {"tcp": "tcp", "udp": "udp", "6": "tcp", "17": "udp"}  # nft --numeric prints the numbers


def quieten() -> None:
    """Set the calling process's network namespace so that addresses work at once. No IPv6 at all is left as it is."""
    folder = Path("/proc/sys/net/ipv6/conf/default")
    if folder.is_dir():
        for name, value in QUIET.items():
            (folder / name).write_text(value, encoding="ascii")


def _ip(lines: list[str]) -> None:
    """Run iproute2 commands, all in one process; raises CalledProcessError at the first that fails."""
    subprocess.run([IP, "-batch", "-"], input="\n".join([*lines, ""]), text=True, check=True)


def bring_up_bench(world: World, process: int) -> None:
    """Make the link to the namespace of the world's process, with the bench's addresses and routes."""
    name = world.interface
    lines = ["link set lo up", f"link add {name} type veth peer name {FAR} netns {process}"]
    lines += [f"address add {own} dev {name}" + " nodad" * (own.version == 6) for own in world.bench]
    lines += [f"link set {name} up"]
    lines += [f"route add {EVERYWHERE[ip_address(text).version]} via {text} dev {name}" for text in world.gateway]
    _ip(lines)


def bring_up_world(world: World) -> None:
    """Give the world's end its addresses: the gateway's on the link, the hosts' on the loopback interface."""
    subprocess.run([NFT, "-f", "-"], input=COUNTING, text=True, check=True)
    lines = ["link set lo up"]
    networks = {own.version: own.network for own in world.bench}
    for text in world.gateway:
        address = ip_address(text)
        length = networks[address.version].prefixlen
        lines.append(f"address add {address}/{length} dev {FAR}" + " nodad" * (address.version == 6))
    lines += [f"address add {text} dev lo" + " nodad" * (":" in text) for text in world.addresses]
    _ip([*lines, f"link set {FAR} up"])


def seen() -> str:
    """Return what arrived in the world, `PROTOCOL ADDRESS PORT COUNT` on each line, sorted."""
    argv = [NFT, "--numeric", "list", "table", "inet", "seen"]
    return parse_seen(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)


def parse_seen(listing: str) -> str:
    """Return the lines of `seen` from nft's listing of the counting table."""
    found = sorted(
        (PROTOCOLS[match[2]], match[1], int(match[3]), match[4])
        for match in ELEMENT.finditer(listing)
        if match[2] in PROTOCOLS
    )
    return "".join(f"{protocol} {address} {port} {count}\n" for protocol, address, port, count in found)
