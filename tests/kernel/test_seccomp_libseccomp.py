"""podman's profile as the container runtime compiles it: through the real libseccomp, and judged call by call."""

import ctypes
import errno
import os
import tempfile
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from launcher.seccomp import profile, table
from launcher.seccomp.table import ARCHES, Arch
from tests.unit.bpf_machine import ALLOW, ERRNO, Call, run, verdict

RULES = table.rules()
OPERATORS = {"SCMP_CMP_NE": 1, "SCMP_CMP_LT": 2, "SCMP_CMP_LE": 3, "SCMP_CMP_EQ": 4, "SCMP_CMP_GE": 5, "SCMP_CMP_GT": 6,
             "SCMP_CMP_MASKED_EQ": 7}  # fmt: skip
BASE: dict[str, Any] = {
    "defaultAction": "SCMP_ACT_ERRNO",
    "defaultErrnoRet": 38,
    "syscalls": [
        {"names": [*(rule.call for rule in RULES), "read", *profile.NEEDED], "action": "SCMP_ACT_ALLOW", "args": []}
    ],
}


class Compare(ctypes.Structure):
    """struct scmp_arg_cmp of seccomp_rule_add(3)."""

    _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


def compiled(content: dict[str, Any], arch: Arch) -> bytes:
    """Return the BPF that libseccomp makes of a profile for a machine, as crun and runc have it made."""
    lib = ctypes.CDLL("libseccomp.so.2")
    lib.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(lib.seccomp_init(ctypes.c_uint32(ERRNO | content["defaultErrnoRet"])))
    native = lib.seccomp_arch_native
    native.restype = ctypes.c_uint32
    if native() != arch.audit:
        assert lib.seccomp_arch_add(context, ctypes.c_uint32(arch.audit)) == 0
        assert lib.seccomp_arch_remove(context, ctypes.c_uint32(native())) == 0
    for entry in content["syscalls"]:
        action = ALLOW if entry["action"] == "SCMP_ACT_ALLOW" else ERRNO | entry["errnoRet"]
        if action != ERRNO | content["defaultErrnoRet"]:
            for name in entry["names"]:
                _add(lib, context, action, name, entry["args"])
    with tempfile.TemporaryFile() as file:
        assert lib.seccomp_export_bpf(context, file.fileno()) == 0
        lib.seccomp_release(context)
        file.seek(0)
        return file.read()


def _add(lib: ctypes.CDLL, context: ctypes.c_void_p, action: int, name: str, args: list[dict[str, Any]]) -> None:
    number = lib.seccomp_syscall_resolve_name(name.encode())
    if number == -1:
        return  # crun skips names that its libseccomp does not know
    tests = [Compare(arg["index"], OPERATORS[arg["op"]], arg["value"], arg["valueTwo"]) for arg in args]
    array = (Compare * max(len(tests), 1))(*tests)
    result = lib.seccomp_rule_add_array(context, ctypes.c_uint32(action), number, ctypes.c_uint(len(tests)), array)
    # EDOM: a call that this machine does not have
    assert result == 0 or (result == -errno.EDOM and not args), (name, args, os.strerror(-result))


PROGRAMS = {arch.name: compiled(profile.apply(BASE, RULES), arch) for arch in ARCHES.values()}
VALUES = sorted({value for rule in RULES for test in rule.tests for value in test.values})
LOW = st.sampled_from(
    [*VALUES, 3, 5, 9, 38, 40, 132, 262, 0o755, 0o2755, 0o4755, 0x5413, 0x80002, 0x10000000]
) | st.integers(0, 0xFFFFFFFF)
CONDITIONAL = sorted({rule.call for rule in RULES if rule.tests})
BY_NAME = pytest.mark.parametrize("arch", ARCHES.values(), ids=lambda arch: arch.name)


def number(arch: Arch, call: str) -> int:
    """Return a call's number on a machine."""
    return next(rule.number(arch) or 0 for rule in RULES if rule.call == call)


@BY_NAME
@settings(max_examples=1500, deadline=None, database=None)
@given(call=st.sampled_from(CONDITIONAL), args=st.tuples(*[LOW] * 6))
def test_libseccomp_understands_the_patterns(arch: Arch, call: str, args: tuple[int, ...]) -> None:
    """What the list allows passes; what it denies is denied, with the list's errno or the default's."""
    assume(number(arch, call))  # not every machine has every call
    asked = Call(number(arch, call), arch.audit, args)
    expected, found = verdict(arch, RULES, asked), run(PROGRAMS[arch.name], asked)
    assert found == expected or (expected != ALLOW and found == ERRNO | errno.ENOSYS)


@BY_NAME
@settings(max_examples=500, deadline=None, database=None)
@given(call=st.sampled_from(CONDITIONAL), args=st.tuples(*[LOW] * 6), high=st.integers(1, 0xFFFFFFFF))
def test_an_upper_half_opens_nothing(arch: Arch, call: str, args: tuple[int, ...], high: int) -> None:
    """Whatever stands above an argument's low 32 bits, what the list denies stays denied."""
    asked = Call(number(arch, call), arch.audit, tuple(arg | high << 32 for arg in args))
    assert verdict(arch, RULES, asked) == ALLOW or run(PROGRAMS[arch.name], asked) != ALLOW


@BY_NAME
def test_calls_that_are_always_denied(arch: Arch) -> None:
    """Each meets the list's errno; one that libseccomp has no name for meets the default."""
    for rule in table.on(arch, RULES):
        if not rule.tests:
            found = run(PROGRAMS[arch.name], Call(rule.number(arch) or 0, arch.audit))
            assert found in {ERRNO | rule.errno, ERRNO | errno.ENOSYS}, rule.call


@BY_NAME
def test_what_podman_allows_and_the_list_does_not_name_stays(arch: Arch) -> None:
    """The control: calls outside the list pass as before."""
    for call in {"x86_64": (0, 157), "aarch64": (63, 167)}[arch.name]:
        assert run(PROGRAMS[arch.name], Call(call, arch.audit)) == ALLOW


def test_a_rule_without_conditions_would_swallow_the_others() -> None:
    """Why the calls are taken out of podman's own entries: with one left in, libseccomp drops the conditions."""
    arch = ARCHES["x86_64"]
    content = profile.apply(BASE, RULES)
    kept = {"names": ["socket"], "action": "SCMP_ACT_ALLOW", "args": []}
    program = compiled({**content, "syscalls": [*content["syscalls"], kept]}, arch)
    vsock = Call(41, arch.audit, (40, 1, 0, 0, 0, 0))
    assert (run(program, vsock), run(PROGRAMS["x86_64"], vsock)) == (ALLOW, ERRNO | errno.EAFNOSUPPORT)
