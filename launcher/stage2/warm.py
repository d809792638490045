"""A warm card's wait: stage 2 started ahead, behind a table that denies all, until a run takes it.

The rule: what was true before the wait counts for nothing after it. The configuration is read anew, and the second
proof, which only the swap of the table writes, must carry the taker's own nonce; the first is not looked at again, so
the table that denies all cannot be taken for the run's own. The worker's standard streams come with the taker's word.
Imported by a warm card alone.
"""

import os

from launcher.stage2 import channel, selftest
from launcher.stage2.syscalls import Kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from launcher.stage2.conf import Conf

WORD = "warm"
# What `streams` says of the descriptors that came along.
STREAMS = {"output": (1, 2), "all": (1, 2, 0)}


def wait(kernel: Kernel, config: "Conf", hello: "dict[str, list[str]]", report_fd: int) -> "dict[str, list[str]]":
    """Check the first proof, feel the wall, say so and wait; return what the taker says.

    Raises Refused for a wall that is not there, or a taker that brings no new nonce or no streams; EOFError when no
    taker will come any more.
    """
    nonce = hello.get("nonce", [""])[0]
    facts = [*selftest.proof(kernel, config.run, nonce), *selftest.egress(kernel, config)]
    channel.send(report_fd, [("status", WORD), *facts])
    taker, descriptors = channel.receive_with(kernel, report_fd)
    if taker.get("nonce", [nonce]) == [nonce]:
        raise selftest.refuse("proof-mismatch", "the taker brought no nonce of its own")
    places = STREAMS.get(taker.get("streams", [""])[0], ())
    if not places or len(places) != len(descriptors):
        raise selftest.refuse("frame-malformed", f"{len(descriptors)} descriptors are not the worker's streams")
    for descriptor, place in zip(descriptors, places, strict=True):
        os.dup2(descriptor, place)
        os.close(descriptor)
    return taker
