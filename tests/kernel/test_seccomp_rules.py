"""Every rule of the syscall wall on the real kernel: the same harmless call without the filter and behind it."""

import ctypes
import errno
import mmap
import os
import platform
import signal
import socket
import subprocess
import sys
import threading

import pytest

from launcher.seccomp import bpf, table
from launcher.seccomp.table import Deny
from launcher.stage2 import seccomp, selftest
from launcher.stage2.syscalls import Kernel
from tests.kernel.child import Killed, in_child, met, no_new_privs, raw

RULES = table.on(table.this_machine(), table.rules())
FILTER = bpf.compile_filter(table.this_machine(), table.rules())
ALL = (1 << 64) - 1
FLAGS = 0xFFFFFFFF
CLONE_NEWUSER, CLONE_FS = 0x10000000, 0x200
# Harmless arguments per call: whoever may make the call gets an error that is not the rule's, or nothing happens.
HARMLESS: dict[str, tuple[int, ...]] = {
    "mount": (0, 0, 0, 0, 0),
    "umount2": (0, 0),
    "pivot_root": (0, 0),
    "chroot": (0,),
    "open_tree": (ALL, 0, FLAGS),
    "move_mount": (ALL, 0, ALL, 0, FLAGS),
    "fsopen": (0, FLAGS),
    "fsconfig": (ALL, FLAGS, 0, 0, 0),
    "fsmount": (ALL, FLAGS, 0),
    "fspick": (ALL, 0, FLAGS),
    "mount_setattr": (ALL, 0, FLAGS, 0, 0),
    "open_tree_attr": (ALL, 0, FLAGS, 0, 0),
    "unshare": (0,),
    "setns": (ALL, 0),
    "clone3": (0, 0),
    "ptrace": (0x9999, ALL, 0, 0),
    "process_vm_readv": (0, 0, 0, 0, 0, 99),
    "process_vm_writev": (0, 0, 0, 0, 0, 99),
    "pidfd_getfd": (ALL, ALL, 0),
    "bpf": (9999, 0, 0),
    "perf_event_open": (0, 0, ALL, ALL, ALL),
    "userfaultfd": (FLAGS,),
    "modify_ldt": (99, 0, 0),
    "uselib": (0,),
    "lookup_dcookie": (0, 0, 0),
    "lsm_set_self_attr": (0, 0, 0, 99),
    "io_uring_setup": (0, 0),
    "io_uring_enter": (ALL, 0, 0, 0, 0, 0),
    "io_uring_register": (ALL, 0, 0, 0),
    "add_key": (0, 0, 0, 0, 0),
    "request_key": (0, 0, 0, 0),
    "keyctl": (9999, 0, 0, 0, 0),
    "name_to_handle_at": (ALL, 0, 0, 0, FLAGS),
    "open_by_handle_at": (ALL, 0, 0),
    "fanotify_init": (FLAGS, 0),
    "fanotify_mark": (ALL, 0, 0, ALL, 0),
    "kexec_load": (0, ALL, 0, FLAGS),
    "kexec_file_load": (ALL, ALL, 0, 0, FLAGS),
    "init_module": (0, 0, 0),
    "finit_module": (ALL, 0, FLAGS),
    "delete_module": (0, 0),
    "swapon": (0, FLAGS),
    "swapoff": (0,),
    "reboot": (0, 0, 0, 0),
    "settimeofday": (0, 0),
    "clock_settime": (9999, 0),
    "clock_adjtime": (9999, 0),
    "adjtimex": (0,),
    "acct": (1,),
    "quotactl": (FLAGS, 0, 0, 0),
    "quotactl_fd": (ALL, FLAGS, 0, 0),
    "syslog": (99, 0, 0),
    "iopl": (99,),
    "ioperm": (ALL, 1, 0),
    "sethostname": (0, 9999),
    "setdomainname": (0, 9999),
    "vhangup": (),
    "mbind": (0, 0, 99, 0, 0, 0),
    "set_mempolicy": (99, 0, 0),
    "get_mempolicy": (0, 0, 0, 0, 0),
    "migrate_pages": (ALL, 0, 0, 0),
    "move_pages": (0, 0, 0, 0, 0, 0),
    "set_mempolicy_home_node": (0, 0, 0, 99),
}
# For rules that look at arguments: the call, what must be denied, with which errno, and what must go as it did before.
CONDITIONAL = [
    ("socket", (17, 2, 0), errno.EAFNOSUPPORT, (1, 1, 0)),
    ("socket", (16, 3, 2), errno.EAFNOSUPPORT, (16, 3, 0)),
    ("socket", (2, 3, 1), errno.EPERM, (2, 2, 17)),
    ("socket", (10, 3, 58), errno.EPERM, (10, 1, 6)),
    ("socket", (2, 10, 0), errno.ESOCKTNOSUPPORT, (2, 1, 0)),
    ("socket", (2, 1, 300), errno.EPROTONOSUPPORT, (2, 1, 6)),
    ("socket", (ALL << 32 & ALL | 17, 2, 0), errno.EAFNOSUPPORT, (2, 2, 0)),
    ("socketpair", (2, 1, 0, 0), errno.EAFNOSUPPORT, (1, 1, 0, 0)),
    # CLONE_NEWUSER with CLONE_FS is EINVAL to the kernel itself, so nothing is ever made
    ("clone", (CLONE_NEWUSER | CLONE_FS, 0, 0, 0, 0), errno.EPERM, (CLONE_FS | 0x800, 0, 0, 0, 0)),
    ("ioctl", (ALL, 0x5412, 0), errno.EPERM, (ALL, 0x5413, 0)),
    ("ioctl", (ALL, 0x541C, 0), errno.EPERM, (ALL, 0x5401, 0)),
    ("ioctl", (ALL, 1 << 32 | 0x5412, 0), errno.EPERM, (ALL, 1 << 32 | 0x5413, 0)),
    *(("fchmod", (ALL, mode), errno.EPERM, (ALL, mode & 0o1777)) for mode in (0o4755, 0o2755, 0o6000, 0o7777)),
    ("chmod", (0, 0o4755), errno.EPERM, (0, 0o1755)),
    ("fchmodat", (ALL, 0, 0o4755), errno.EPERM, (ALL, 0, 0o1755)),
    ("fchmodat2", (ALL, 0, 0o102644, 0), errno.EPERM, (ALL, 0, 0o100644, 0)),
]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="without root the kernel's own EPERM hides the filter's")
x86_only = pytest.mark.skipif(platform.machine() != "x86_64", reason="i386 and x32 entry exist on x86_64 only")


