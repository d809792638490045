"""Messages of the pool, a card's key, and a warm stage 2's wait."""

import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher import launch, options
from launcher.launch import Launch
from launcher.pool import declared, key, wire
from launcher.request import Request
from launcher.run import site
from launcher.run.channel import Channel
from launcher.runtime import Runtime
from launcher.stage2 import selftest, warm
from launcher.stage2.conf import Conf
from launcher.stage2.landlock import Policy
from launcher.stage2.syscalls import Kernel
from oci import records
from oci.refusal import Refused

RUNTIME = Runtime("/cache/runtime-d", {"digest": ["d"], "python": ["/py"], "argv": ["/p"], "filter_rules": ["1"]})
NONCE, OTHER = "a" * 32, "b" * 32


def judged(**asked: Any) -> Launch:
    """Return a launch as flags would make it, on whatever bench this is."""
    return launch.judge(Request(command=("true",), resolver="192.0.2.1", **asked))[0]


def the_key(one: Launch) -> dict[str, list[str]]:
    """Return the key of a launch."""
    return key.of(one, RUNTIME, podman="/usr/bin/podman", hooks_dirs=())


# Messages.


def test_a_launch_crosses(tmp_path: Path) -> None:
    """It is the same value on the other side, whatever its strings hold."""
    sent = judged(read=(str(tmp_path),), env=("A=\udcff",), memory="1g", write=(f"{tmp_path}/",))
    assert wire.load(wire.dump({"launch": sent, "n": 1, "f": 0.5, "none": None})) == {
        "launch": sent, "n": 1, "f": 0.5, "none": None,
    }  # fmt: skip


def test_a_card_file_crosses(tmp_path: Path) -> None:
    """With every byte of it, and where each value came from."""
    (tmp_path / "card.toml").write_bytes(b'image = "localhost/x:y"  # \xc3\xa9\n[limits]\ntmp_size = "1m"\n')
    asked = options.read([f"--card={tmp_path}/card.toml", "--resolver=192.0.2.1", "--", "true"])[0]
    sent = launch.judge(asked)[0]
    assert sent.asked.merged is not None
    assert wire.load(wire.dump({"launch": sent, "bytes": b"\xff"})) == {"launch": sent, "bytes": b"\xff"}


@pytest.mark.parametrize("what", [{"x": {1, 2}}, {"x": object()}, {"x": "y" * wire.MOST}])
def test_what_cannot_cross(what: dict[str, Any]) -> None:
    """It is a ValueError, which makes a run cold, and never half a message."""
    with pytest.raises(ValueError):  # noqa: PT011 - any of them
        wire.dump(what)


@pytest.mark.parametrize("name", ["os:system", "launcher.launch:judge", "launcher.pool.wire:Value.x", "builtins:dict"])
def test_no_other_class_is_made(name: str) -> None:
    """A message can name values of this package and nothing else."""
    with pytest.raises(ValueError, match="no value of ours"):
        wire.load(b'{"x":{"$":"%s"}}' % name.encode())


def test_descriptors_come_with_their_message() -> None:
    """They are open on the other side, close-on-exec; without any there are none; an end is None."""
    ours, theirs = wire.pair()
    reader, writer = os.pipe()
    wire.send(ours, b"{}", (writer,))
    wire.send(ours, b"{}")
    ours.close()
    os.close(writer)
    got = wire.receive(theirs)
    assert got is not None
    (came,) = got[1]
    assert not os.get_inheritable(came)
    os.write(came, b"x")
    os.close(came)
    assert os.read(reader, 2) == b"x"
    assert wire.receive(theirs) == (b"{}", [])
    assert wire.receive(theirs) is None
    theirs.close()
    os.close(reader)


def test_a_message_with_too_many_descriptors_is_none() -> None:
    """It was cut short, and what came of it is closed."""
    ours, theirs = wire.pair()
    before = len(os.listdir("/proc/self/fd"))
    wire.send(ours, b"{}", (0,) * 30)
    assert wire.receive(theirs) is None
    assert len(os.listdir("/proc/self/fd")) == before
    ours.close()
    theirs.close()


# Keys.


