"""The syscall wall inside the container: load the filter that the bench compiled, and see that it took.

The bytes come from /run/card-runtime (launcher.seccomp makes them). Imports the system call layer.
"""

import errno

from launcher.stage2.syscalls import Kernel
from oci.refusal import Refusal, Refused

INSTRUCTION = 8  # sizeof(struct sock_filter)
MOST = 4096  # BPF_MAXINSNS


def load(kernel: Kernel, program: bytes) -> None:
    """Put the filter on this thread, for good; raises Refused when it is no filter, OSError when the kernel says no."""
    if not program or len(program) % INSTRUCTION or len(program) > MOST * INSTRUCTION:
        raise Refused([Refusal("seccomp-malformed", f"the filter has {len(program)} bytes")])
    kernel.seccomp(program)


def denies(kernel: Kernel) -> bool:
    """Return whether unshare(2) with no flags, which otherwise does nothing and succeeds, is denied with EPERM."""
    try:
        kernel.unshare(0)
    except OSError as error:
        return error.errno == errno.EPERM
    return False
