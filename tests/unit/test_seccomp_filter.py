"""The compiled filter against the deny list it came from, on both machines, and the list's own shape."""

import ctypes
import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.seccomp import bpf, table, text
from launcher.seccomp.table import AARCH64, ARCHES, X86_64, Arch, Deny
from oci.refusal import Refused
from tests.unit.bpf_machine import ALLOW, ERRNO, KILL, Call, run, verdict

RULES = table.rules()
PROGRAMS = {arch.name: bpf.compile_filter(arch, RULES) for arch in ARCHES.values()}
AUDIT_ARCH_I386, AUDIT_ARCH_ARM = 0x40000003, 0x40000028
BY_NAME = pytest.mark.parametrize("arch", ARCHES.values(), ids=lambda arch: arch.name)
VALUES = sorted({value for rule in RULES for test in rule.tests for value in test.values})
INTERESTING = st.sampled_from(
    [*VALUES, 0o755, 0o2755, 0o4755, 3, 5, 17, 38, 40, 43, 132, 136, 262, 0x10000000, 0x20000011, 0x7E020000]
)
WORDS = INTERESTING | st.integers(0, 0xFFFFFFFF)
ARGUMENTS = st.builds(lambda low, high: low | high << 32, WORDS, st.just(0) | st.integers(0, 0xFFFFFFFF))
NUMBERS = st.sampled_from([rule.x86_64 or 0 for rule in RULES] + [rule.aarch64 or 0 for rule in RULES])


def call(arch: Arch, nr: int, *args: int) -> int:
    """Return the compiled filter's verdict on a call."""
    return run(PROGRAMS[arch.name], Call(nr, arch.audit, (*args, *[0] * (6 - len(args)))))


def number(arch: Arch, name: str) -> int:
    """Return a denied call's number."""
    return next(rule.number(arch) or 0 for rule in RULES if rule.call == name)


@BY_NAME
@settings(max_examples=600)
@given(
    nr=NUMBERS | st.integers(0, 500) | st.integers(0, 0xFFFFFFFF),
    args=st.tuples(*[ARGUMENTS] * 6),
    machine=st.sampled_from([X86_64.audit, AARCH64.audit, AUDIT_ARCH_I386, AUDIT_ARCH_ARM]),
)
def test_the_filter_says_what_the_list_says(arch: Arch, nr: int, args: tuple[int, ...], machine: int) -> None:
    """Whatever is called with whatever arguments, program and list agree."""
    asked = Call(nr, machine, args)
    assert run(PROGRAMS[arch.name], asked) == verdict(arch, RULES, asked)


@BY_NAME
def test_every_rule_is_in_the_filter(arch: Arch) -> None:
    """Each rule without a condition answers with its errno."""
    for rule in table.on(arch, RULES):
        if not rule.tests:
            assert call(arch, rule.number(arch) or 0) == ERRNO | rule.errno, rule.call


@BY_NAME
def test_sockets(arch: Arch) -> None:
    """What tools need passes; families, types and protocols that they do not need fail, each with its errno."""
    nr, pair = number(arch, "socket"), number(arch, "socketpair")
    cloexec, nonblock = 0o2000000, 0o4000
    for family in (2, 10):
        assert call(arch, nr, family, 1 | cloexec, 0) == ALLOW
        assert call(arch, nr, family, 1 | nonblock, 6) == ALLOW
        assert call(arch, nr, family, 2 | cloexec | nonblock, 17) == ALLOW
        assert call(arch, nr, family, 3, 255) == ERRNO | errno.EPERM
        assert call(arch, nr, family, 3 | cloexec, 0) == ERRNO | errno.EPERM
        assert call(arch, nr, family, 5, 0) == ERRNO | errno.ESOCKTNOSUPPORT
        assert call(arch, nr, family, 6, 33) == ERRNO | errno.ESOCKTNOSUPPORT
        assert call(arch, nr, family, 1, 262) == ERRNO | errno.EPROTONOSUPPORT
        assert call(arch, nr, family, 1, 132) == ERRNO | errno.EPROTONOSUPPORT
        assert call(arch, nr, family, 2, 136) == ERRNO | errno.EPROTONOSUPPORT
    assert call(arch, nr, 1, 5, 0) == ALLOW
    assert call(arch, nr, 16, 3 | cloexec, 0) == ALLOW, "getifaddrs: NETLINK_ROUTE is a raw socket"
    for protocol in (4, 9, 12, 15):
        assert call(arch, nr, 16, 3, protocol) == ERRNO | errno.EAFNOSUPPORT
    for family in (0, 3, 17, 21, 38, 40, 43, 44, 45):
        assert call(arch, nr, family, 2, 0) == ERRNO | errno.EAFNOSUPPORT
    assert call(arch, pair, 1, 1, 0) == ALLOW
    assert call(arch, pair, 2, 1, 0) == ERRNO | errno.EAFNOSUPPORT


@BY_NAME
@given(flags=st.integers(0, 0xFFFFFFFF), high=st.integers(0, 0xFFFFFFFF))
def test_clone_is_for_threads_and_processes(arch: Arch, flags: int, high: int) -> None:
    """Any CLONE_NEW flag is denied, anything else passes, whatever the register's upper half."""
    expected = ERRNO | errno.EPERM if flags & 0x7E020000 else ALLOW
    assert call(arch, number(arch, "clone"), flags | high << 32) == expected