def test_what_a_run_brings_is_not_in_the_key(tmp_path: Path) -> None:
    """Command, names, environment, directory, run id, time and descriptors: a card waits for any of them."""
    root = (str(tmp_path),)
    one = judged(read=root)
    other = launch.judge(
        Request(
            command=("other", "--image=x"), resolver="192.0.2.1", read=root, env=("A=b",), cwd=root[0], timeout="5",
            nofile="64", model_host="api.anthropic.com", interactive=True, landlock="exact",
        )
    )[0]  # fmt: skip
    assert one.run != other.run
    assert key.differs(the_key(one), the_key(other)) == ""


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"image": "localhost/other:latest"}, "image"),
        ({"tmp_size": "1m"}, "--mount"),
        ({"memory": "1g"}, "--memory, --memory-swap"),
        ({"pids": "5"}, "--pids-limit"),
        ({"podman_arg": ("--tz=UTC",)}, "--tz"),
        ({"read": ("/usr",)}, "--mount, roots"),
    ],
)
def test_what_podman_is_told_is_in_the_key(asked: dict[str, Any], told: str) -> None:
    """Each difference is one, and is told by the option's name."""
    assert key.differs(the_key(judged()), the_key(judged(**asked))) == told


def test_a_root_that_was_replaced_is_another(tmp_path: Path) -> None:
    """The same name with another inode makes another key."""
    root = tmp_path / "root"
    root.mkdir()
    before = the_key(judged(write=(str(root),)))
    root.rename(tmp_path / "away")
    root.mkdir()
    assert key.differs(before, the_key(judged(write=(str(root),)))) == "roots"


@pytest.mark.parametrize(
    "name", ["CONTAINERS_STORAGE_CONF", "HOME", "STORAGE_DRIVER", "XDG_DATA_HOME", "XDG_STATE_HOME"]
)
def test_podmans_environment_is_in_the_key(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another value means another podman; a variable that podman does not read means nothing."""
    before = the_key(judged())
    monkeypatch.setenv("LANG", "xx")
    assert key.differs(before, the_key(judged())) == ""
    monkeypatch.setenv(name, "/elsewhere")
    assert "environment" in key.differs(before, the_key(judged()))


def test_nameservers_are_in_the_key() -> None:
    """They are whom a card's questions go to, where it may ask any: then they are fixed when it is made."""
    here = judged().nameservers.replace(source="/etc/resolv.conf")
    there = here.replace(servers=("192.0.2.2",))
    asking, deaf = judged().replace(dns="169.254.1.1"), judged().replace(dns=None)
    one, other = (the_key(asking.replace(nameservers=servers)) for servers in (here, there))
    assert key.differs(one, other) == "nameservers"
    one, other = (the_key(deaf.replace(nameservers=servers)) for servers in (here, there))
    assert key.differs(one, other) == ""


@pytest.mark.parametrize("systemd", [True, False])
def test_a_cgroup_is_in_the_key_where_a_card_is_in_it(
    systemd: bool,  # noqa: FBT001 - a parameter
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a systemd of the user's nobody makes another for the card."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    if systemd:
        (tmp_path / "systemd").mkdir()
        (tmp_path / "systemd/private").touch()
    assert any(line.startswith("cgroup ") for line in the_key(judged())["process"]) is not systemd


@pytest.mark.parametrize(
    "change",
    [
        lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
        lambda: os.nice(1),
        lambda: os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)),
        lambda: Path("/proc/self/oom_score_adj").write_text("900"),
    ],
)
def test_what_a_container_inherits_is_in_the_key(change: Callable[[], object]) -> None:
    """Another limit, niceness, policy of scheduling or score for want of memory, in a child, make another card."""
    before = the_key(judged())
    pid = os.fork()
    if pid == 0:
        try:
            change()
            os._exit(0 if key.differs(before, the_key(judged())) == "process" else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"run": "x"}, "--run"),
        ({"tty": True}, "--tty"),
        ({"net": "bridge"}, "--net bridge"),
        ({"grant": ("g",)}, "--grant"),
    ],
)
def test_what_no_warm_card_can_do(asked: dict[str, Any], told: str) -> None:
    """It is told by the option's name."""
    assert key.unfit(judged().replace(asked=Request(command=("true",), **asked), **_of_launch(asked))) == told


def _of_launch(asked: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in asked.items() if name in {"tty", "net"}}


