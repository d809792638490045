"""The bench and its world do what the other tests take for granted: the controls of every denial, without a wall.

Runs inside the default world, as the user or as root.
"""

import os
import shutil
import socket
import time
from pathlib import Path

import dns.exception
import dns.message
import dns.query
import dns.rcode
import pytest

from tests.bench.cards import BUSYBOX, IMAGE, Run, plain, run

ROOTLESS = "pasta" if shutil.which("pasta") else "slirp4netns"  # podman 4.3 of Debian 12 knows no pasta
NETWORK = ROOTLESS if os.getuid() else "bridge"
RESOLVERS = ["192.0.2.1", "2001:db8::1", "198.51.100.53"]
METADATA = "metadata-of-the-bench"
FAMILIES = ["-4", "-6"] if NETWORK == "pasta" else ["-4"]  # the others have no IPv6 unless it is asked for
INTERFACE = "tap0" if NETWORK == "slirp4netns" else "eth0"


def container(script: str, *options: str, image: str = IMAGE) -> Run:
    """Run a shell script in a plain container with the bench's network."""
    argv = ["podman", "run", "--rm", "--pull=never", f"--network={NETWORK}", *options, image, "sh", "-c", script]
    return run(argv)


def seen() -> dict[str, int]:
    """Return how often the world has seen each protocol, address and port."""
    lines = run(["world-seen"]).out.splitlines()
    return {place: int(count) for place, _, count in (line.rpartition(" ") for line in lines)}


def ask(name: str, kind: str = "A", *, where: str = RESOLVERS[0], timeout: float = 2.0) -> dns.message.Message:
    """Ask the world's name server over UDP."""
    return dns.query.udp(dns.message.make_query(name, kind), where, timeout=timeout)


def addresses(message: dns.message.Message) -> list[str]:
    """Return the addresses of an answer."""
    return [item.to_text() for answer in message.answer for item in answer if answer.rdtype in {1, 28}]


def test_git_works_over_https() -> None:
    """A plain container clones a repository, commits, pushes and sees what it pushed."""
    done = container(
        "git clone -q https://github.com/octo/hello /tmp/hello && cd /tmp/hello && cat hello.py"
        " && git config user.name x && git config user.email x@x.example && date +%N > new && git add new"
        " && git commit -q -m new && git push -q && test $(git rev-parse HEAD) = $(git ls-remote origin HEAD | cut -f1)"
    )
    assert done.status == 0, done.err
    assert "def hello" in done.out


def test_git_says_no_to_what_is_not_there() -> None:
    """A repository that the host has not is an error, so a clone that works has cloned something."""
    assert container("git clone -q https://github.com/octo/nothing /tmp/x").status == 128


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "name", ["github.com", "api.github.com", "objects.githubusercontent.com", "api.model.example", "unlisted.example"]
)
def test_tls_hosts_are_reached(name: str, family: str) -> None:
    """Each TLS host answers by name, on both families, with a certificate that the card image trusts."""
    done = container(f"curl -sS {family} https://{name}/")
    assert (done.status, done.out) == (0, f"hello from {name}\n"), done.err


def test_certificates_are_checked() -> None:
    """A host has no certificate for another one's name."""
    done = container("curl -sS --connect-to github.com:443:unlisted.example:443 https://github.com/")
    assert done.status == 60


@pytest.mark.parametrize(
    ("url", "out"),
    [
        ("http://github.com/", "hello from github.com\n"),
        ("http://unlisted.example/", "hello from unlisted.example\n"),
        ("http://169.254.169.254/latest/meta-data/", f"{METADATA}\n"),
    ],
)
def test_what_a_wall_must_stop_is_there(url: str, out: str) -> None:
    """Plain HTTP and the metadata service answer a plain container."""
    done = container(f"curl -sS {url}")
    assert (done.status, done.out) == (0, out), done.err


