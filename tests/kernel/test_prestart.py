"""The prestart hook as a program: the wall stands and is vouched for, or nothing of it is and the reason is written."""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hooks import audit, netns, ruleset, rundir
from hooks.plan import sha256
from oci import annotations
from oci.refusal import Refused
from tests.kernel.created import HOOKS, LAUNCH, NONCE, RUN, Container, created, hook, in_own_mounts
from tests.kernel.wire import egress

PHASES = {"wait", "plan", "bundle", "audit", "enter", "load", "list", "audit_listing", "pin", "total"}


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    """Yield a created container with everything in order."""
    with created(tmp_path) as made:
        yield made


def refused(container: Container, reason: str, state: "dict[str, Any] | bytes | None" = None, **options: Any) -> None:
    """Run the hook and assert a refusal in every way it shows: status, hook.json, no proof, no pin."""
    outcome = container.prestart(state, **options)
    assert outcome.status == 1
    assert container.hook["status"] == "refused"
    assert reason in container.reasons
    assert not container.proof.exists()
    assert not container.pin.exists()
    assert not container.pinned


def mute(container: Container, state: "dict[str, Any] | bytes | None", reason: str) -> None:
    """Run the hook and assert a refusal where no run directory can be trusted: the reason is on stderr alone."""
    outcome = container.prestart(state)
    assert outcome.status == 1
    assert f"reason={reason} " in outcome.errors
    assert not (container.run / "hook.json").exists()
    assert not container.proof.exists()
    assert not container.pin.exists()


def annotated(container: Container, **change: "str | None") -> "dict[str, Any]":
    """Return a state with some of our annotations changed; None leaves one out."""
    state = container.state()
    for key, value in change.items():
        state["annotations"][getattr(annotations, key)] = value
        if value is None:
            del state["annotations"][getattr(annotations, key)]
    return state


def test_the_wall_stands_and_is_vouched_for(container: Container) -> None:
    """In order: the table is in the container's namespace, the proof says whose it is, the namespace is pinned."""
    outcome = container.prestart()
    assert (outcome.status, outcome.errors) == (0, "")
    assert container.records == {
        "run": [RUN],
        "digest": [sha256((container.run / "plan.json").read_bytes())],
        "nonce": [NONCE],
        "netns": [str(container.inode)],
        "table": ["nova_egress_t1"],
        **{name: [str(container.hook["facts"][name])] for name in ("allow", "deny", "names")},
    }
    assert container.hook["facts"]["container"] == container.state()["id"]
    assert container.pinned
    assert container.pin.stat().st_ino == container.inode
    listing = container.nft("list", "ruleset")
    facts = audit.audit(listing, container.wall).to_json()
    assert container.hook["status"] == "ok"
    assert container.hook["refusals"] == []
    assert set(container.hook["times_ms"]) == PHASES
    assert container.hook["facts"].items() >= facts.items()


def test_nothing_of_ours_is_left_in_the_benchs_own_namespace(container: Container) -> None:
    """The table is only in the container's namespace."""
    before = subprocess.run(("nft", "list", "tables"), check=True, capture_output=True, text=True).stdout
    assert container.prestart().status == 0
    assert subprocess.run(("nft", "list", "tables"), check=True, capture_output=True, text=True).stdout == before


def test_the_proof_can_be_read_by_any_user_and_written_by_none(container: Container) -> None:
    """Stage 2 may run as any user of the image; the hook's own files are the bench's alone."""
    wrapper = ("sh", "-c", 'umask 077; exec "$@"', "sh")
    assert container.prestart(wrapper=wrapper).status == 0
    assert container.proof.stat().st_mode & 0o777 == 0o444
    assert (container.run / "hook.json").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in container.proof.parent.iterdir()) == ["proof"]


