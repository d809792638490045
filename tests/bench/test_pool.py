"""Warm cards: the same walls, its own pins, one taker, and nothing left, whoever dies when."""

import json
import os
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.bench import inside
from tests.bench.cards import BUSYBOX, Attempt, attempts_in_plain, run
from tests.bench.pools import asked, cold, environment, full, pool, taken
from tests.bench.test_walls import CARD_DNS, DENIED, DENIED_TCP, MODEL, PINS, question

DEAD_RESOLVER = "192.0.2.254"


# One taken card.


@pytest.mark.usefixtures("nothing_new")
def test_a_run_takes_a_warm_card(receipt: Path) -> None:
    """Its output, its status, all that a full level wants, and the run id that the card had; then there is another."""
    with pool() as found:
        done = taken("--", "sh", "-c", "echo out; echo err >&2; exit 3", receipt=receipt)
        assert (done.status, done.out) == (3, "out\n")
        assert "err\n" in done.err
        assert done.receipt["run"] == found["ready"][0]
        assert done.receipt["level"] == "full"
        assert done.receipt["exit_status"] == 3
        assert "SANDBOX OK run=" + done.receipt["run"] in done.err
        assert full()["ready"] != found["ready"]


@pytest.mark.parametrize(
    ("worker", "expected"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 124"], 124),
        (["sh", "-c", "exit 126"], 126),
        (["sh", "-c", "kill -9 $$"], 137),
        (["/nonexistent"], 127),
        (["/etc/passwd"], 126),
    ],
)
def test_statuses(worker: list[str], expected: int, receipt: Path) -> None:
    """The worker's own, a signal's, and those of a worker that cannot be had."""
    with pool():
        assert taken("--", *worker, receipt=receipt).status == expected


def test_every_byte_passes(receipt: Path) -> None:
    """A megabyte each way, as it was, and the end of the input is heard."""
    data = os.urandom(1 << 20)
    with pool():
        full()
        done = subprocess.run(
            ["card-run", "-qi", f"--json={receipt}", "--", "sh", "-c", "cat; echo -n end >&2"],
            input=data,
            capture_output=True,
            timeout=60,
            check=False,
        )
    assert json.loads(receipt.read_text())["start"]["kind"] == "warm"
    assert done.stdout == data
    assert done.stderr == b"end"


def test_without_i_there_is_no_input(receipt: Path) -> None:
    """What is on card-run's own input stays there."""
    with pool():
        full()
        done = run(
            ["card-run", "-q", f"--json={receipt}", "--", "sh", "-c", "cat; readlink /proc/self/fd/0"], input="in"
        )
    assert json.loads(receipt.read_text())["start"]["kind"] == "warm"
    assert done.out == "/dev/null\n"


def test_events(receipt: Path) -> None:
    """Who embeds card-run hears the same, in the same order, and the end of it with the end of card-run."""
    ours, theirs = socket.socketpair()
    with pool(), ours:
        with theirs:
            fd = theirs.fileno()
            done = taken(f"--events={fd}", "--", "sh", "-c", "echo err >&2", receipt=receipt, pass_fds=[fd])
        heard = [json.loads(line) for line in ours.makefile()]
    assert done.err == "err\n"
    assert [one["event"] for one in heard if one["event"] != "note"] == ["listening", "started", "ended"]
    assert heard[-1]["receipt"]["start"]["kind"] == "warm"


def test_streams_that_do_not_wait(receipt: Path) -> None:
    """A caller's pipe that is full and does not block loses nothing."""
    with pool():
        full()
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        words = ["card-run", "-q", f"--json={receipt}", "--", "sh", "-c", "yes | head -c 300000"]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=writer)
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            assert len(file.read()) == 300000
        assert process.wait(timeout=20) == 0
    assert json.loads(receipt.read_text())["start"]["kind"] == "warm"


# The walls, from inside.


@pytest.fixture(scope="module")
def control() -> dict[str, str]:
    """Return what each denied attempt comes to without the wall."""
    return {name: result for name, (result, _) in zip(DENIED, attempts_in_plain(list(DENIED.values())), strict=True)}


