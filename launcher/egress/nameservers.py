"""Which resolver the bench asks: `/etc/resolv.conf` as it is in the wild (resolv.conf(5)), or the flag.

What cannot be used is noted; when nothing is left the run is refused. There is never a public default.
"""

import _socket
import os

from launcher.value import Value
from oci.refusal import Refusal

RESOLV_CONF = "/etc/resolv.conf"
RESOLVER_FLAG = "--resolver"
# glibc's MAXNS (resolv.h): further servers are never asked by anything else on the bench either.
_MAXNS = 3


class Nameservers(Value):
    """The servers to ask, in order, where they come from, and notes on what was passed over."""

    servers: tuple[str, ...]
    source: str
    notes: tuple[str, ...] = ()


def from_flag(text: str) -> tuple[Nameservers, list[Refusal]]:
    """Return the one server named by `--resolver`, an address with no port."""
    server = _address(text)
    if server is None:
        refusal = Refusal("bad-resolver", f"--resolver {text!r} is not an address", "give an IPv4 or IPv6 address")
        return Nameservers(servers=(), source=RESOLVER_FLAG), [refusal]
    return Nameservers(servers=(server,), source=RESOLVER_FLAG), []


def from_file(path: str = RESOLV_CONF) -> tuple[Nameservers, list[Refusal]]:
    """Return the servers that the file names; refused when it cannot be read or none can be used."""
    try:
        with open(path, "rb") as file:
            found = parse(file.read().decode("utf-8", "replace"), source=path)
    except OSError as error:
        found = Nameservers(servers=(), source=path, notes=(f"{path}: {os.strerror(error.errno or 0)}",))
    if found.servers:
        return found, []
    said = "; ".join(found.notes) or f"{path} names no server"
    return found, [Refusal("no-resolver", f"no resolver can be asked: {said}", "name one with --resolver ADDRESS")]


def parse(text: str, *, source: str) -> Nameservers:
    """Return the servers that a resolv.conf names, and a note on each line that cannot be used."""
    servers: list[str] = []
    notes: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        word, _, value = line.strip().replace("\t", " ").partition(" ")
        if word != "nameserver":
            continue
        why = _take(servers, value)
        if why:
            notes.append(f"{source}:{number}: nameserver {value.strip()!r} {why}")
    return Nameservers(servers=tuple(servers), source=source, notes=tuple(notes))


def _take(servers: list[str], value: str) -> str:
    """Add the server that a line names; return why it was passed over, or ""."""
    server = _address(value.partition("#")[0].partition(";")[0].strip())
    if server is None:
        return "is not an address"
    if server in servers:
        return ""
    if len(servers) == _MAXNS:
        return f"is passed over: only the first {_MAXNS} are ever asked"
    servers.append(server)
    return ""


def _address(text: str) -> str | None:
    """Return the address in its canonical text, a zone kept (RFC 4007), or None."""
    bare, percent, zone = text.partition("%")
    for family in (_socket.AF_INET, _socket.AF_INET6):
        try:
            canonical = _socket.inet_ntop(family, _socket.inet_pton(family, bare))
        except (OSError, ValueError):
            continue
        return canonical + percent + zone if bool(percent) == bool(zone) else None
    return None
