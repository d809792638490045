"""The filesystem wall on the real kernel: each access with and without the domain, in a child."""

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from launcher.stage2 import landlock
from launcher.stage2.abi import ABIS
from launcher.stage2.landlock import Policy, Ruleset
from launcher.stage2.syscalls import Kernel
from tests.kernel.child import in_child, met, no_new_privs

T = TypeVar("T")
ABI = Kernel().landlock_create_ruleset(None, landlock.CREATE_RULESET_VERSION)


class Tree:
    """Places with each kind of rights, and one with none."""

    def __init__(self, top: Path) -> None:
        self.read, self.noexec, self.write, self.other_write = (
            top / name for name in ("read", "noexec", "write", "w2")
        )
        self.private, self.outside = top / "private", top / "outside"
        self.nested = self.read / "nested"
        for place in (self.read, self.noexec, self.write, self.other_write, self.private, self.outside, self.nested):
            place.mkdir()
            (place / "file").write_text("content")
            (place / "program").write_text("#!/bin/sh\nexit 0\n")
            (place / "program").chmod(0o755)
        self.one = self.outside / "one"
        self.one.write_text("one")

    def policy(self) -> Policy:
        """Return a policy over the places."""
        return Policy(
            read=(str(self.read),),
            noexec=(str(self.noexec), str(self.nested)),
            write=(str(self.write), str(self.other_write), str(self.one)),
            private=(str(self.private),),
        )


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Return a fresh tree."""
    return Tree(tmp_path)


def without_image(ruleset: Ruleset) -> Ruleset:
    """Return a ruleset whose image is only what a program needs to run: on this machine all else is outside."""
    rules = [rule for rule in ruleset.rules if rule.kind not in {"image", "list"}]
    needed = [Path(place) for place in ("/usr", "/etc", "/lib", "/lib64", "/bin", sys.base_prefix, sys.prefix)]
    rules += [landlock.Rule("image", str(place), landlock.READ_EXECUTE) for place in needed if place.exists()]
    return Ruleset(ruleset.abi, ruleset.row, net=ruleset.net, rules=tuple(rules))


def restricted(policy: Policy, action: Callable[[], T]) -> T:
    """Return what the action returns in a child inside the policy's domain."""
    ruleset = without_image(landlock.build(ABI, policy))

    def enter() -> T:
        no_new_privs()
        landlock.apply(Kernel(), ruleset)
        return action()

    return in_child(enter)


def both(tree: Tree, action: Callable[[], object]) -> tuple[int, int]:
    """Return the errno an action meets without and with the domain; the walled one goes first and changes nothing."""
    inside = restricted(tree.policy(), lambda: met(action))
    return in_child(lambda: met(action)), inside


def run(program: Path) -> None:
    """Execute a program in a child; raises OSError when it cannot be."""
    subprocess.run([program], check=True)


def test_nothing_outside_can_be_read_or_changed(tree: Tree) -> None:
    """Each access works without the domain and is EACCES inside it."""
    out = tree.outside
    actions: list[Callable[[], object]] = [
        (out / "file").read_text,
        lambda: os.open(out / "file", os.O_WRONLY),
        lambda: os.truncate(out / "file", 1),
        lambda: os.open(out / "new", os.O_CREAT | os.O_WRONLY, 0o600),
        lambda: os.open(out, os.O_TMPFILE | os.O_RDWR, 0o600),
        (out / "dir").mkdir,
        (out / "program").unlink,
        (out / "nested.d").mkdir,
        (out / "nested.d").rmdir,
        lambda: os.symlink("x", out / "link"),
        lambda: os.mkfifo(out / "fifo"),
        lambda: os.listdir(out),
    ]
    for place, action in enumerate(actions):
        assert (place, *both(tree, action)) == (place, 0, errno.EACCES)


def test_a_link_does_not_lead_outside(tree: Tree) -> None:
    """A symbolic link in the workspace, `..` and a descriptor's /proc path are judged where they arrive."""
    (tree.write / "link").symlink_to(tree.outside / "file")
    assert both(tree, (tree.write / "link").read_text) == (0, errno.EACCES)
    assert both(tree, (tree.write / ".." / "outside" / "file").read_text) == (0, errno.EACCES)
    held = os.open(tree.outside / "file", os.O_PATH)
    assert both(tree, lambda: os.open(f"/proc/self/fd/{held}", os.O_RDONLY)) == (0, errno.EACCES)
    os.close(held)