def test_model_replies() -> None:
    """The model host answers a request as such hosts do."""
    done = container("curl -sS -d '{}' https://api.model.example/v1/messages")
    assert '"role": "assistant"' in done.out


@pytest.mark.parametrize("port", [22, 8443])
def test_other_ports_of_a_listed_host_are_open(port: int) -> None:
    """A listed host has open ports besides 443, so that a denial there is the wall's."""
    with socket.create_connection(("github.com", port), timeout=5) as peer:
        peer.sendall(b"x")
        assert peer.recv(1) == b"x"


@pytest.mark.parametrize("address", ["203.0.113.10", "2001:db8:1::10", "198.51.100.66"])
def test_udp_443_is_answered(address: str) -> None:
    """UDP to port 443 comes back."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.settimeout(5)
        peer.sendto(b"x", (address, 443))
        assert peer.recv(1) == b"x"


def test_streams_for_measuring() -> None:
    """One host takes any number of bytes, and sends without end."""
    with socket.create_connection(("stream.model.example", 443), timeout=5) as sink:
        sink.sendall(bytes(1 << 22))
    with socket.create_connection(("stream.model.example", 8443), timeout=5) as source:
        received = 0
        while received < 1 << 22:
            received += len(source.recv(1 << 16))


def test_seen_counts_what_arrives() -> None:
    """The world sees a datagram to a port that nothing serves, once, and nothing that was not sent."""
    place, other = "udp 169.254.169.254 9", "udp 169.254.169.254 10"
    before = seen()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.sendto(b"x", ("169.254.169.254", 9))
    after = seen()
    assert after[place] == before.get(place, 0) + 1
    assert after.get(other) == before.get(other)


def test_interface_of_the_world_is_the_only_one() -> None:
    """Besides the loopback, the bench has the world's interface and nothing of the machine's."""
    names = {path.name for path in Path("/sys/class/net").iterdir() if not path.name.startswith(("podman", "veth"))}
    assert names == {"lo", "eth0"}


@pytest.mark.parametrize("where", RESOLVERS)
def test_name_servers_answer(where: str) -> None:
    """The resolver, on both families, and an unlisted name server have the zone, over UDP and TCP."""
    query = dns.message.make_query("github.com", "AAAA")
    assert addresses(dns.query.udp(query, where, timeout=2)) == ["2001:db8:1::10"]
    assert addresses(dns.query.tcp(query, where, timeout=2)) == ["2001:db8:1::10"]


def test_text_goes_through_the_resolver() -> None:
    """A TXT question for a made-up name is answered: the tunnel that a wall must close is open here."""
    reply = ask("c2VjcmV0.tunnel.example", "TXT")
    assert reply.answer[0][0].to_text() == '"out of the box"'


@pytest.mark.parametrize(
    ("name", "kind", "found"),
    [
        ("loopback", "A", ["127.0.0.1"]),
        ("mapped", "AAAA", ["::ffff:169.254.169.254"]),
        ("nat64", "AAAA", ["64:ff9b::a9fe:a9fe"]),
        ("sixtofour", "AAAA", ["2002:a9fe:a9fe::1"]),
        ("metadata", "A", ["169.254.169.254"]),
        ("mixed", "A", ["203.0.113.20", "10.0.0.8"]),
        ("loop", "A", []),
        ("empty", "A", []),
    ],
)
def test_poisoned_answers(name: str, kind: str, found: list[str]) -> None:
    """The answers that a resolver must refuse or survive are given."""
    assert addresses(ask(f"{name}.fault.example", kind)) == found


@pytest.mark.parametrize(
    ("name", "rcode"),
    [
        ("nxdomain", dns.rcode.NXDOMAIN),
        ("dangling", dns.rcode.NXDOMAIN),
        ("servfail", dns.rcode.SERVFAIL),
        ("refused", dns.rcode.REFUSED),
    ],
)
def test_failing_names(name: str, rcode: dns.rcode.Rcode) -> None:
    """Names fail with the code that they say."""
    assert ask(f"{name}.fault.example").rcode() == rcode


def test_half_an_answer() -> None:
    """One name has an address of one family, and fails for the other."""
    assert addresses(ask("half.fault.example")) == ["203.0.113.20"]
    assert ask("half.fault.example", "AAAA").rcode() == dns.rcode.SERVFAIL


def test_many_addresses_need_tcp() -> None:
    """Sixty addresses are truncated over UDP and whole over TCP."""
    query = dns.message.make_query("many.fault.example", "A")
    reply, by_tcp = dns.query.udp_with_fallback(query, RESOLVERS[0], timeout=2)
    assert by_tcp
    assert len(addresses(reply)) == 60


def test_changing_answers() -> None:
    """Asked twice, one name gives two answers."""
    assert addresses(ask("changing.fault.example")) != addresses(ask("changing.fault.example"))


def test_silent_slow_and_garbage() -> None:
    """A silent name never answers, a slow one does after a second, and garbage is no message."""
    with pytest.raises(dns.exception.Timeout):
        ask("silent.fault.example", timeout=0.3)
    start = time.monotonic()
    assert addresses(ask("slow.fault.example", timeout=5)) == ["203.0.113.20"]
    assert time.monotonic() - start >= 1
    with pytest.raises(dns.exception.DNSException):
        ask("garbage.fault.example")


def test_podman_is_what_it_is_for_users() -> None:
    """Podman runs on cgroups v2 with the kernel's own overlay, and crun starts the containers."""
    form = "{{.Host.CgroupsVersion}} {{.Store.GraphDriverName}} {{.Host.OCIRuntime.Name}} {{.Host.Security.Rootless}}"
    words = run(["podman", "info", "--format", form]).out.split()
    assert words == ["v2", "overlay", "crun", "true" if os.getuid() else "false"]
    status = run(["podman", "info", "--format", '{{index .Store.GraphStatus "Native Overlay Diff"}}']).out.strip()
    assert status == "true"