def test_it_runs_with_every_signal_blocked(container: Container) -> None:
    """Crun starts hooks with all signals blocked: the hook and its nft still end, and nothing is left running."""
    block = (
        "import os, signal, sys; signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals()); "
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    assert container.prestart(wrapper=(HOOKS[0], "-c", block)).status == 0
    assert container.proof.exists()


def test_it_waits_for_a_launcher_that_is_still_writing(container: Container) -> None:
    """While the launcher holds the plan's lock nothing is read; when it lets go the hook goes on."""
    text = (container.run / "plan.json").read_text()
    (container.run / "plan.json").write_text("")
    with (container.run / "plan.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = subprocess.Popen((*HOOKS, "prestart"), stdin=subprocess.PIPE)
        assert process.stdin
        process.stdin.write(json.dumps(container.state()).encode())
        process.stdin.close()
        _wait_until(lambda: _is_waiting(process.pid, container.run / "plan.lock"))
        assert process.poll() is None
        assert not (container.run / "hook.json").exists()
        (container.run / "plan.json").write_text(text)
    assert process.wait() == 0
    assert container.hook["status"] == "ok"


def test_a_launcher_that_never_lets_go_is_not_waited_for(container: Container) -> None:
    """After the deadline a plan that is still being written is refused; before it, and after its lock is free, not."""
    fd = os.open(container.run, os.O_RDONLY)
    directory = rundir.RunDirectory(run=RUN, path=str(container.run), fd=fd)
    with (container.run / "plan.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Refused, match="plan-late"):
            rundir.wait_for_plan(directory, deadline=0.05)
    rundir.wait_for_plan(directory, deadline=0.05)
    os.close(fd)


def _is_waiting(pid: int, lock: Path) -> bool:
    """Whether the process has the lock file open."""
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if path.samefile(lock):
                return True
    return False


def _wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end


def test_a_run_is_one_shot(container: Container) -> None:
    """A second start of the same run is refused, and what the first one left is untouched."""
    assert container.prestart().status == 0
    proof, inode, result = container.proof.read_bytes(), container.pin.stat().st_ino, container.hook
    again = container.prestart()
    assert again.status == 1
    assert "reason=run-consumed " in again.errors
    assert container.hook == result
    assert container.proof.read_bytes() == proof
    assert container.pin.stat().st_ino == inode
    assert container.pinned


def test_of_many_at_once_one_wins(container: Container) -> None:
    """Of eight hooks that run at once for one run, exactly one vouches for it."""
    state = json.dumps(container.state()).encode()
    processes = [subprocess.Popen((*HOOKS, "prestart"), stdin=subprocess.PIPE) for _ in range(8)]
    for process in processes:
        process.communicate(state)
    assert sorted(process.returncode for process in processes) == [0, *[1] * 7]
    assert container.records["netns"] == [str(container.inode)]
    assert Path("/proc/self/mountinfo").read_text().count(str(container.pin)) == 1


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (b"", "state-malformed"),
        (b"{", "state-malformed"),
        (b"[]", "state-malformed"),
        (b"\xff", "state-malformed"),
        (b'{"id":"a","id":"b"}', "state-malformed"),
    ],
)
def test_a_malformed_state_is_refused(container: Container, state: bytes, reason: str) -> None:
    """What is not a state is refused; there is no run directory to write the reason to."""
    mute(container, state, reason)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"RUN": None}, "no-run"),
        ({"DIRECTORY": None}, "no-run"),
        ({"RUN": "../t1"}, "bad-run-id"),
        ({"RUN": "t2"}, "run-directory"),
        ({"DIRECTORY": "t1"}, "run-directory"),
        ({"DIRECTORY": "/nowhere/t1"}, "run-directory"),
        ({"DIRECTORY": "/proc/self/t1"}, "run-directory"),
    ],
)
def test_an_unusable_annotation_is_refused(container: Container, change: "dict[str, str | None]", reason: str) -> None:
    """A run id or directory that cannot be ours is refused before anything is opened."""
    mute(container, annotated(container, **change), reason)


