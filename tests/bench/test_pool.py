"""Warm cards: the same walls, its own pins, one taker, and nothing left, whoever dies when."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.bench import inside
from tests.bench.cards import BUSYBOX, IMAGE, Attempt, attempts_in_plain, card, run
from tests.bench.lives import RUNS, inventory, settled, until
from tests.bench.pools import FOLDER, asked, attendants, cold, environment, full, pool, status, taken
from tests.bench.test_walls import CARD_DNS, DENIED, DENIED_TCP, MODEL, PINS, question

DEAD_RESOLVER = "192.0.2.254"


@pytest.fixture(scope="module", autouse=True)
def _used_to() -> None:
    """Run a card first: podman's pause process, the runtime, and this boot's first cleaning."""
    assert card("--", "true").status == 0


@pytest.fixture
def receipt(tmp_path: Path) -> Path:
    """Return where a receipt may be."""
    return tmp_path / "receipt.json"


@pytest.fixture
def nothing_new() -> Iterator[None]:
    """Compare everything that a card could leave with what there was, and the pool's own place."""
    before = inventory()
    yield
    assert settled(before, seconds=10) == {}
    assert not FOLDER.exists()


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
        (("--net=none",), "the pool's card differs: --network, routes"),
        (("--dns=none",), "the pool's card differs: --network"),
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


# Time passes.


def test_names_are_resolved_when_a_card_is_taken() -> None:
    """A pool whose resolver is dead has cards, which resolve nothing; a run that takes one is refused its names."""
    dead = ("--resolver", DEAD_RESOLVER)
    with pool(*dead):
        done = card(*dead, "--resolve-timeout", "0.2", "--", "echo", "ran")
        assert status()["given"] == 1
    assert (done.status, done.out) == (125, "")
    assert set(done.reasons) == {"name-unresolved"}


def test_the_policy_file_is_read_when_a_card_is_taken(tmp_path: Path, receipt: Path) -> None:
    """A name that was added meanwhile can be asked for, and one that was removed is refused."""
    policy = tmp_path / "egress.txt"
    base = "github.com\napi.github.com\nobjects.githubusercontent.com\n"
    policy.write_text(base)
    words = ("--egress", str(policy), "--model-host", MODEL, "--", "getent", "hosts", MODEL)
    with pool("--egress", str(policy)):
        assert card(*words).reasons == ["unknown-name"]
        policy.write_text(f"{base}{MODEL}\n")
        assert MODEL in taken(*words, receipt=receipt).out
        policy.write_text(base)
        assert card(*words).reasons == ["unknown-name"]


@pytest.mark.usefixtures("nothing_new")
def test_a_root_that_was_swapped(tmp_path: Path, receipt: Path) -> None:
    """The worker sees what has the name now, never what had it before; the pool's cards are made anew."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "file").write_text("old")
    words = ("-q", "--write", str(work), "--", "cat", "file")
    with pool("--write", str(work)) as found:
        work.rename(tmp_path / "away")
        work.mkdir()
        (work / "file").write_text("new")
        done = asked(*words, receipt=receipt)
        assert (done.out, cold(done)) == ("new", "the pool's card differs: roots")
        until(lambda: (now := status())["ready"] and now["ready"] != found["ready"])
        assert taken(*words, receipt=receipt).out == "new"


def test_a_checkout_that_appeared(tmp_path: Path, receipt: Path) -> None:
    """What is protected in a writable root is decided when the card is taken: a checkout made meanwhile starts cold."""
    with pool("--write", str(tmp_path)):
        subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
        done = asked("-q", "--write", str(tmp_path), "--", "sh", "-c", "echo x >> .git/config", receipt=receipt)
    assert cold(done).startswith("the pool's card differs: --mount")
    assert done.status != 0


def test_an_image_that_changed(receipt: Path) -> None:
    """A name that means another image now is another card: the run starts cold, and the pool's next cards are of it."""
    name = "localhost/card-run/pooled:latest"
    try:
        run(["podman", "tag", IMAGE, name])
        with pool(f"--image={name}"):
            assert taken(f"--image={name}", "--", "python3", "-c", "", receipt=receipt).status == 0
            full()
            run(["podman", "tag", BUSYBOX, name])
            done = asked(f"--image={name}", "--", "python3", "-c", "", receipt=receipt)
            assert cold(done).startswith("the bench changed: ")
            assert done.status == 127
            assert taken(f"--image={name}", "--", "python3", "-c", "", receipt=receipt).status == 127
    finally:
        run(["podman", "untag", name])


def test_cards_that_cannot_be_made_any_more(tmp_path: Path) -> None:
    """The pool says why and how long it waits, runs start cold, and it recovers by itself."""
    root = tmp_path / "root"
    root.mkdir()
    with pool("--read", str(root)):
        root.rename(tmp_path / "away")
        assert card("--", "true").status == 0  # another card: the pool looks at its own
        until(lambda: status()["refusals"])
        found = status()
        assert [one["reason"] for one in found["refusals"]] == ["path-missing"]
        assert found["failures"] >= 1
        assert found["ready"] == []
        assert "path-missing" in run(["card", "pool", "status"]).err
        (tmp_path / "away").rename(root)
        assert full()["refusals"] == []


# Whoever dies.


