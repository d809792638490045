"""A world: the network around the bench, as a world file (TOML) describes it, read into a value.

A file with anything unknown, missing or contradictory in it is refused with every problem at once; README.md documents
the format. Pure; imports the standard library and siblings.
"""

import ipaddress
import tomllib
from dataclasses import dataclass
from pathlib import Path

from infra.bench.shape import list_of, strings_of, table_of
from infra.bench.zone import Entry, from_addresses, parse_zone, valid_name

Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface
# what a host can serve -> its usual port
SERVICES = {
    "https": 443,
    "http": 80,
    "metadata": 80,
    "tcp-echo": 7,
    "udp-echo": 7,
    "sink": 443,
    "source": 443,
    "dns": 53,
}
RESOLVER_MODES = ("answers", "silent", "closed")
MAX_INTERFACE = 15  # IFNAMSIZ of linux/if.h, less the final NUL
LINK_KEYS = {"interface", "bench", "gateway"}
RESOLVER_KEYS = {"addresses", "configured", "mode", "tcp"}
HOST_KEYS = {"names", "addresses", "services", "repositories"}


class WorldError(Exception):
    """The world file cannot be used; the text has one line for each problem."""


@dataclass(frozen=True, slots=True)
class Service:
    """One server of a host."""

    kind: str
    port: int

    @property
    def udp(self) -> bool:
        """Whether it is served over UDP; dns is served over both."""
        return self.kind in {"udp-echo", "dns"}


@dataclass(frozen=True, slots=True)
class Host:
    """One host: its names (certificate and zone), its addresses, its servers, its git repositories."""

    names: tuple[str, ...]
    addresses: tuple[str, ...]
    services: tuple[Service, ...]
    repositories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Resolver:
    """The world's name server: where it listens, how it behaves, and what the bench's resolv.conf names."""

    addresses: tuple[str, ...]
    configured: tuple[str, ...]
    mode: str = "answers"
    tcp: bool = True


@dataclass(frozen=True, slots=True)
class World:
    """The whole description. `zone` has the hosts' own names too, unless the file says otherwise."""

    interface: str
    bench: tuple[Interface, ...]
    gateway: tuple[str, ...]
    resolver: Resolver
    hosts: tuple[Host, ...]
    zone: dict[str, Entry]

    @property
    def addresses(self) -> tuple[str, ...]:
        """Every address that the world answers on, but the gateway's."""
        own = [address for host in self.hosts for address in host.addresses] + list(self.resolver.addresses)
        return tuple(sorted(set(own) - set(self.gateway)))


class _Reader:
    """Reads typed values out of tables and keeps the problems."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def table(self, value: object, where: str, known: set[str] | None = None) -> dict[str, object]:
        """Return a table; one that is missing or is none, or has a key that is not known, is a problem."""
        table = table_of(value)
        if table is None:
            self.problems.append(f"{where}: missing, or not a table")
            return {}
        if known is not None:
            self.problems += [f"{where}: unknown key {key}" for key in sorted(set(table) - known)]
        return table

    def strings(self, table: dict[str, object], key: str, where: str) -> tuple[str, ...]:
        """Return a list of strings; a missing key is an empty list."""
        items = strings_of(table.get(key, []))
        if items is None:
            self.problems.append(f"{where}: {key} is not a list of strings")
        return tuple(items or ())

    def addresses(self, table: dict[str, object], key: str, where: str) -> tuple[str, ...]:
        """Return a list of addresses in their usual spelling."""
        found: list[str] = []
        for text in self.strings(table, key, where):
            try:
                found.append(str(ipaddress.ip_address(text)))
            except ValueError:
                self.problems.append(f"{where}: {text} is not an address")
        return tuple(found)

    def interfaces(self, table: dict[str, object], key: str, where: str) -> tuple[Interface, ...]:
        """Return a list of addresses with a prefix length."""
        found: list[Interface] = []
        for text in self.strings(table, key, where):
            try:
                found.append(ipaddress.ip_interface(text if "/" in text else ""))
            except ValueError:
                self.problems.append(f"{where}: {text} is not an address with a prefix length")
        return tuple(found)


def load(path: Path) -> World:
    """Return the world that a file describes, over the file that it names as `base`; raises WorldError."""
    return build(document(path))


def document(path: Path) -> dict[str, object]:
    """Return a file's TOML document, its base filled in; what `build` takes, and plain enough for JSON."""
    return _document_over(path, seen=())


def parse(text: str) -> World:
    """Return the world that a text without a base describes; raises WorldError with every problem."""
    return build(_toml(text, "world"))


