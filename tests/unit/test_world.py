"""World files: what they mean, and every problem of a bad one at once."""

from ipaddress import ip_address
from pathlib import Path

import pytest

from infra.bench import layout
from infra.bench.world import Resolver, Service, World, WorldError, load, parse
from infra.bench.zone import AAAA, CNAME, TXT, A, Record, Reply

MAPPED = str(ip_address("::ffff:10.0.0.1"))  # its spelling depends on Python's version
WORLDS = layout.DEFAULT_WORLD.parent
LINK = '[link]\nbench = ["192.0.2.2/24", "2001:db8::2/64"]\ngateway = ["192.0.2.1", "2001:db8::1"]\n'
HOST = '[[host]]\nnames = ["a.example"]\naddresses = ["203.0.113.1"]\nservices = ["https"]\n'


def zone(line: str) -> World:
    """Return a world whose zone is one line."""
    return parse(f"{LINK}\n[zone]\n{line}\n")


def problems(text: str) -> list[str]:
    """Return the problems of a world file."""
    with pytest.raises(WorldError) as caught:
        parse(text)
    return str(caught.value).splitlines()


@pytest.mark.parametrize("path", sorted(WORLDS.glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_worlds_load(path: Path) -> None:
    """Every world file that we ship is a world with hosts and a name server."""
    world = load(path)
    assert world.hosts
    assert world.resolver.addresses


def test_base_is_kept_where_the_file_says_nothing() -> None:
    """A world over a base has the base's hosts and zone, and its own link."""
    ours, base = load(WORLDS / "b0.toml"), load(WORLDS / "default.toml")
    assert (ours.interface, base.interface) == ("b0", "eth0")
    assert (ours.hosts, ours.zone, ours.bench) == (base.hosts, base.zone, base.bench)


def test_base_that_comes_back_to_itself(tmp_path: Path) -> None:
    """Two files that are each other's base are refused."""
    (tmp_path / "one.toml").write_text('base = "two.toml"\n')
    (tmp_path / "two.toml").write_text('base = "one.toml"\n')
    with pytest.raises(WorldError, match="its own base"):
        load(tmp_path / "one.toml")


def test_missing_file() -> None:
    """A file that is not there is a problem like another."""
    with pytest.raises(WorldError, match="No such file"):
        load(Path("/nowhere/world.toml"))


def test_defaults() -> None:
    """A link is enough: the name server listens on the gateway and resolv.conf names its first address."""
    world = parse(LINK)
    assert world.interface == "eth0"
    assert world.resolver == Resolver(("192.0.2.1", "2001:db8::1"), ("192.0.2.1",))


def test_host_is_in_the_zone() -> None:
    """A host's names resolve to its addresses, unless the zone says otherwise."""
    world = parse(f'{LINK}{HOST}[zone]\n"b.example" = "NXDOMAIN"\n')
    assert world.hosts[0].services == (Service("https", 443),)
    assert world.zone["a.example"].reply(A, 0).records == (Record(A, "203.0.113.1"),)
    assert parse(f'{LINK}{HOST}[zone]\n"a.example" = "SERVFAIL"\n').zone["a.example"].reply(A, 0).rcode == 2


@pytest.mark.parametrize(
    ("line", "kind", "reply"),
    [
        ('"n" = "203.0.113.1"', A, Reply(records=(Record(A, "203.0.113.1"),))),
        ('"n" = "203.0.113.1"', AAAA, Reply()),
        ('"n" = ["203.0.113.1", "2001:DB8::1"]', AAAA, Reply(records=(Record(AAAA, "2001:db8::1"),))),
        ('"n" = "203.0.113.254+2"', A, Reply(records=(Record(A, "203.0.113.254"), Record(A, "203.0.113.255")))),
        ('"n" = "::ffff:10.0.0.1"', AAAA, Reply(records=(Record(AAAA, MAPPED),))),
        ('"n" = "CNAME m"', A, Reply(records=(Record(CNAME, "m"),))),
        ('"n" = "TXT a text"', TXT, Reply(records=(Record(TXT, "a text"),))),
        ('"n" = "NXDOMAIN"', A, Reply(rcode=3)),
        ('"n" = "EMPTY"', A, Reply()),
        ('"n" = "SILENT"', A, Reply(fault="SILENT")),
        ('"n" = { a = "203.0.113.1", aaaa = "SERVFAIL" }', AAAA, Reply(rcode=2)),
        ('"n" = { a = "203.0.113.1", aaaa = "SERVFAIL" }', A, Reply(records=(Record(A, "203.0.113.1"),))),
    ],
)
def test_zone_grammar(line: str, kind: int, reply: Reply) -> None:
    """One line of the zone, asked for one type, gives one reply."""
    assert zone(line).zone["n"].reply(kind, 0) == reply


def test_zone_turns_and_delay() -> None:
    """Answers take turns and come round again; delay, truncation and time to live are kept."""
    entry = zone('"n" = { turns = ["203.0.113.1", "NXDOMAIN"], delay = 0.5, truncate = true, ttl = 5 }').zone["n"]
    assert [entry.reply(A, turn).rcode for turn in range(3)] == [0, 3, 0]
    assert (entry.delay, entry.truncate, entry.ttl) == (0.5, True, 5)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('"N" = "203.0.113.1"', "lower-case"),
        ('"n." = "203.0.113.1"', "final dot"),
        ('"n" = "NXDOMIAN"', "NXDOMIAN"),
        ('"n" = "203.0.113.1+5000"', "a range has"),
        ('"n" = "203.0.113.1+x"', "invalid literal"),
        ('"n" = "CNAME No"', "is not a name"),
        ('"n" = 4', "is not an answer"),
        ('"n" = [4]', "is not an answer"),
        ('"n" = { answer = "203.0.113.1", turns = ["203.0.113.1"] }', "give one of"),
        ('"n" = { delay = 1 }', "give one of"),
        ('"n" = { answer = "203.0.113.1", dealy = 1 }', "unknown key dealy"),
        ('"n" = { answer = "203.0.113.1", delay = "1" }', "number of seconds"),
        ('"n" = { turns = "203.0.113.1" }', "list of answers"),
    ],
)
def test_zone_problems(line: str, problem: str) -> None:
    """A line of the zone that cannot be read is named with its problem."""
    (found,) = problems(f"{LINK}\n[zone]\n{line}\n")
    assert found.startswith("zone: ")
    assert problem in found


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "link: missing, or not a table"),
        ('[link]\nbench = ["192.0.2.2"]\n', "192.0.2.2 is not an address with a prefix length"),
        (LINK.replace("192.0.2.1", "10.0.0.1"), "gateway 10.0.0.1 is not in a network of bench"),
        (f'{LINK}interface = "much-too-long-a-name"\n', "is not an interface name"),
        (f"{LINK}[resolver]\nmode = 'slow'\n", "mode is one of"),
        (f"{LINK}[resolver]\ntcp = 1\n", "tcp is true or false"),
        (f"{LINK}[resolver]\naddress = []\n", "unknown key address"),
        (f"{LINK}{HOST}port = 1\n", "host 1: unknown key port"),
        (LINK + HOST.replace("https", "ftp"), "service 'ftp'"),
        (LINK + HOST.replace("https", "https:0"), "service 'https:0'"),
        (LINK + HOST.replace("https", "https:65536"), "service 'https:65536'"),
        (LINK + HOST.replace("a.example", "a b"), "'a b' is not a name"),
        (LINK + HOST.replace('"a.example"', ""), "https needs a name"),
        (LINK + HOST.replace('"203.0.113.1"', ""), "no addresses"),
        (LINK + HOST.replace('"203.0.113.1"', "5"), "addresses is not a list of strings"),
        (LINK + HOST + HOST, "two servers on 203.0.113.1 port 443"),
        (f"{LINK}[hosts]\n", "unknown key hosts"),
        ("host = [", "not TOML"),
    ],
)
def test_problems(text: str, problem: str) -> None:
    """What is wrong with a file is said."""
    assert any(problem in line for line in problems(text)), problems(text)


def test_problems_come_together() -> None:
    """Problems of different parts are all in one refusal."""
    text = LINK.replace("192.0.2.1", "10.0.0.1") + HOST.replace("https", "ftp") + '[zone]\n"n" = "NX"\n'
    assert len(problems(text)) == 3


def test_clash_of_udp_and_tcp_is_none() -> None:
    """One port can be served over TCP and UDP."""
    world = parse(LINK + HOST.replace('"https"', '"https", "udp-echo:443"'))
    assert len(world.hosts[0].services) == 2
