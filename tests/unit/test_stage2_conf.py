"""stage2.conf, the frames on descriptor 3, and becoming the worker."""

import errno
import os
import socket
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.stage2 import channel, conf, worker
from launcher.stage2.syscalls import Kernel
from oci import records
from oci.refusal import Refused

ITEMS = [
    ("schema", "1"),
    ("run", "r1"),
    ("argv", "sh"),
    ("argv", ""),
    ("cwd", "/w"),
    ("network", "1"),
    ("route4", "1"),
    ("route6", "1"),
    ("landlock", "exact"),
    ("loopback", "0"),
    ("write", "/w"),
    ("write", "/w 2"),
    ("read", "/r"),
    ("noexec", "/n"),
    ("private", "/tmp"),
    ("probe4", "198.18.0.1"),
    ("probe6", "100::1"),
    ("port", "9"),
    ("outside", "/"),
    ("rlimit", "NOFILE:10:-1"),
]


def without(key: str, *more: tuple[str, str]) -> bytes:
    """Return the records without a key, and with others added."""
    return records.dump([item for item in ITEMS if item[0] != key] + list(more))


def problems(data: bytes) -> list[str]:
    """Return the texts of the refusals that a configuration meets."""
    with pytest.raises(Refused) as error:
        conf.parse(data)
    assert {refusal.reason for refusal in error.value.refusals} == {"conf-malformed"}
    return [refusal.text for refusal in error.value.refusals]


def test_a_configuration_is_read_whole() -> None:
    """Every key arrives, lists in order."""
    config = conf.parse(records.dump(ITEMS))
    assert (config.run, config.argv, config.cwd, config.network, config.route6) == ("r1", ("sh", ""), "/w", True, True)
    assert (config.probes4, config.probes6, config.port) == (("198.18.0.1",), ("100::1",), 9)
    assert (config.outside, config.rlimits) == (("/",), (("NOFILE", 10, -1),))
    policy = config.policy
    assert (policy.write, policy.read, policy.noexec, policy.private) == (("/w", "/w 2"), ("/r",), ("/n",), ("/tmp",))
    assert (policy.exact, policy.loopback) == (True, False)


@pytest.mark.parametrize("key", conf.REQUIRED)
def test_a_missing_key_is_refused(key: str) -> None:
    """None of them has a default."""
    assert problems(without(key)) == [f"stage2.conf: missing key {key!r}"]


@pytest.mark.parametrize(
    "item", [("schema", "2"), ("network", "host"), ("route6", "yes"), ("landlock", ""), ("loopback", "2")]
)
def test_a_value_out_of_its_choices_is_refused(item: tuple[str, str]) -> None:
    """Only the words that are known are taken."""
    (text,) = problems(without(item[0], item))
    assert text.startswith(f"stage2.conf: {item[0]}={item[1]!r} is none of ")


@pytest.mark.parametrize("path", ["", "w", "./w", "/w/", "/w/../x", "//w", "/w//x", "/./w"])
@pytest.mark.parametrize("key", ["cwd", "write", "read", "noexec", "private", "outside"])
def test_a_path_that_is_not_normal_is_refused(key: str, path: str) -> None:
    """Rules compare paths as text, so each must be absolute and have one spelling."""
    assert problems(without(key, (key, path))) == [f"stage2.conf: {key}={path!r} is not an absolute, normal path"]


def test_all_problems_come_at_once() -> None:
    """An unknown key, a repeated one and a bad path are three refusals of one reading."""
    data = records.dump([*ITEMS, ("unknown", "x"), ("cwd", "/other"), ("read", "relative")])
    assert len(problems(data)) == 3


@pytest.mark.parametrize("bad", [b"schema=1", b"=x\0", b"word\0", b"schema=1\0rest"])
def test_what_is_no_record_is_refused(bad: bytes) -> None:
    """A file that is cut short or of another kind is refused."""
    assert problems(bad)


@pytest.mark.parametrize("text", ["NOFILE", "NOFILE:1", "NOFILE:a:b", "NOFILE:1:2:3"])
def test_a_limit_of_another_shape_is_refused(text: str) -> None:
    """A limit is a name and two numbers."""
    assert problems(without("rlimit", ("rlimit", text)))


@given(st.binary(max_size=200))
def test_reading_anything_is_a_value_or_a_refusal(data: bytes) -> None:
    """No content makes the parser fail otherwise."""
    with suppress(Refused):
        conf.parse(data)


def test_frames_cross_a_socket_in_order() -> None:
    """What is sent is received, large ones included, and an end is EOFError."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert channel.usable(theirs.fileno())
        frames = [[("nonce", "n"), ("env", "A=1\nx=2")], [("go", "1")], []]
        for frame in frames:
            channel.send(ours.fileno(), frame)
        assert [channel.receive(theirs.fileno()) for _ in frames] == [
            {"nonce": ["n"], "env": ["A=1\nx=2"]},
            {"go": ["1"]},
            {},
        ]
        ours.close()
        with pytest.raises(EOFError):
            channel.receive(theirs.fileno())


def test_a_frame_out_of_bounds_is_not_read() -> None:
    """Its length alone is refused, before anything is waited for."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(struct.pack("<I", channel.MOST + 1))
        with pytest.raises(ValueError, match=f"a frame of {channel.MOST + 1} bytes"):
            channel.receive(theirs.fileno())