def test_an_indirect_directory_is_refused(container: Container) -> None:
    """A path with a dot-dot or a doubled slash is not the canonical one."""
    for path in (f"{container.base}/x/../{RUN}", f"{container.base}//{RUN}", f"{container.run}/"):
        mute(container, annotated(container, DIRECTORY=path), "run-directory")


@pytest.mark.parametrize("mode", [0o755, 0o710, 0o707])
def test_a_run_directory_of_others_is_refused(container: Container, mode: int) -> None:
    """A run directory that others may enter or read is refused."""
    container.run.chmod(mode)
    mute(container, None, "run-directory")


def test_a_run_directory_of_another_user_is_refused(container: Container) -> None:
    """A run directory that another user owns is refused."""
    os.chown(container.run, 12345, 0)
    mute(container, None, "run-directory")


def test_a_link_to_a_run_directory_is_refused(container: Container) -> None:
    """A symbolic link in the run directory's place is not followed."""
    container.run.rename(container.base / "elsewhere")
    container.run.symlink_to(container.base / "elsewhere")
    mute(container, None, "run-directory")


PLANS: "dict[str, tuple[dict[str, Any], str]]" = {
    "no schema": ({"schema": None}, "plan-malformed"),
    "another schema": ({"schema": 2}, "plan-malformed"),
    "no run": ({"run": None}, "plan-malformed"),
    "another run": ({"run": "t2"}, "plan-mismatch"),
    "no launch token": ({"launch": None}, "plan-malformed"),
    "another launch token": ({"launch": "00" * 32}, "plan-mismatch"),
    "no nonce": ({"nonce": None}, "plan-malformed"),
    "a short nonce": ({"nonce": "ab"}, "plan-malformed"),
    "a nonce that is not hex": ({"nonce": "x" * 32}, "plan-malformed"),
    "no bundle": ({"bundle": None}, "plan-malformed"),
    "no egress": ({"egress": None}, "plan-malformed"),
    "an egress of text": ({"egress": "all"}, "plan-malformed"),
    "an egress with a member more": ({"egress": {**egress().to_json(), "x": 1}}, "plan-malformed"),
    "an egress with a member less": ({"egress": {"run": RUN}}, "plan-malformed"),
    "pins that are no lists": ({"egress": {**egress().to_json(), "pins": {"a.io": "1.2.3.4"}}}, "plan-malformed"),
    "a pin that is no text": ({"egress": {**egress().to_json(), "pins": {"a.io": [1]}}}, "plan-malformed"),
    "a size that is no number": ({"egress": {**egress().to_json(), "ledger_size": True}}, "plan-malformed"),
    "another run's egress": ({"egress": egress(run="t2").to_json()}, "plan-mismatch"),
    "no selector": ({"egress": {**egress().to_json(), "selector": {"kind": "", "value": ""}}}, "no-selector"),
    "a bad address": ({"egress": {**egress().to_json(), "pins": {"a.io": ["x"]}}}, "bad-address"),
    "an egress that the table is not": ({"egress": egress(dns=None).to_json()}, "dns-closed"),
    "a bench's placement": ({"egress": egress(kind="uid", value="7").to_json()}, "wrong-placement"),
}


@pytest.mark.parametrize(("change", "reason"), PLANS.values(), ids=PLANS.keys())
def test_a_plan_that_is_not_this_starts_is_refused(container: Container, change: "dict[str, Any]", reason: str) -> None:
    """A plan that is malformed, another run's or not what the table says is refused, before anything is loaded."""
    container.write_plan(change)
    refused(container, reason)
    assert container.nft("list", "ruleset") == ""


def test_a_benchs_table_in_a_cards_namespace_is_refused(container: Container) -> None:
    """A table for one uid or one veth, well formed and as planned, is no wall of a card's own namespace."""
    for kind, value in (("uid", "7"), ("veth", "v0"), ("netdev", "card0")):
        wall = egress(kind=kind, value=value)
        container.write_plan({"egress": wall.to_json()})
        (container.run / "table.nft").write_text(ruleset.render(wall))
        refused(container, "wrong-placement")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema":1,"schema":1}', '{"schema":NaN}', "{}{}"])