@BY_NAME
def test_a_request_s_upper_half_does_not_hide_it(arch: Arch) -> None:
    """The kernel reads ioctl's request as an int: TIOCSTI with rubbish above it is TIOCSTI."""
    nr = number(arch, "ioctl")
    for request in (0x5412, 0x541C):
        for high in (0, 1, 0xFFFFFFFF):
            assert call(arch, nr, 1, request | high << 32) == ERRNO | errno.EPERM
    assert call(arch, nr, 1, 0x5413) == ALLOW, "TIOCGWINSZ"
    assert call(arch, nr, 1, 0x5401) == ALLOW, "TCGETS"


def test_foreign_entry_is_killed() -> None:
    """i386, arm and x32 calls have other numbers: no rule here could judge them."""
    assert run(PROGRAMS["x86_64"], Call(39, AUDIT_ARCH_I386)) == KILL
    assert run(PROGRAMS["aarch64"], Call(39, AUDIT_ARCH_ARM)) == KILL
    assert call(X86_64, 0x40000000 | 39) == KILL
    assert call(X86_64, 0xFFFFFFFF) == ERRNO | errno.ENOSYS, "syscall(-1) is no x32 call"


@BY_NAME
def test_a_call_newer_than_the_table_is_not_there(arch: Arch) -> None:
    """What a newer kernel brings answers as if the kernel did not have it."""
    assert call(arch, arch.last + 1) == ERRNO | errno.ENOSYS
    assert call(arch, 400) == ERRNO | errno.ENOSYS, "a number between the tables"
    assert call(arch, arch.last) == ALLOW


@BY_NAME
def test_what_nested_walls_need_stays(arch: Arch) -> None:
    """Landlock's calls pass, and so do seccomp and prctl."""
    others = {"x86_64": (317, 157), "aarch64": (277, 167)}[arch.name]
    for nr in (444, 445, 446, *others):
        assert call(arch, nr) == ALLOW


def test_tracing_is_an_option() -> None:
    """With it ptrace passes, and nothing else changes."""
    traced = table.rules(ptrace=True)
    assert {rule.call for rule in RULES} - {rule.call for rule in traced} == {"ptrace"}
    program = bpf.compile_filter(X86_64, traced)
    assert run(program, Call(101, X86_64.audit)) == ALLOW


def test_numbers_are_libseccomp_s() -> None:
    """Every number is the one that libseccomp knows for the name, on both machines."""
    resolve = ctypes.CDLL("libseccomp.so.2").seccomp_syscall_resolve_name_arch
    unknown: set[str] = set()
    for rule in RULES:
        for arch in ARCHES.values():
            known = resolve(ctypes.c_uint32(arch.audit), rule.call.encode())
            if known == -1:
                unknown.add(rule.call)
            else:
                assert rule.number(arch) == (known if known >= 0 else None), (rule.call, arch.name)
    assert unknown <= {"open_tree_attr", "lsm_set_self_attr", "quotactl_fd"}, "newer than some libseccomp in use"


def test_the_text_has_every_rule_in_order() -> None:
    """What people review names each rule once, in the filter's order, with its errno and its reason."""
    lines = text.lines(X86_64, RULES)
    assert lines[0] == f"seccomp arch=x86_64 rules={len(RULES)}"
    body = lines[3:-1]
    assert len(body) == len(RULES)
    for line, rule in zip(body, RULES, strict=True):
        assert line.split()[0] == errno.errorcode[rule.errno]
        assert line.split()[1].rstrip(":") == rule.call
        assert line.endswith(rule.why)
        assert all(test.words in line for test in rule.tests)
    assert lines[-1] == "ALLOW  the rest"
    assert "iopl" not in "\n".join(text.lines(AARCH64, RULES)), "aarch64 has no such call"


def test_a_rule_is_reachable() -> None:
    """No call that is always denied has another rule, and no two rules are the same."""
    for rule in RULES:
        others = [other for other in RULES if other.call == rule.call and other is not rule]
        assert rule.tests or not others
        assert rule not in others


def test_an_unknown_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without numbers is refused by name, never given another's."""
    assert table.this_machine().name in ARCHES
    monkeypatch.setattr("os.uname", lambda: type("U", (), {"machine": "riscv64"}))
    with pytest.raises(Refused, match="riscv64"):
        table.this_machine()


def test_an_impossible_jump_is_no_program() -> None:
    """A label too far away, behind or missing raises instead of jumping somewhere else."""
    far = [bpf.Op(bpf.JMP_JEQ_K, 1, yes="end"), *[bpf.Op(bpf.RET_K, 0)] * 256, bpf.Op(bpf.RET_K, 0, label="end")]
    behind = [bpf.Op(bpf.RET_K, 0, label="start"), bpf.Op(bpf.JMP_JEQ_K, 1, yes="start")]
    for ops in (far, behind, [bpf.Op(bpf.JMP_JEQ_K, 1, yes="nowhere")]):
        with pytest.raises(ValueError, match="no jump"):
            bpf.assemble(ops)
    assert len(bpf.assemble([*far[:1], *far[2:]])) == 8 * 257


def test_a_longer_list_still_compiles() -> None:
    """There is room for more rules before the one-byte jumps of classic BPF are full."""
    extra = tuple(Deny(f"call{nr}", nr, nr, errno.EPERM, "more") for nr in range(60))
    assert bpf.compile_filter(X86_64, (*RULES, *extra))