def test_hard_links_and_renames_cannot_move_rights(tree: Tree) -> None:
    """What has fewer rights cannot be linked or moved to where it would have more."""
    assert both(tree, lambda: os.link(tree.outside / "file", tree.write / "hard")) == (0, errno.EXDEV)
    (tree.write / "hard").unlink()
    assert both(tree, lambda: os.link(tree.read / "file", tree.write / "hard")) == (0, errno.EXDEV)
    assert both(tree, lambda: os.rename(tree.write / "file", tree.read / "moved"))[1] == errno.EACCES


def test_a_writable_root_is_a_normal_directory(tree: Tree) -> None:
    """Everything tools do in their workspace works, moving and linking across its directories and roots included."""

    def work() -> list[str]:
        here, there = tree.write / "a", tree.other_write / "b"
        here.mkdir()
        there.mkdir()
        (here / "f").write_text("1")
        os.rename(here / "f", there / "f")
        os.link(there / "f", here / "hard")
        os.rename(here, there / "a")
        os.truncate(there / "f", 0)
        os.symlink("f", there / "link")
        os.mkfifo(there / "fifo")
        with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
            server.bind(str(there / "sock"))
            server.listen()
            client.connect(str(there / "sock"))
        (there / "run").write_text("#!/bin/sh\nexit 0\n")
        (there / "run").chmod(0o755)
        run(there / "run")
        (there / "fifo").unlink()
        return sorted(os.listdir(there))

    assert restricted(tree.policy(), work) == ["a", "f", "link", "run", "sock"]


def test_a_readable_root_is_only_read_and_executed(tree: Tree) -> None:
    """Reading and executing work, changing does not."""
    assert both(tree, (tree.read / "file").read_text) == (0, 0)
    assert both(tree, lambda: os.listdir(tree.read)) == (0, 0)
    assert both(tree, lambda: run(tree.read / "program")) == (0, 0)
    assert both(tree, lambda: os.open(tree.read / "file", os.O_WRONLY)) == (0, errno.EACCES)
    assert both(tree, lambda: os.truncate(tree.read / "file", 7)) == (0, errno.EACCES)


def test_noexec_is_not_executed_inside_a_readable_root_either(tree: Tree) -> None:
    """The path can be read and listed; executing is EACCES, also where the root around it is executable."""
    for place in (tree.noexec, tree.nested):
        assert both(tree, (place / "file").read_text) == (0, 0)
        assert both(tree, partial(os.listdir, place)) == (0, 0)
        assert both(tree, partial(run, place / "program")) == (0, errno.EACCES)


def test_a_single_file_can_be_a_root(tree: Tree) -> None:
    """The file can be written and its neighbours cannot be read."""
    assert both(tree, lambda: tree.one.write_text("two")) == (0, 0)
    assert both(tree, (tree.outside / "file").read_text) == (0, errno.EACCES)


def test_plain_devices_work_and_take_no_ioctl() -> None:
    """Plain devices can be read and written; a device ioctl is EACCES, where otherwise the driver would answer."""

    def devices() -> list[int]:
        with open("/dev/null", "r+b", buffering=0) as null, open("/dev/urandom", "rb", buffering=0) as random:
            null.write(b"x")
            return [len(random.read(4)), met(lambda: fcntl.ioctl(null, termios.TIOCGWINSZ, bytes(8)))]

    assert in_child(devices) == [4, errno.ENOTTY]
    assert restricted(Policy(), devices) == [4, errno.EACCES if ABI >= 5 else errno.ENOTTY]


def test_terminals_can_be_made() -> None:
    """A pseudo-terminal opens and takes its ioctls."""

    def terminal() -> bool:
        master, slave = os.openpty()
        name = os.ttyname(slave)
        again = os.open(name, os.O_RDWR | os.O_NOCTTY)
        fcntl.ioctl(again, termios.TIOCGWINSZ, bytes(8))
        termios.tcgetattr(again)
        return os.isatty(master)

    assert restricted(Policy(), terminal)