def attempts(many: list[Attempt], *options: str, receipt: Path) -> list[str]:
    """Return what each attempt comes to in a warm card."""
    done = taken("-q", *options, "--", "python3", "-c", inside.PROGRAM, json.dumps(many), receipt=receipt)
    assert done.status == 0, done.err
    return [result for result, _ in json.loads(done.out)]


@pytest.mark.parametrize("user", ["keep-id", "root"])
def test_the_egress_wall(user: str, control: dict[str, str], receipt: Path) -> None:
    """Every pin of the run is open, and every kind of denial is met, which each would have worked without the wall."""
    with pool("--user", user):
        wanted = [*(["tcp", address, 443] for address in PINS), *DENIED.values()]
        found = attempts(wanted, "--user", user, "--model-host", MODEL, receipt=receipt)
    assert found[: len(PINS)] == ["ok"] * len(PINS)
    for name, result in zip(DENIED, found[len(PINS) :], strict=True):
        assert control[name] == ("ok" if name in DENIED_TCP else "reply")
        assert result == ("ECONNREFUSED" if name in DENIED_TCP else "EPERM"), name


def test_each_taker_has_its_own_pins(receipt: Path) -> None:
    """What one run may reach and ask, the next may not, from the same pool; and back again."""
    address = next(one for one in PINS if one.startswith("203.0.113.20"))
    many: list[Attempt] = [["tcp", address, 443], ["udp", CARD_DNS, 53, question(MODEL)]]
    with pool():
        with_it, without, again = (
            attempts(many, *options, receipt=receipt)
            for options in (("--model-host", MODEL), (), ("--model-host", MODEL))
        )
    assert with_it == again == ["ok", "reply"]
    assert without == ["ECONNREFUSED", "EPERM"]


def test_the_ledger_is_the_runs_own(receipt: Path) -> None:
    """What was denied is told once, without the two self-tests that the card has gone through."""
    attempt = "import socket\ntry: socket.create_connection(('198.51.100.66', 8080), 1)\nexcept OSError: pass"
    with pool():
        done = taken("--", "python3", "-c", attempt, receipt=receipt)
        quiet = taken("--", "true", receipt=receipt)
    denied = [(row["address"], row["port"], row["packets"]) for row in done.receipt["ledger"]["denied"]]
    assert denied == [("198.51.100.66", 8080, 1)]
    assert "198.51.100.66" in done.err
    assert quiet.receipt["ledger"]["denied"] == []


def test_files_and_calls(tmp_path: Path, receipt: Path) -> None:
    """What is named can be used as it was named, nothing else can, and the filter holds; tmpfs is fresh each time."""
    work, data = tmp_path / "work", tmp_path / "data"
    work.mkdir()
    data.mkdir()
    (data / "seen").write_text("seen\n")
    script = f"""
        cat {data}/seen; touch {work}/made {data}/made; cat /run/card/proof /run/card/taken
        ls /var/tmp; touch /var/tmp/mine; unshare -U true; pwd; grep Seccomp_filters /proc/self/status
    """
    options = ("--write", str(work), "--read", str(data))
    with pool(*options):
        for _ in range(2):
            done = taken("-q", *options, "--", "sh", "-c", script, receipt=receipt)
            assert done.out.split() == ["seen", str(work), "Seccomp_filters:", "2"]
            assert [line.rpartition(": ")[2] for line in done.err.splitlines()] == [
                "Read-only file system", "Permission denied", "Permission denied", "Operation not permitted",
            ]  # fmt: skip
    assert (work / "made").exists()


def test_hosts_and_resolv_conf(receipt: Path) -> None:
    """They are the run's own, not those of the card that waited."""
    with pool():
        done = taken("-q", "--model-host", MODEL, "--", "cat", "/etc/hosts", "/etc/resolv.conf", receipt=receipt)
    assert f"203.0.113.20 {MODEL}\n" in done.out
    assert f"nameserver {CARD_DNS}\n" in done.out