def _toml(text: str, where: str) -> dict[str, object]:
    """Return the text as a TOML document."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise WorldError(f"{where}: not TOML: {error}") from error


def _document_over(path: Path, *, seen: tuple[Path, ...]) -> dict[str, object]:
    """Return a file's document over its base's: tables are merged key by key, the hosts are taken whole."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise WorldError(f"{path}: {error}") from error
    own = _toml(text, str(path))
    base = own.pop("base", None)
    if base is None:
        return own
    place = path.resolve().parent / str(base)
    if place in seen:
        raise WorldError(f"{path}: base {base} is its own base")
    merged = _document_over(place, seen=(*seen, place))
    for key, value in own.items():
        new, old = table_of(value), table_of(merged.get(key))
        merged[key] = value if new is None or old is None else old | new
    return merged


def build(document: dict[str, object]) -> World:
    """Return the world that a document describes; raises WorldError with every problem."""
    reader = _Reader()
    top = reader.table(document, "world", {"link", "resolver", "host", "zone"})
    interface, bench, gateway = _link(reader, reader.table(top.get("link"), "link", LINK_KEYS))
    resolver = _resolver(reader, reader.table(top.get("resolver", {}), "resolver", RESOLVER_KEYS), gateway)
    hosts = _hosts(reader, top.get("host", []))
    zone, problems = parse_zone(reader.table(top.get("zone", {}), "zone"))
    reader.problems += problems + _clashes(hosts)
    own = {name: from_addresses(host.addresses) for host in hosts for name in host.names}
    if reader.problems:
        raise WorldError("\n".join(reader.problems))
    return World(interface, bench, gateway, resolver, hosts, own | zone)


def _link(reader: _Reader, table: dict[str, object]) -> tuple[str, tuple[Interface, ...], tuple[str, ...]]:
    """Read the link between bench and world."""
    interface = table.get("interface", "eth0")
    if not isinstance(interface, str) or not 0 < len(interface) <= MAX_INTERFACE or set(interface) & set("/ :"):
        reader.problems.append(f"link: interface {interface!r} is not an interface name")
        interface = "eth0"
    bench = reader.interfaces(table, "bench", "link")
    gateway = reader.addresses(table, "gateway", "link")
    if not bench:
        reader.problems.append("link: bench has no address")
    for address in gateway:
        if not any(ipaddress.ip_address(address) in own.network for own in bench):
            reader.problems.append(f"link: gateway {address} is not in a network of bench")
    return interface, bench, gateway


def _resolver(reader: _Reader, table: dict[str, object], gateway: tuple[str, ...]) -> Resolver:
    """Read the name server; by default it listens on the gateway, and resolv.conf names it there."""
    addresses = reader.addresses(table, "addresses", "resolver") if "addresses" in table else gateway
    configured = reader.addresses(table, "configured", "resolver") if "configured" in table else addresses[:1]
    mode, tcp = table.get("mode", "answers"), table.get("tcp", True)
    if mode not in RESOLVER_MODES:
        reader.problems.append(f"resolver: mode is one of {', '.join(RESOLVER_MODES)}")
    if not isinstance(tcp, bool):
        reader.problems.append("resolver: tcp is true or false")
    return Resolver(addresses, configured, str(mode), bool(tcp))


def _hosts(reader: _Reader, value: object) -> tuple[Host, ...]:
    """Read the hosts."""
    items = list_of(value)
    if items is None:
        reader.problems.append("host: write [[host]] for each")
    hosts: list[Host] = []
    for number, item in enumerate(items or (), 1):
        where = f"host {number}"
        table = reader.table(item, where, HOST_KEYS)
        names = reader.strings(table, "names", where)
        reader.problems += [f"{where}: {name!r} is not a name" for name in names if not valid_name(name)]
        addresses = reader.addresses(table, "addresses", where)
        if not addresses:
            reader.problems.append(f"{where}: no addresses")
        services = tuple(_services(reader, reader.strings(table, "services", where), where))
        if not names and any(service.kind == "https" for service in services):
            reader.problems.append(f"{where}: https needs a name for its certificate")
        hosts.append(Host(names, addresses, services, reader.strings(table, "repositories", where)))
    return tuple(hosts)


def _services(reader: _Reader, texts: tuple[str, ...], where: str) -> list[Service]:
    """Read `KIND` or `KIND:PORT`."""
    found: list[Service] = []
    for text in texts:
        kind, _, port = text.partition(":")
        if kind not in SERVICES or not (port == "" or (port.isascii() and port.isdigit() and 0 < int(port) < 65536)):
            reader.problems.append(f"{where}: service {text!r} is not KIND or KIND:PORT, KIND in {', '.join(SERVICES)}")
        else:
            found.append(Service(kind, int(port) if port else SERVICES[kind]))
    return found


def _clashes(hosts: tuple[Host, ...]) -> list[str]:
    """Return a problem for each address, protocol and port that two servers claim."""
    seen: set[tuple[str, bool, int]] = set()
    problems: list[str] = []
    for host in hosts:
        for service in host.services:
            for address in host.addresses:
                key = (address, service.udp, service.port)
                if key in seen:
                    problems.append(f"host: two servers on {address} port {service.port}")
                seen.add(key)
    return problems