def running(*options: str, receipt: Path) -> "subprocess.Popen[str]":
    """Start a warm card whose worker says that it runs, and then waits."""
    full()
    words = ["card-run", "-q", f"--json={receipt}", *options, "--", "sh", "-c", "echo up; exec sleep 60"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


@pytest.mark.usefixtures("nothing_new")
def test_card_run_killed(receipt: Path) -> None:
    """The kernel ends the worker with the card-run that took its card, and the attendant clears away."""
    with pool():
        process = running(receipt=receipt)
        process.kill()
        process.communicate()
        until(lambda: not run(["pgrep", "-x", "sleep"]).out, seconds=3)
        full()


@pytest.mark.usefixtures("nothing_new")
def test_card_run_killed_with_everybody_else_stopped(receipt: Path) -> None:
    """The worker ends though the pool and every attendant cannot act: the kernel acts."""
    with pool() as found:
        process = running(receipt=receipt)
        full()
        others = [found["pid"], *attendants(found["pid"])]
        for pid in others:
            os.kill(pid, signal.SIGSTOP)
        process.kill()
        process.communicate()
        try:
            until(lambda: not run(["pgrep", "-x", "sleep"]).out, seconds=3)
        finally:
            for pid in others:
                os.kill(pid, signal.SIGCONT)


@pytest.mark.usefixtures("nothing_new")
def test_card_run_killed_between_take_and_release() -> None:
    """A card that was taken and not released is ended, and never given to anybody else."""
    dead = ["--resolver", DEAD_RESOLVER]
    with pool(*dead) as found:
        words = ["card-run", *dead, "--resolve-timeout", "5", "--", "echo", "ran"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        until(lambda: not (RUNS / found["ready"][0] / "warm").exists())
        process.kill()
        assert process.communicate()[0] == ""
        assert full()["ready"] != found["ready"]
        until(lambda: not (RUNS / found["ready"][0]).exists(), seconds=20)


@pytest.mark.usefixtures("nothing_new")
def test_the_pool_killed(receipt: Path) -> None:
    """Its cards end by themselves, runs start cold, a run that goes on is not touched, a new pool can be started."""
    with pool(size=2) as found:
        process = running(receipt=receipt)
        full()
        os.kill(found["pid"], signal.SIGKILL)
        until(lambda: len(list(RUNS.iterdir())) == 1, seconds=10)
        assert cold(asked("--", "true", receipt=receipt.with_name("other"))).startswith("the pool does not answer")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 143
        assert json.loads(receipt.read_text())["start"]["kind"] == "warm"
        with pool():
            assert taken("--", "true", receipt=receipt).status == 0


@pytest.mark.usefixtures("nothing_new")
def test_an_attendant_killed(receipt: Path) -> None:
    """Before its card is taken: the pool makes another. While the worker runs: the card is ended, and that is told."""
    with pool() as found:
        os.kill(attendants(found["pid"])[0], signal.SIGKILL)
        until(lambda: status()["ready"] not in ([], found["ready"]))
        process = running(receipt=receipt)
        record = json.loads(
            next(one for one in RUNS.iterdir() if (one / "released").exists()).joinpath("record.json").read_text()
        )
        os.kill(record["launcher"]["pid"], signal.SIGKILL)
        _, err = process.communicate(timeout=20)
        assert process.returncode == 125
        assert "is gone: the card was ended" in err
        until(lambda: not run(["pgrep", "-x", "sleep"]).out, seconds=5)


@pytest.mark.usefixtures("nothing_new")
def test_a_warm_container_killed() -> None:
    """A card whose container somebody removes is replaced; it is not handed out."""
    with pool() as found:
        run(["podman", "rm", "--force", "--time=0", f"card-{found['ready'][0]}"])
        until(lambda: status()["ready"] not in ([], found["ready"]))


@pytest.mark.usefixtures("nothing_new")
def test_a_taken_card_outlives_its_pool(receipt: Path) -> None:
    """`card pool stop` ends what nobody took; the run that took a card goes on to its own end."""
    with pool():
        process = running(receipt=receipt)
        assert run(["card", "pool", "stop"]).status == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 143
        process.communicate()


def test_signals_and_time(receipt: Path) -> None:
    """A worker that traps TERM has its own status; --timeout is 124; a signal that ends the worker says which."""
    trap = "trap 'exit 7' TERM; echo up; while :; do sleep 0.1; done"
    with pool():
        full()
        words = ["card-run", "-q", "--", "sh", "-c", trap]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 7
        process.communicate()
        assert taken("--timeout", "0.5", "--", "sleep", "60", receipt=receipt).status == 124
        process = running(receipt=receipt)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 130
        process.communicate()


def test_output_that_nobody_reads(receipt: Path) -> None:
    """A reader that goes away ends the worker by SIGPIPE, as in any pipe."""
    with pool():
        full()
        words = f"card-run -q --json={receipt} -- sh -c 'yes; echo $? >&2' | head -1"
        done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, timeout=30, check=True)
    assert (done.stdout, done.stderr) == ("y\n", "141\n")
    assert json.loads(receipt.read_text())["start"]["kind"] == "warm"


def test_card_exec_enters_a_warm_card(receipt: Path) -> None:
    """What comes into a taken card later comes behind the same walls, by the run's own plan."""
    with pool():
        process = running(receipt=receipt)
        name = next(one for one in RUNS.iterdir() if (one / "released").exists()).name
        done = run(
            [
                "card",
                "exec",
                name,
                "--",
                "python3",
                "-c",
                inside.PROGRAM,
                json.dumps([["tcp", PINS[0], 443], DENIED["metadata"]]),
            ]
        )
        assert [result for result, _ in json.loads(done.out)] == ["ok", "ECONNREFUSED"], done.err
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
