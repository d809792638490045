"""The poststop hook as a program: the ledger is kept, the namespace is let go, and nothing missing makes it fail."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oci.probes import PROBE_ADDRESSES4, PROBE_ADDRESSES6, PROBE_PORT
from tests.kernel.created import HOOKS, Container, created, in_own_mounts
from tests.kernel.wire import GITHUB4, OTHER4

SEND = """
import socket, sys
for item in sys.argv[1:]:
    address, kind, port = item.split(",")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
    sock.settimeout(1)
    try:
        if kind == "tcp":
            sock.setblocking(False)
            sock.connect((address, int(port)))
        else:
            sock.sendto(b"12345678", (address, int(port)))
    except OSError as failure:
        print(failure.errno)
"""


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    """Yield a created container whose prestart hook has run, with a link to send on."""
    with created(tmp_path) as made:
        enter = ("nsenter", f"--net=/proc/{made.process.pid}/ns/net")
        for command in (
            ("ip", "link", "add", "card0", "type", "veth", "peer", "name", "world0"),
            ("ip", "link", "set", "card0", "up"),
            ("ip", "link", "set", "world0", "up"),
            ("ip", "addr", "add", "10.99.0.2/24", "dev", "card0"),
            ("ip", "addr", "add", "fd99::2/64", "dev", "card0", "nodad"),
            ("ip", "route", "add", "default", "via", "10.99.0.1"),
            ("ip", "-6", "route", "add", "default", "via", "fd99::1"),
        ):
            subprocess.run((*enter, *command), check=True)
        assert made.prestart().status == 0
        yield made


def send(container: Container, *packets: str) -> None:
    """Send packets (`address,tcp|udp,port`) from the container's namespace."""
    enter = ("nsenter", f"--net=/proc/{container.process.pid}/ns/net")
    subprocess.run((*enter, HOOKS[0], "-c", SEND, *packets), check=True, stdout=subprocess.DEVNULL)


def ledger(container: Container) -> "dict[str, Any]":
    """Return the ledger that the hook wrote."""
    found: dict[str, Any] = json.loads((container.run / "ledger.json").read_text())
    return found


def gone(container: Container) -> bool:
    """Whether neither a pin nor a mount is left."""
    return not container.pin.exists() and not container.pinned


def test_the_ledger_is_kept_and_the_namespace_let_go(container: Container) -> None:
    """What was denied and used is in ledger.json, without the self-test's own packets; the pin is gone."""
    probes = [f"{address},udp,{PROBE_PORT}" for address in (*PROBE_ADDRESSES4, *PROBE_ADDRESSES6)]
    send(container, *probes, f"{OTHER4},tcp,443", f"{OTHER4},udp,53", f"{OTHER4},udp,53", f"{GITHUB4},tcp,443")
    container.end()
    assert container.pinned
    assert container.poststop().status == 0
    assert gone(container)
    found = ledger(container)
    denied = {(entry["address"], entry["protocol"], entry["port"]): entry["packets"] for entry in found["denied"]}
    assert denied == {(OTHER4, "udp", 53): 2, (OTHER4, "tcp", 443): 1}
    assert [(entry["address"], entry["name"]) for entry in found["used"]] == [(GITHUB4, "github.com")]
    assert found["other"] == 0
    assert found["full"] is False


def test_a_probe_address_is_the_workers_when_it_asks_twice(container: Container) -> None:
    """Only the self-test's one packet is taken off: what the worker sent to a probe address shows."""
    probe = f"{PROBE_ADDRESSES4[0]},udp,{PROBE_PORT}"
    send(container, probe, probe, probe)
    assert container.poststop().status == 0
    assert [(entry["address"], entry["packets"], entry["bytes"]) for entry in ledger(container)["denied"]] == [
        (PROBE_ADDRESSES4[0], 2, 72)
    ]


def test_twice_is_once(container: Container) -> None:
    """A second poststop finds nothing to do, succeeds, and leaves the first one's ledger."""
    assert container.poststop().status == 0
    before = (container.run / "ledger.json").read_bytes()
    assert container.poststop().status == 0
    assert (container.run / "ledger.json").read_bytes() == before


def test_without_prestart_there_is_nothing_to_do(tmp_path: Path) -> None:
    """A run whose prestart failed, or never ran, has no pin: poststop succeeds and writes no ledger."""
    with created(tmp_path) as container:
        assert container.poststop().status == 0
        assert not (container.run / "ledger.json").exists()


def test_a_pin_that_lost_its_mount_is_removed(container: Container) -> None:
    """After a reboot the pin is a plain file: it is removed, and no ledger is made up."""
    subprocess.run(("umount", str(container.pin)), check=True)
    assert container.poststop().status == 0
    assert gone(container)
    assert not (container.run / "ledger.json").exists()


def test_a_pin_that_is_another_thing_is_not_entered(container: Container) -> None:
    """A link in the pin's place is not followed, and is removed."""
    subprocess.run(("umount", str(container.pin)), check=True)
    container.pin.unlink()
    container.pin.symlink_to("/proc/1/ns/net")
    assert container.poststop().status == 0
    assert gone(container)
    assert not (container.run / "ledger.json").exists()


def test_a_run_directory_that_is_gone_is_cleaned_up_already(container: Container) -> None:
    """Without a run directory there is nothing to undo: success."""
    state = container.stopped()
    subprocess.run(("umount", str(container.pin)), check=True)
    container.run.rename(container.base / "away")
    assert container.poststop(state).status == 0


def test_a_run_directory_that_is_not_ours_is_a_failure(container: Container) -> None:
    """A run directory that is there and cannot be trusted is told as a failure, and nothing in it is touched."""
    container.run.chmod(0o755)
    assert container.poststop().status == 1
    assert container.pinned


def test_a_table_that_is_gone_leaves_no_ledger(container: Container) -> None:
    """When the table cannot be read the pin is undone all the same, and no ledger is made up."""
    container.nft("flush", "ruleset")
    outcome = container.poststop()
    assert outcome.status == 0
    assert "nft-list" in outcome.errors
    assert gone(container)
    assert not (container.run / "ledger.json").exists()


def test_without_nft_the_namespace_is_let_go(container: Container) -> None:
    """A bench that lost nft is left without a pin: the failure costs the ledger alone."""
    outcome = container.poststop(wrapper=in_own_mounts("mount --bind /dev/null /usr/sbin/nft"))
    assert outcome.status == 0
    assert "nft-missing" in outcome.errors
    assert gone(container)


@pytest.mark.parametrize("state", [b"", b"{", b"[]", b'{"id":"x"}'])
def test_a_malformed_state_is_not_a_run(container: Container, state: bytes) -> None:
    """What is not a state is told as a failure, which podman only warns of; nothing is undone."""
    assert container.poststop(state).status == 1
    assert container.pinned


def test_another_containers_state_is_not_a_run(container: Container) -> None:
    """A container without our annotations is none of ours: nothing is undone."""
    assert container.poststop(container.stopped() | {"annotations": {}}).status == 1
    assert container.pinned


def test_the_mount_table_is_as_before(tmp_path: Path) -> None:
    """Prestart and poststop together leave every mount as it was."""
    before = Path("/proc/self/mountinfo").read_text()
    with created(tmp_path) as container:
        assert container.prestart().status == 0
        assert container.poststop().status == 0
        assert Path("/proc/self/mountinfo").read_text() == before
    assert os.listdir(tmp_path / "t1" / "card") == ["proof"]