def test_a_plan_that_is_not_json_is_refused(container: Container, text: str) -> None:
    """A plan file that is not one JSON object is refused."""
    (container.run / "plan.json").write_text(text)
    refused(container, "plan-malformed")


def test_another_launch_than_the_annotations_is_refused(container: Container) -> None:
    """The launch token that podman was given must be the plan's; without one nothing matches."""
    refused(container, "plan-mismatch", annotated(container, LAUNCH="00" * 32))
    refused(container, "plan-mismatch", annotated(container, LAUNCH=None))
    assert LAUNCH != "00" * 32


@pytest.mark.parametrize("name", ["plan.lock", "plan.json", "table.nft"])
def test_a_missing_file_is_refused(container: Container, name: str) -> None:
    """Each of the launcher's files is needed."""
    (container.run / name).unlink()
    refused(container, "plan-missing")


@pytest.mark.parametrize("name", ["plan.json", "table.nft"])
def test_a_file_that_is_not_a_plain_one_of_ours_is_refused(container: Container, name: str) -> None:
    """A link, a pipe and another user's file are not read."""
    path = container.run / name
    path.rename(container.base / name)
    path.symlink_to(container.base / name)
    refused(container, "plan-missing")
    path.unlink()
    os.mkfifo(path)
    refused(container, "plan-missing")
    path.unlink()
    path.write_bytes((container.base / name).read_bytes())
    os.chown(path, 12345, 0)
    refused(container, "plan-missing")


def test_a_bundle_that_is_not_as_planned_is_refused(container: Container) -> None:
    """config.json is judged before the namespace is entered; a missing one is refused."""
    config = json.loads((container.base / "config.json").read_text())
    config["process"]["noNewPrivileges"] = False
    (container.base / "config.json").write_text(json.dumps(config))
    refused(container, "bundle-differs")
    (container.base / "config.json").unlink()
    refused(container, "bundle-malformed")
    assert container.nft("list", "ruleset") == ""


TABLES: "dict[str, tuple[Callable[[str], str], str]]" = {
    "no default deny": (lambda text: text.replace('\t\toifname != "lo" drop\n', ""), "no-default-deny"),
    "an include": (lambda text: text + 'include "/etc/passwd"\n', "unknown-statement"),
    "a second table": (lambda text: text + "table inet x {\n}\n", "second-table"),
    "cut short": (lambda text: text[:-2], "truncated"),
    "empty": (lambda _: "", "truncated"),
    "not text": (lambda text: "\x01" + text, "unknown-statement"),
}


@pytest.mark.parametrize(("mutate", "reason"), TABLES.values(), ids=TABLES.keys())
def test_a_table_that_breaks_a_promise_is_not_loaded(
    container: Container, mutate: Callable[[str], str], reason: str
) -> None:
    """The text is audited before it is loaded: nothing of a bad one reaches the kernel."""
    (container.run / "table.nft").write_text(mutate(ruleset.render(container.wall)))
    refused(container, reason)
    assert container.nft("list", "ruleset") == ""


@pytest.mark.parametrize("state", [{"pid": 0}, {"pid": 4194304 - 1}])
def test_without_a_process_there_is_nothing_to_enter(container: Container, state: "dict[str, Any]") -> None:
    """A state with no pid, or with one that is gone, is refused."""
    refused(container, "no-pid", container.state(state))


def test_a_pid_that_is_no_number_is_a_malformed_state(container: Container) -> None:
    """A pid must be a positive number."""
    for pid in (-1, "1", True, 1.5):
        mute(container, container.state({"pid": pid}), "state-malformed")


def test_the_benchs_own_namespace_is_never_walled(container: Container) -> None:
    """A container that shares the bench's network is refused: the table would wall in the bench."""
    before = subprocess.run(("nft", "list", "ruleset"), check=True, capture_output=True, text=True).stdout
    refused(container, "host-netns", container.state({"pid": os.getpid()}))
    assert subprocess.run(("nft", "list", "ruleset"), check=True, capture_output=True, text=True).stdout == before