def test_everything_a_card_asks_of_podman_works() -> None:
    """keep-id, pasta, init, a read-only root, a passed descriptor and a hook directory work together."""
    hooks = Path.home() / "hooks"
    hooks.mkdir(exist_ok=True)
    program = '{"path": "/bin/sh", "args": ["sh", "-c", "id -u > /tmp/hook-ran"]}'
    hook = f'{{"version": "1.0.0", "hook": {program}, "when": {{"always": true}}, "stages": ["createRuntime"]}}'
    (hooks / "hook.json").write_text(hook)
    argv = ["podman", f"--hooks-dir={hooks}", "run", "--rm", "--pull=never", f"--network={NETWORK}"]
    argv += ["--userns=keep-id"] if os.getuid() else []
    argv += ["--init", "--read-only", "--preserve-fds=1", "--cap-drop=all", "--security-opt=no-new-privileges", BUSYBOX]
    script = "id -u >&3; ls /sys/class/net >&3; touch /x 2>&3; exit 0"
    done = run(["sh", "-c", 'exec "$@" 3>&1 >/dev/null', "sh", *argv, "sh", "-c", script])
    assert done.status == 0, done.err
    assert sorted(done.out.split()[:3]) == sorted([str(os.getuid()), INTERFACE, "lo"])
    assert "Read-only file system" in done.out
    assert Path("/tmp/hook-ran").read_text() == "0\n"


def test_busybox_image_has_no_python() -> None:
    """The busybox image has a shell and no interpreter of any other kind, nor a libc."""
    done = container("ls / /bin | grep -E 'python|perl|^lib'; exit 0", image=BUSYBOX)
    assert (done.status, done.out) == (0, "")


def test_plain_container_starts_at_once() -> None:
    """The layers for keep-id are there: such a container copies no image (that would take a second or more)."""
    plain("true", network=NETWORK)
    start = time.monotonic()
    assert plain("true", network=NETWORK).status == 0
    assert time.monotonic() - start < 1
