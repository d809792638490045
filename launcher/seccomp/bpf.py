"""The deny list as a classic BPF program: the bytes that stage 2 hands to seccomp.

A small assembler with labels, because libseccomp does not know the newest calls by name and would have to be on the
bench. The program checks the architecture first, then x32, then calls newer than the table, then the rules in order.
See seccomp(2), include/uapi/linux/bpf_common.h and include/uapi/linux/filter.h.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from launcher.seccomp.table import Arch, Deny, Test, on

# include/uapi/linux/bpf_common.h
LD_W_ABS = 0x20
ALU_AND_K = 0x54
JMP_JEQ_K = 0x15
JMP_JGE_K = 0x35
JMP_JGT_K = 0x25
RET_K = 0x06

# include/uapi/linux/seccomp.h: struct seccomp_data is nr, arch, instruction_pointer, args[6]
OFFSET_NR = 0
OFFSET_ARCH = 4
OFFSET_ARGS = 16
RET_KILL_PROCESS = 0x80000000
RET_ERRNO = 0x00050000
RET_ALLOW = 0x7FFF0000

X32_BIT = 0x40000000
NO_CALL = 0xFFFFFFFF  # a tracer's way to skip a call, and what syscall(-1) asks for: no x32 call
ENOSYS = 38
NEXT = ""


@dataclass(frozen=True, slots=True)
class Op:
    """One instruction; `yes` and `no` are labels, NEXT being the instruction that follows."""

    code: int
    k: int
    yes: str = NEXT
    no: str = NEXT
    label: str = NEXT


def assemble(ops: list[Op]) -> bytes:
    """Return the program's bytes; raises ValueError for a label that is missing, behind, or too far away."""
    places = {op.label: index for index, op in enumerate(ops) if op.label}
    return b"".join(
        struct.pack("=HBBI", op.code, _jump(places, index, op.yes), _jump(places, index, op.no), op.k)
        for index, op in enumerate(ops)
    )


def _jump(places: dict[str, int], index: int, label: str) -> int:
    if label == NEXT:
        return 0
    distance = places.get(label, -1) - index - 1
    if not 0 <= distance <= 255:
        raise ValueError(f"no jump from {index} to {label!r}")
    return distance


def compile_filter(arch: Arch, deny: tuple[Deny, ...]) -> bytes:
    """Return the filter of a deny list for a machine."""
    ops = [*_entry(arch), *_known(arch)]
    for index, rule in enumerate(on(arch, deny)):
        ops += _rule(arch, rule, f"rule {index}")
    ops.append(Op(RET_K, RET_ALLOW))
    ops.append(Op(RET_K, RET_KILL_PROCESS, label="kill"))
    errors = {rule.errno for rule in deny} | {ENOSYS}
    ops += [Op(RET_K, RET_ERRNO | error, label=f"errno {error}") for error in sorted(errors)]
    return assemble(ops)


def _entry(arch: Arch) -> Iterator[Op]:
    """Yield the checks that a call is the machine's own: i386 and x32 calls have other numbers than the table."""
    yield Op(LD_W_ABS, OFFSET_ARCH)
    yield Op(JMP_JEQ_K, arch.audit, no="kill")
    yield Op(LD_W_ABS, OFFSET_NR)
    if arch.x32:
        yield Op(JMP_JEQ_K, NO_CALL, yes=f"errno {ENOSYS}")
        yield Op(JMP_JGE_K, X32_BIT, yes="kill")


def _known(arch: Arch) -> Iterator[Op]:
    """Yield the answer to calls that this table does not know: as if the kernel did not have them either."""
    yield Op(JMP_JGT_K, arch.last, yes=f"errno {ENOSYS}")
    for (_, below), (above, _) in zip(arch.known, arch.known[1:], strict=False):
        yield Op(JMP_JGE_K, above, yes=f"above {above}")
        yield Op(JMP_JGT_K, below, yes=f"errno {ENOSYS}")
        yield Op(LD_W_ABS, OFFSET_NR, label=f"above {above}")


def _rule(arch: Arch, rule: Deny, label: str) -> Iterator[Op]:
    number = rule.number(arch)
    assert number is not None  # noqa: S101 - `on` left only calls that exist
    verdict = f"errno {rule.errno}"
    if not rule.tests:
        yield Op(JMP_JEQ_K, number, yes=verdict)
        return
    end = f"{label} end"
    yield Op(JMP_JEQ_K, number, no=end)
    for place, test in enumerate(rule.tests):
        passed = verdict if test is rule.tests[-1] else f"{label} test {place + 1}"
        yield from _test(test, passed, end)
        if passed != verdict:
            yield Op(LD_W_ABS, OFFSET_NR, label=passed)
    yield Op(LD_W_ABS, OFFSET_NR, label=end)


def _test(test: Test, passed: str, failed: str) -> Iterator[Op]:
    """Yield a test of an argument's low word (both machines are little-endian) that goes to one of two labels."""
    yield Op(LD_W_ABS, OFFSET_ARGS + 8 * test.argument)
    if test.mask != 0xFFFFFFFF:
        yield Op(ALU_AND_K, test.mask)
    found, absent = (passed, failed) if test.inside else (failed, passed)
    for value in test.values[:-1]:
        yield Op(JMP_JEQ_K, value, yes=found)
    yield Op(JMP_JEQ_K, test.values[-1], yes=found, no=absent)
