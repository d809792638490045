"""The bench's root: `card-run` refuses to run as it, and `card egress` walls in a uid on the bench's own side."""

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench import inside
from tests.bench.cards import IMAGE, Attempt, Run, card, run

UID = 1000
ATTEMPTS: list[Attempt] = [
    ["tcp", "203.0.113.10", 443],
    ["tcp", "2001:db8:1::10", 443],
    ["tcp", "203.0.113.10", 8443],
    ["tcp", "198.51.100.66", 443],
    ["tcp", "169.254.169.254", 80],
    ["udp", "203.0.113.10", 443, "00"],
]
OPEN = ["ok"] * 5 + ["reply"]


def test_root_is_refused(tmp_path: Path) -> None:
    """Nothing runs, nothing is built for it, and the reason names the remedy."""
    done = card("--", "echo", "ran", env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)})
    assert os.listdir(tmp_path) == []
    assert (done.status, done.out, done.reasons) == (125, "", ["not-rootless"])
    assert "as an ordinary user" in done.err


def tried_as(uid: int) -> list[str]:
    """Return what each attempt comes to for a user of the bench."""
    words = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    done = subprocess.run(
        [*words, "python3", "-c", inside.PROGRAM, json.dumps(ATTEMPTS)], check=True, capture_output=True, text=True
    )
    return [result for result, _ in json.loads(done.stdout)]


def egress(*words: str) -> Run:
    """Run a verb of `card egress`."""
    return run(["card", "egress", *words])


@pytest.fixture
def applied() -> Iterator[None]:
    """Wall in the uid, and take the wall away afterwards."""
    done = egress("apply", "--run", "ci1", "--uid", str(UID))
    assert done.status == 0, done.err
    yield
    assert egress("remove", "ci1").status == 0
    assert tried_as(UID) == OPEN


@pytest.mark.usefixtures("applied")
def test_a_uid_is_walled_in_and_nobody_else() -> None:
    """The uid reaches its pins alone; another uid, and root, reach everything, as the uid did before."""
    assert tried_as(UID) == ["ok", "ok", "ECONNREFUSED", "ECONNREFUSED", "ECONNREFUSED", "EPERM"]
    assert tried_as(UID + 1) == OPEN


@pytest.mark.usefixtures("applied")
def test_list_and_audit() -> None:
    """The run is listed with its counters; its audit is clean, and is not once the table was touched."""
    tried_as(UID)
    row = json.loads(egress("list", "--json").out)
    assert (row["run"], row["selector"], row["state"]) == ("ci1", f"uid={UID}", "in force")
    assert {(entry["address"], entry["port"]) for entry in row["denied"]} >= {("203.0.113.10", 8443)}
    assert egress("audit", "ci1").status == 0
    subprocess.run(["nft", "flush", "chain", "inet", "nova_egress_ci1", "output"], check=True)
    touched = egress("audit", "ci1")
    assert touched.status == 1
    assert "EGRESS DIFFERS no-default-deny " in touched.err
    assert touched.reasons == []
    assert egress("apply", "--run", "ci1", "--uid", str(UID)).status == 0
    assert egress("audit", "ci1").status == 0


@pytest.mark.usefixtures("applied")
def test_apply_replaces_only_its_own_table() -> None:
    """Another run's table, and a foreign one, are as they were."""
    subprocess.run(["nft", "add", "table", "inet", "foreign"], check=True)
    assert egress("apply", "--run", "ci2", "--uid", str(UID + 1)).status == 0
    assert egress("apply", "--run", "ci1", "--uid", str(UID)).status == 0
    tables = subprocess.run(["nft", "list", "tables"], check=True, capture_output=True, text=True).stdout.split("\n")
    assert {"table inet foreign", "table inet nova_egress_ci1", "table inet nova_egress_ci2"} <= set(tables)
    assert egress("remove", "ci2").status == 0
    subprocess.run(["nft", "delete", "table", "inet", "foreign"], check=True)


def test_remove_is_idempotent() -> None:
    """Removing what is not there is no failure."""
    assert egress("remove", "nobody").status == 0
    assert egress("remove", "nobody").status == 0


@pytest.mark.parametrize(
    ("words", "reasons"),
    [
        (["--run", "x"], ["no-selector"]),
        (["--run", "x", "--uid", "5", "--veth", "v0"], ["no-selector"]),
        (["--run", "X!", "--uid", "5", "--allow-host", "nobody.example"], ["bad-run-id", "unknown-name"]),
        (["--run", "x", "--uid", "0"], ["bad-selector"]),
    ],
)
def test_refusals(words: list[str], reasons: list[str]) -> None:
    """Without one selector the bench itself would be walled in; nothing is applied."""
    before = subprocess.run(["nft", "list", "tables"], check=True, capture_output=True).stdout
    done = egress("apply", *words)
    assert done.status == 2
    assert set(done.reasons) >= set(reasons)
    assert subprocess.run(["nft", "list", "tables"], check=True, capture_output=True).stdout == before


def test_plan_is_what_apply_loads() -> None:
    """The text is the one renderer's, with the uid as its selector in every rule."""
    done = egress("plan", "--run", "ci1", "--uid", str(UID), "--dns", "192.0.2.1")
    assert done.status == 0
    rules = [line for line in done.out.splitlines() if line.strip().endswith(("accept", "drop"))]
    assert rules
    assert all(f"meta skuid {UID}" in line for line in rules)


@pytest.fixture
def bridged() -> Iterator[str]:
    """Run a plain rootful container on podman's bridge; return its id."""
    words = ["podman", "run", "--detach", "--rm", "--pull=never", "--network=podman", IMAGE, "sleep", "600"]
    container = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    yield container
    subprocess.run(["podman", "rm", "--force", "--time=0", container], check=True, capture_output=True)


def tried_in(container: str) -> list[str]:
    """Return what each IPv4 attempt comes to in a container: `podman exec`, past every hook."""
    attempts = [attempt for attempt in ATTEMPTS if ":" not in attempt[1]]
    words = ["podman", "exec", container, "python3", "-c", inside.PROGRAM, json.dumps(attempts)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return [result for result, _ in json.loads(done.stdout)]


def test_a_rootful_containers_veth_is_walled_in(bridged: str) -> None:
    """Netdev ingress on the bench's end of a bridged veth: the pin is open, all else is stopped, and not without it."""
    assert tried_in(bridged) == ["ok", "ok", "ok", "ok", "reply"]
    words = ["podman", "exec", bridged, "cat", "/sys/class/net/eth0/iflink"]
    index = int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    applied = egress("apply", "--run", "br1", "--netdev", socket.if_indextoname(index))
    assert applied.status == 0, applied.err
    try:
        opened, *closed = tried_in(bridged)
        assert opened == "ok"
        assert not {"ok", "reply"} & set(closed)
        assert egress("audit", "br1").status == 0
    finally:
        assert egress("remove", "br1").status == 0
    assert tried_in(bridged) == ["ok", "ok", "ok", "ok", "reply"]