def behind(*, filtered: bool, number: int, args: tuple[int, ...]) -> int:
    """Return the errno a call meets in a child, behind the filter or not."""

    def action() -> int:
        if filtered:
            no_new_privs()
            seccomp.load(Kernel(), FILTER)
        return raw(number, *args)

    return in_child(action)


def number_of(call: str) -> int:
    """Return a call's number on this machine."""
    return next(rule.number(table.this_machine()) or 0 for rule in RULES if rule.call == call)


@needs_root
@pytest.mark.parametrize("rule", [rule for rule in RULES if not rule.tests], ids=lambda rule: rule.call)
def test_a_call_that_is_always_denied(rule: Deny) -> None:
    """Behind the filter it is the rule's errno; without, anything but that."""
    number, args = number_of(rule.call), HARMLESS[rule.call]
    assert behind(filtered=False, number=number, args=args) != rule.errno
    assert behind(filtered=True, number=number, args=args) == rule.errno


@needs_root
@pytest.mark.parametrize(
    ("call", "args", "error", "passing"), [one for one in CONDITIONAL if one[0] in {rule.call for rule in RULES}]
)
def test_a_call_that_depends_on_its_arguments(
    call: str, args: tuple[int, ...], error: int, passing: tuple[int, ...]
) -> None:
    """The denied arguments meet the rule's errno only behind the filter; the others meet the same on both sides."""
    number = number_of(call)
    assert behind(filtered=False, number=number, args=args) != error
    assert behind(filtered=True, number=number, args=args) == error
    assert behind(filtered=False, number=number, args=passing) == behind(filtered=True, number=number, args=passing)