def test_a_table_that_is_there_already_is_not_added_to(container: Container) -> None:
    """A namespace that has the run's table already is refused: it is not new."""
    container.nft("add", "table", "inet", container.wall.table)
    refused(container, "nft-load")


def test_without_nft_it_is_refused(container: Container) -> None:
    """With nft away the reason says so, and the run is refused."""
    refused(container, "nft-missing", wrapper=in_own_mounts("mount --bind /dev/null /usr/sbin/nft"))


def _fake_nft(base: Path, body: str) -> "tuple[str, ...]":
    """Return a wrapper under which nft is a script; `$real` in it is the real one."""
    script, real = base / "nft", base / "real-nft"
    script.write_text(f"#!/bin/sh\nreal={real}\n{body}\n")
    script.chmod(0o755)
    real.touch()
    return in_own_mounts(f"mount --bind /usr/sbin/nft {real}; mount --bind {script} /usr/sbin/nft")


def test_control_the_real_nft_behind_a_script(container: Container) -> None:
    """The control of the next tests: a script that only hands on to nft changes nothing."""
    assert container.prestart(wrapper=_fake_nft(container.base, 'exec $real "$@"')).status == 0


READBACKS = {
    "loads nothing": ('case "$text" in create*) exit 0;; esac', "nft-list"),
    "is killed": ('case "$text" in create*) kill -9 $$;; esac', "nft-load"),
    "is killed while it lists": ('case "$text" in list*) kill -9 $$;; esac', "nft-list"),
    "lists nothing": ('case "$text" in list*) exit 0;; esac', "truncated"),
    "lists half": ('case "$text" in list*) echo "$text" | $real -f - | head -n 20; exit;; esac', "truncated"),
    "is raced by an accept": (
        'case "$text" in list*) $real insert rule inet nova_egress_t1 output accept;; esac',
        "unscoped-rule",
    ),
    "is raced by an address": (
        'case "$text" in list*) $real add element inet nova_egress_t1 allow4 "{ 8.8.8.8 . 443 }";; esac',
        "address-not-pinned",
    ),
    "is raced by a flush": (
        'case "$text" in list*) $real flush chain inet nova_egress_t1 output;; esac',
        "no-default-deny",
    ),
    "is raced by a deletion": ('case "$text" in list*) $real flush ruleset;; esac', "nft-list"),
}


@pytest.mark.parametrize(("body", "reason"), READBACKS.values(), ids=READBACKS.keys())
def test_what_the_kernel_holds_is_what_counts(container: Container, body: str, reason: str) -> None:
    """After loading, the kernel's own listing is audited: whatever happened in between is refused."""
    refused(container, reason, wrapper=_fake_nft(container.base, f'text=$(cat)\n{body}\necho "$text" | $real -f -'))


def test_a_card_folder_that_is_not_one_is_refused(container: Container) -> None:
    """The folder for the proof must be a folder, not a link to one."""
    card = container.run / "card"
    card.rename(container.base / "card")
    refused(container, "run-directory")
    card.symlink_to(container.base / "card")
    refused(container, "run-directory")
    assert list((container.base / "card").iterdir()) == []


def test_a_pin_that_is_there_already_is_a_consumed_run(container: Container) -> None:
    """A run directory that has a pin belongs to an earlier start; that pin is left."""
    container.pin.write_text("")
    assert container.prestart().status == 1
    assert container.reasons == ["run-consumed"]
    assert container.pin.exists()
    assert not container.proof.exists()


def test_a_proof_that_cannot_be_written_leaves_no_pin(container: Container) -> None:
    """When the proof cannot be written the pin is undone, and the failure is told."""
    card = container.run / "card"
    script = f"mount --bind {card} {card}; mount -o remount,bind,ro {card}"
    refused(container, "hook-failed", wrapper=in_own_mounts(script))
    assert "Read-only" in container.hook["refusals"][0]["text"]