def test_environment_and_directory(tmp_path: Path, receipt: Path) -> None:
    """Nothing of the pool's own environment reaches a worker; the taker's variables and directory do."""
    with pool("--read", str(tmp_path), env=environment(OF_THE_POOL="x", LD_LIBRARY_PATH="/nonexistent")):
        words = ("-q", "--read", str(tmp_path), "--cwd", str(tmp_path), "--env", "ASKED", "--", "sh", "-c", "pwd; env")
        done = taken(*words, receipt=receipt, env=environment(ASKED="for", OTHER="not"))
        control_ = asked("--run=cold", *words, receipt=receipt, env=environment(ASKED="for", OTHER="not"))
    assert cold(control_) == "no warm card can have --run"
    assert sorted(done.out.splitlines()) == sorted(control_.out.splitlines())
    assert "ASKED=for" in done.out


# What a pool serves and what not.


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--run=named",), "no warm card can have --run"),
        (("--read=/usr",), "the pool's card differs: --mount, roots"),
        (("--tmp-size=1m",), "the pool's card differs: --mount"),
        (("--net=none",), "the pool's card differs: --network, nameservers, routes"),
        (("--dns=none",), "the pool's card differs: --network, nameservers"),
        (("--user=root",), "the pool's card differs: --passwd-entry, --user, --userns"),
        ((f"--image={BUSYBOX}",), "the pool's card differs: image"),
    ],
)
def test_another_card_starts_cold(options: tuple[str, ...], reason: str, receipt: Path) -> None:
    """What differs from the pool's card is told by name, and the run is as good."""
    with pool():
        done = asked(*options, "--", "echo", "ran", receipt=receipt)
    assert (done.status, done.out) == (0, "ran\n"), done.err
    assert cold(done).startswith(reason)


def test_no_pool(receipt: Path) -> None:
    """Without a pool the receipt says that none was asked."""
    assert cold(asked("--", "true", receipt=receipt)) == "no pool was asked"


@pytest.mark.usefixtures("nothing_new")
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("-t",), "pool-unfit"),
        (("--run=x",), "pool-unfit"),
        (("--net=bridge",), "pool-unfit"),
        (("--image=localhost/card-run/nonexistent:latest",), "image-missing"),
        (("--read=relative",), "relative-path"),
        (("--no-such-option",), "bad-command-line"),
    ],
)
def test_a_pool_that_cannot_be(options: tuple[str, ...], reason: str) -> None:
    """It is refused when it is started, with the reason that card-run would have, and is not there afterwards."""
    done = run(["card", "pool", "start", *options])
    assert done.status == 2
    assert done.reasons == [reason], done.err
    assert run(["card", "pool", "status"]).status == 1


@pytest.mark.usefixtures("nothing_new")
def test_one_pool_and_its_end() -> None:
    """A second one is refused; the end of the first ends its cards; without one, `stop` says so."""
    with pool(size=2):
        assert run(["card", "pool", "start"]).reasons == ["pool-exists"]
        states = [line.split()[2] for line in run(["card", "ps"]).out.splitlines()[1:]]
        assert states == ["warm", "warm"]
        assert run(["card", "pool", "stop"]).status == 0
        assert run(["card", "pool", "stop"]).status == 1


@pytest.mark.usefixtures("nothing_new")
def test_many_takers(tmp_path: Path) -> None:
    """Six at once at a pool of two: two have a warm card each, nobody has another's, and every status is right."""
    with pool(size=2) as found:
        with ThreadPoolExecutor(6) as threads:
            many = [
                threads.submit(asked, "--", "sh", "-c", f"echo {n}; exit {n}", receipt=tmp_path / f"{n}")
                for n in range(6)
            ]
            runs = [one.result() for one in many]
        assert [(one.status, one.out) for one in runs] == [(n, f"{n}\n") for n in range(6)]
        warm = [one.receipt["run"] for one in runs if one.receipt["start"]["kind"] == "warm"]
        assert sorted(warm) == sorted(found["ready"])
        assert len({one.receipt["run"] for one in runs}) == 6