def test_marks(tmp_path: Path) -> None:
    """A file that changed, went or came is told; one that stayed is not."""
    stays, changes, comes = (tmp_path / name for name in ("stays", "changes", "comes"))
    stays.write_text("")
    changes.write_text("")
    marks = declared.marks_of([str(stays), str(changes), str(comes)])
    assert declared.changed(marks) == ""
    changes.write_text("x")
    assert declared.changed(marks) == str(changes)
    marks = declared.marks_of([str(stays), str(comes)])
    comes.write_text("")
    assert declared.changed(marks) == str(comes)


def test_what_configures_podman_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A drop-in more, a storage.conf of the user's and one that is named: each is a change, where there was none."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    named = tmp_path / "named.conf"
    ours = tmp_path / "containers"
    (ours / "containers.conf.d").mkdir(parents=True)
    for path in (ours / "containers.conf.d/new.conf", ours / "containers.conf", ours / "storage.conf", named):
        monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(named))
        marks = declared.marks_of([*site.storage_files(), *declared.configuration()])
        assert declared.changed(marks) == ""
        path.write_text("")
        assert declared.changed(marks) in {str(path), str(path.parent)}


# Stage 2's wait.


class Waiting(Kernel):
    """A container whose first proof holds and whose wall is felt."""

    __slots__ = ()

    def read_file(self, path: str) -> bytes:
        """Return the proof of the card that waits."""
        assert path == selftest.PROOF
        return records.dump([("run", "r"), ("nonce", NONCE), ("netns", "1"), ("digest", "d"), ("table", "t")])

    def readlink(self, path: str) -> str:
        """Return the network namespace's name."""
        assert path == "/proc/self/ns/net"
        return "net:[1]"


def conf() -> Conf:
    """Return a configuration without a network, which has nothing to probe."""
    values = {name: ["0"] for name in ("network", "route4", "route6", "port")}
    return Conf({**values, "run": ["r"], "argv": ["x"], "cwd": ["/"]}, Policy())


def taker(items: list[tuple[str, str]], descriptors: tuple[int, ...]) -> dict[str, list[str]]:
    """Return what stage 2 makes of a taker's word."""
    ours = Channel()
    ours.send_with(items, descriptors)
    return warm.wait(Waiting(), conf(), {"nonce": [NONCE], "warm": ["1"]}, ours.theirs)


@pytest.mark.parametrize(
    ("items", "number", "reason"),
    [
        ([("nonce", NONCE), ("streams", "output")], 2, "proof-mismatch"),
        ([("streams", "output")], 2, "proof-mismatch"),
        ([("go", "1")], 1, "proof-mismatch"),
        ([("nonce", OTHER)], 2, "frame-malformed"),
        ([("nonce", OTHER), ("streams", "output")], 1, "frame-malformed"),
        ([("nonce", OTHER), ("streams", "output")], 3, "frame-malformed"),
        ([("nonce", OTHER), ("streams", "all")], 2, "frame-malformed"),
        ([("nonce", OTHER), ("streams", "none")], 2, "frame-malformed"),
    ],
)
def test_a_taker_that_is_none(items: list[tuple[str, str]], number: int, reason: str) -> None:
    """Without a nonce of its own, or without the worker's streams, nothing goes on."""
    with pytest.raises(Refused) as caught:
        taker(items, (0,) * number)
    assert [one.reason for one in caught.value.refusals] == [reason]


def test_a_taker() -> None:
    """Its word is returned, and its descriptors are the standard streams; in a child, whose streams they become."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            told = taker([("nonce", OTHER), ("streams", "all"), ("env", "A=b")], (writer, writer, reader))
            os.write(1, b"out ")
            os.write(2, f"err {told['env']}".encode())
            os._exit(0 if os.path.sameopenfile(0, reader) else 1)
        finally:
            os._exit(2)
    os.close(writer)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert os.read(reader, 100) == b"out err ['A=b']"
    os.close(reader)


def test_nobody_comes() -> None:
    """The launcher's end without a word is an EOFError, and stage 2 ends."""
    ours = Channel()
    ours.close()
    with pytest.raises((EOFError, OSError)):
        warm.wait(Waiting(), conf(), {"nonce": [NONCE], "warm": ["1"]}, ours.theirs)


def test_the_first_proof_is_no_second() -> None:
    """What was written for the card that waits does not serve a run, by name and by nonce."""
    with pytest.raises(AssertionError):
        selftest.proof(Waiting(), "r", NONCE, selftest.TAKEN)
    with pytest.raises(Refused, match="nonce differs"):
        selftest.proof(Waiting(), "r", OTHER)
