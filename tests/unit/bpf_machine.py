"""Classic BPF as seccomp runs it, and what the deny list says by itself: two ways to the same answer."""

import struct
from dataclasses import dataclass

from launcher.seccomp.table import Arch, Deny

KILL, ERRNO, ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
ENOSYS = 38


@dataclass(frozen=True)
class Call:
    """A system call as a filter sees it: struct seccomp_data."""

    nr: int
    arch: int
    args: tuple[int, ...] = (0, 0, 0, 0, 0, 0)

    def data(self) -> bytes:
        """Return the 64 bytes of struct seccomp_data on a little-endian machine."""
        return struct.pack("<IIQ6Q", self.nr, self.arch, 0, *self.args)


def run(program: bytes, call: Call) -> int:
    """Return the filter's verdict; raises on anything that the kernel's checker would refuse too."""
    ops = [struct.unpack_from("<HBBI", program, at) for at in range(0, len(program), 8)]
    data, accumulator, at = call.data(), 0, 0
    while True:
        code, yes, no, k = ops[at]
        at += 1
        if code == 0x20:  # ld [k]
            (accumulator,) = struct.unpack_from("<I", data, k)
        elif code == 0x54:  # and #k
            accumulator &= k
        elif code == 0x05:  # ja k
            at += k
        elif code in {0x15, 0x25, 0x35, 0x45}:
            holds = {0x15: accumulator == k, 0x25: accumulator > k, 0x35: accumulator >= k, 0x45: accumulator & k != 0}
            at += yes if holds[code] else no
        elif code == 0x06:  # ret #k
            return int(k)
        else:
            raise ValueError(f"opcode {code:#x}")


def verdict(arch: Arch, deny: tuple[Deny, ...], call: Call) -> int:
    """Return what the deny list and its promises say of a call, without any program."""
    if call.arch != arch.audit:
        return KILL
    if arch.x32 and call.nr >= 0x40000000 and call.nr != 0xFFFFFFFF:
        return KILL
    if not any(first <= call.nr <= last for first, last in arch.known):
        return ERRNO | ENOSYS
    for rule in deny:
        if rule.number(arch) == call.nr and all(test.holds(call.args[test.argument]) for test in rule.tests):
            return ERRNO | rule.errno
    return ALLOW