def test_proc_can_be_read_and_not_written() -> None:
    """Own status is readable; own comm, writable without the domain, is EACCES."""
    assert restricted(Policy(), lambda: met(Path("/proc/self/status").read_text)) == 0
    control = in_child(lambda: met(lambda: os.open("/proc/self/comm", os.O_WRONLY)))
    assert (control, restricted(Policy(), lambda: met(lambda: os.open("/proc/self/comm", os.O_WRONLY)))) == (
        0, errno.EACCES,
    )  # fmt: skip


@pytest.mark.skipif(ABI < 6, reason="scopes came with ABI 6")
def test_abstract_sockets_and_signals_stay_inside() -> None:
    """A process outside can be neither connected to by an abstract name nor signalled; one inside can."""
    with socket.socket(socket.AF_UNIX) as server, subprocess.Popen(["/bin/sleep", "60"]) as outsider:
        server.bind(f"\0card-run-test-{os.getpid()}")
        server.listen()

        def reach() -> tuple[int, int, int]:
            with socket.socket(socket.AF_UNIX) as client:
                connected = met(lambda: client.connect(server.getsockname()))
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            own = met(lambda: os.kill(child, signal.SIGKILL))
            os.waitpid(child, 0)
            return connected, met(lambda: os.kill(outsider.pid, 0)), own

        assert in_child(reach) == (0, 0, 0)
        assert restricted(Policy(), reach) == (errno.EPERM, errno.EPERM, 0)
        outsider.kill()


@pytest.mark.skipif(ABI < 4, reason="port rules came with ABI 4")
def test_ports_with_and_without_loopback() -> None:
    """Without loopback only 443 may be connected to and nothing bound; with it local servers work."""

    def ports() -> tuple[int, int, int]:
        with socket.socket() as server, socket.socket() as client, socket.socket() as https:
            bound = met(lambda: server.bind(("127.0.0.1", 0)))
            other = met(lambda: client.connect(("127.0.0.1", 1)))
            return bound, other, met(lambda: https.connect(("127.0.0.1", 443)))

    refused = errno.ECONNREFUSED
    assert restricted(Policy(loopback=True), ports) == (0, refused, refused)
    assert restricted(Policy(loopback=False), ports) == (errno.EACCES, errno.EACCES, refused)


def test_names_at_the_root_can_be_listed_and_not_read(tmp_path: Path) -> None:
    """READ_DIR on `/` gives names and no content."""
    secret = tmp_path / "secret"
    secret.write_text("s")
    ruleset = landlock.build(ABI, Policy())
    rules = tuple(rule for rule in ruleset.rules if rule.kind != "image")
    only_list = Ruleset(ruleset.abi, ruleset.row, net=0, rules=rules)

    def look() -> tuple[bool, int]:
        no_new_privs()
        landlock.apply(Kernel(), only_list)
        return "proc" in os.listdir("/"), met(secret.read_text)

    assert in_child(look) == (True, errno.EACCES)


def test_restricting_needs_no_new_privs() -> None:
    """The kernel refuses an unprivileged process that could still gain privileges; the error names the call."""

    def enter() -> tuple[int, str]:
        if os.geteuid() == 0:
            os.setresuid(65534, 65534, 65534)
        try:
            landlock.apply(Kernel(), landlock.build(ABI, Policy()))
        except OSError as error:
            return error.errno or 0, str(error.filename)
        return 0, ""

    assert in_child(enter) == (errno.EPERM, "landlock_restrict_self")


def test_every_row_up_to_the_kernel_s_is_taken_by_it(tree: Tree) -> None:
    """The kernel accepts the attribute and rules of each older ABI, its own included."""
    for version in range(2, min(ABI, 11) + 1):
        ruleset = landlock.build(version, tree.policy())

        def enter(ruleset: Ruleset = ruleset) -> int:
            no_new_privs()
            return landlock.apply(Kernel(), ruleset)

        assert in_child(enter) > 0


@pytest.mark.elsewhere
def test_a_bit_above_the_kernel_s_abi_is_refused_by_it() -> None:
    """The control for the masks: a ruleset of a newer row than the kernel's does not pass unnoticed."""
    if ABI >= 11:
        pytest.skip("this kernel has all that the table has")
    newer = next(row for row in ABIS if row.abi > ABI and row.fs != ABIS[ABI - 1].fs)
    ruleset = Ruleset(newer.abi, newer, net=0, rules=())
    assert in_child(lambda: met(lambda: landlock.apply(Kernel(), ruleset))) == errno.EINVAL