def test_a_result_that_cannot_be_written_vouches_for_nothing(container: Container) -> None:
    """Without our own result there is no proof either, nor a pin, nor a half-written file."""
    (container.run / "hook.json").mkdir()
    before = sorted(container.run.iterdir())
    assert container.prestart().status == 1
    assert not container.proof.exists()
    assert not container.pinned
    assert sorted(container.run.iterdir()) == before


def test_a_pin_that_cannot_be_made_leaves_no_proof(container: Container) -> None:
    """When the namespace cannot be pinned (no right to mount) nothing is vouched for."""
    wrapper = ("setpriv", "--bounding-set=-sys_admin", "--")
    outcome = container.prestart(wrapper=wrapper)
    assert outcome.status == 1
    assert container.reasons == ["hook-failed"]
    assert not container.proof.exists()
    assert not container.pin.exists()


def test_a_failed_start_still_denies(container: Container) -> None:
    """A table that was loaded and then refused stays until the namespace goes: it denies."""
    refused(container, "hook-failed", wrapper=in_own_mounts(_read_only(container.run / "card")))
    assert 'oifname != "lo" drop' in container.nft("list", "ruleset")


def _read_only(path: Path) -> str:
    return f"mount --bind {path} {path}; mount -o remount,bind,ro {path}"


def test_a_bug_is_written_down(container: Container) -> None:
    """A defect of the hook itself reaches hook.json with its traceback, because its stderr goes nowhere."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from hooks import audit, prestart\n"
        "audit.audit = None\nsys.exit(prestart.run(0))"
    )
    command = (HOOKS[0], "-I", "-S", "-B", "-c", code, str(Path(HOOKS[-1]).parents[1]))
    done = subprocess.run(command, input=json.dumps(container.state()).encode(), capture_output=True, check=False)
    assert done.returncode == 1
    assert container.reasons == ["hook-bug"]
    assert "Traceback" in container.hook["refusals"][0]["text"]
    assert not container.proof.exists()


def test_the_verb_is_needed() -> None:
    """Any other verb is a usage error."""
    assert hook("restart", b"").status == 2


def test_the_wall_holds_for_the_process(container: Container) -> None:
    """After the hook a process in the container's namespace is refused at once, and before it was not."""
    attempt = (
        "nsenter",
        f"--net=/proc/{container.process.pid}/ns/net",
        HOOKS[0],
        "-c",
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'', ('198.18.0.1', 9))",
    )
    wire = ("ip", "link", "add", "card0", "type", "veth", "peer", "name", "world0")
    for command in (
        wire,
        ("ip", "link", "set", "card0", "up"),
        ("ip", "link", "set", "world0", "up"),
        ("ip", "addr", "add", "10.99.0.2/24", "dev", "card0"),
        ("ip", "route", "add", "default", "via", "10.99.0.1"),
    ):
        subprocess.run((*attempt[:2], *command), check=True)
    assert subprocess.run(attempt, capture_output=True, check=False).returncode == 0
    assert container.prestart().status == 0
    after = subprocess.run(attempt, capture_output=True, check=False, text=True)
    assert "PermissionError: [Errno 1]" in after.stderr


def test_nothing_is_left_running(container: Container) -> None:
    """The hook waits for every process that it starts: none is left that would cost time at teardown."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = set(_descendants())
    assert container.prestart().status == 0
    assert set(_descendants()) <= before


def _descendants() -> "list[str]":
    found = subprocess.run(("pgrep", "-P", str(os.getpid())), capture_output=True, text=True, check=False).stdout
    return [pid for pid in found.split() if "nft" in Path(f"/proc/{pid}/comm").read_text()] if found else []


def test_pinning_survives_the_process(container: Container) -> None:
    """The namespace outlives its last process by the pin, with its table."""
    assert container.prestart().status == 0
    inode = container.inode
    container.end()
    fd = os.open(container.pin, os.O_RDONLY)
    try:
        assert netns.inode(fd) == inode
    finally:
        os.close(fd)