def test_no_rule_is_without_a_test() -> None:
    """Every call of the list is tried above."""
    tried = {call for call, *_ in CONDITIONAL} | set(HARMLESS)
    assert {rule.call for rule in table.rules()} == tried


def _i386_getpid() -> int:
    """Return what getpid by i386's entry returns: mov eax, 20; int 0x80; ret."""
    with mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as page:
        page.write(bytes.fromhex("b814000000cd80c3"))
        view = ctypes.c_char.from_buffer(page)
        result = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(view))()
        del view
        return int(result)


def _filtered(action: object) -> object:
    no_new_privs()
    seccomp.load(Kernel(), FILTER)
    assert callable(action)
    return action()


@pytest.mark.elsewhere
@x86_only
def test_i386_entry_is_killed() -> None:
    """A 64-bit process can enter the kernel as i386 does, with other numbers; behind the filter it is ended."""
    try:
        assert in_child(_i386_getpid) > 0
    except Killed as killed:
        # a kernel without IA32 emulation: there is no such entry, and int 0x80 faults
        assert killed.signal == signal.SIGSEGV  # noqa: PT017
    with pytest.raises(Killed) as error:
        in_child(lambda: _filtered(_i386_getpid))
    assert error.value.signal in {signal.SIGSYS, signal.SIGSEGV}


@pytest.mark.elsewhere
@x86_only
def test_x32_numbers_are_killed() -> None:
    """A number with x32's bit is ended behind the filter, whether the kernel has x32 or not."""
    assert in_child(lambda: raw(0x40000000 | 39)) in {0, errno.ENOSYS}
    with pytest.raises(Killed) as error:
        in_child(lambda: _filtered(lambda: raw(0x40000000 | 39)))
    assert error.value.signal == signal.SIGSYS


def test_a_call_of_the_future_is_not_there() -> None:
    """Above the table the answer is ENOSYS, as from a kernel that lacks the call."""
    assert in_child(lambda: _filtered(lambda: raw(table.this_machine().last + 40))) == errno.ENOSYS


def _ordinary_life() -> list[str]:
    """Do what tools do: threads, children, pipes, sockets on loopback, name look-up, a terminal."""
    done: list[str] = []
    thread = threading.Thread(target=lambda: done.append("thread"))
    thread.start()
    thread.join()
    done.append(
        subprocess.run([sys.executable, "-I", "-c", "print(1)"], capture_output=True, check=True).stdout.decode()
    )
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        server.accept()[0].close()
        done.append(client.recv(1).decode())
    done += [str(socket.getaddrinfo("localhost", 80, proto=socket.IPPROTO_TCP) != []), str(socket.if_nameindex() != [])]
    master, slave = os.openpty()
    done.append(str(os.isatty(slave)))
    os.close(master)
    return done


def test_tools_keep_working() -> None:
    """The same ordinary life is led behind the filter as without it."""
    control = in_child(_ordinary_life)
    assert control[0] == "thread"
    assert in_child(lambda: _filtered(_ordinary_life)) == control


def test_the_self_test_sees_the_filter() -> None:
    """Without a filter there is no denial and no count; with it there are both."""

    def measure() -> tuple[bool, str, dict[str, str]]:
        kernel = Kernel()
        no_new_privs()
        before, open_before = selftest.status(kernel), seccomp.denies(kernel)
        seccomp.load(kernel, FILTER)
        facts = selftest.filtered(before, selftest.status(kernel), denied=seccomp.denies(kernel))
        return open_before, before["Seccomp"], dict(facts)

    denied_before, mode_before, facts = in_child(measure)
    assert (denied_before, mode_before) == (False, "0")
    assert (facts["seccomp_mode"], facts["seccomp_filters"], facts["seccomp_denied"]) == ("2", "1", "EPERM")


def test_a_filter_needs_no_new_privs() -> None:
    """The kernel refuses a filter from a process that could still gain privileges, and the error names the call."""

    def load() -> int:
        Kernel().close(Kernel().open("/dev/null", os.O_RDONLY))
        if os.geteuid() == 0:
            os.setresuid(65534, 65534, 65534)
        return met(lambda: seccomp.load(Kernel(), FILTER))

    assert in_child(load) == errno.EACCES