@pytest.mark.parametrize("data", [struct.pack("<I", 3) + b"abc", b"\1\0"])
def test_what_is_no_frame_is_an_error(data: bytes) -> None:
    """A length out of bounds, a body that is no records and half a length are told from a frame."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(data)
        ours.close()
        with pytest.raises((ValueError, EOFError)):
            channel.receive(theirs.fileno())


def test_only_a_socket_is_a_launcher(tmp_path: Path) -> None:
    """A closed descriptor and a file on descriptor 3 are not."""
    with (tmp_path / "file").open("wb") as file:
        assert not channel.usable(file.fileno())
        number = file.fileno()
    assert not channel.usable(number)


def test_the_worker_s_environment() -> None:
    """The container's variables without the loader's, then the launcher's, which win and may be any."""
    block = (
        b"PATH=/bin\0LD_LIBRARY_PATH=/x\0PYTHONPATH=/w\0HOME=/\0odd\0BASH_ENV=/e\0NODE_OPTIONS=-r x\0E==\0\xff=\xfe\0"
    )
    env = worker.environment(block, ["HOME=/card", "LD_PRELOAD=mine", "EMPTY=", "A=b=c"])
    assert env == {
        "PATH": "/bin", "HOME": "/card", "LD_PRELOAD": "mine", "EMPTY": "", "A": "b=c", "E": "=", "\udcff": "\udcfe",
    }  # fmt: skip


@pytest.mark.parametrize("name", [b"LD_PRELOAD", b"LD_AUDIT"])
def test_a_loader_that_was_steered_is_refused(name: bytes) -> None:
    """Only the variable itself: one that merely begins alike is the image's own business."""
    assert worker.environment(b"A=1\0" + name + b"X=1\0", []) == {"A": "1"}
    for block in (name + b"=/x.so\0A=1\0", b"A=1\0" + name + b"=\0"):
        with pytest.raises(Refused, match=f"loader-steered .*{name.decode()}"):
            worker.environment(block, [])


@pytest.mark.parametrize("item", ["", "NAME", "=value"])
def test_an_item_that_is_no_variable_is_refused(item: str) -> None:
    """The launcher sends NAME=VALUE only."""
    with pytest.raises(Refused, match="frame-malformed"):
        worker.environment(b"", [item])


def test_the_path_search_is_the_shell_s() -> None:
    """A name with a slash is itself; an empty entry of PATH is the directory one is in; an empty name is nothing."""
    assert worker.candidates("a/b", {"PATH": "/x"}) == ["a/b"]
    assert worker.candidates("ls", {"PATH": "/x::/y"}) == ["/x/ls", "./ls", "/y/ls"]
    assert worker.candidates("ls", {})[0] == "/usr/local/sbin/ls"
    assert worker.candidates("", {"PATH": "/bin"}) == []


def test_what_cannot_be_executed_has_a_shell_s_exit_code(tmp_path: Path) -> None:
    """Not there 127; there and not executable, a directory, or no program 126; a missing interpreter 127."""
    (tmp_path / "plain").write_text("x")
    (tmp_path / "dir").mkdir()
    (tmp_path / "garbage").write_bytes(b"\x7fELFgarbage")
    (tmp_path / "orphan").write_text("#!/no/such/program\n")
    for name in ("garbage", "orphan"):
        (tmp_path / name).chmod(0o755)
    found = {
        name: worker.execute((str(tmp_path / name),), {})[0]
        for name in ("gone", "plain", "dir", "garbage", "orphan", "plain/x")
    }
    assert found == {"gone": 127, "plain": 126, "dir": 126, "garbage": 126, "orphan": 127, "plain/x": 127}
    orphan = worker.execute((str(tmp_path / "orphan"),), {})
    assert orphan == (127, f"{tmp_path}/orphan: the program it needs to run (its #! line or loader) is not there")
    env = {"PATH": f"{tmp_path}/none:{tmp_path}"}
    assert worker.execute(("gone",), env) == (127, "gone: not found")
    assert worker.execute(("plain",), env) == (126, f"plain: {os.strerror(errno.EACCES)}")
    assert worker.execute(("",), env)[0] == 127
    assert worker.execute(("x" * 5000,), env)[0] == 126


class Limits(Kernel):
    """A kernel that remembers limits, and refuses one."""

    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls: list[tuple[int, int, int]] = []

    def prlimit(self, resource: int, soft: int, hard: int) -> None:
        """Remember a limit; locked memory cannot be had."""
        if resource == 8:
            raise OSError(errno.EPERM, "no", "prlimit")
        self.calls.append((resource, soft, hard))


def test_limits_are_set_by_their_names() -> None:
    """Names are the kernel's; -1 is unlimited; an unknown one and one that is not granted are refused."""
    kernel = Limits()
    worker.limit(kernel, (("NOFILE", 64, 128), ("CORE", 0, 0), ("AS", -1, -1)))
    assert kernel.calls == [(7, 64, 128), (4, 0, 0), (9, 2**64 - 1, 2**64 - 1)]
    for name, reason in (("FILES", "rlimit-unknown"), ("MEMLOCK", "rlimit-refused")):
        with pytest.raises(Refused, match=reason):
            worker.limit(kernel, ((name, 1, 1),))


def test_a_directory_that_cannot_be_entered_is_refused(tmp_path: Path) -> None:
    """The refusal names it."""
    with pytest.raises(Refused, match="cwd-unusable"):
        worker.settle(str(tmp_path / "gone"))
