"""The probes as data: what each tries, the claim it backs, and the effect that would be seen if nothing stopped it.

Pure. Text arguments are templates over `Scene.names`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from launcher.conformance.claims import ADDRESS, ENV, LIFETIME, LIMITS, NETWORK, PROCESS, READ, WRITE
from launcher.conformance.subject import Target

# What the scene asks an executor that claims resource_limits to keep.
DESCRIPTORS = 64

# Effects: the answer holds a text; a file of this machine holds the attempt's token; a file is gone; the scene's
# listeners heard the token; its process was signalled; its lock is held.
SAYS, HOLDS, GONE, HEARD, SIGNALLED, LOCKED = "says", "holds", "gone", "heard", "signalled", "locked"


class Probe(NamedTuple):
    """One promise: `attempt` is a kind of `inside` and its arguments, `effect` and `of` what is looked for after it.

    With `opens` the promise is that the effect is seen; otherwise that it is not.
    """

    claim: str
    promise: str
    attempt: tuple[str | int, ...]
    effect: str
    of: str = ""
    opens: bool = False

    @property
    def name(self) -> str:
        """Return the part of the matrix that this is."""
        return f"{self.claim}: {self.promise}"


FIXED = (
    Probe(WRITE, "what was given is writable", ("write", "{work}/given", "{token}"), HOLDS, "{work_here}/given", True),
    Probe(WRITE, "no new file outside", ("write", "{outside}/new", "{token}"), HOLDS, "{outside}/new"),
    Probe(WRITE, "no file outside is overwritten", ("write", "{outside}/file", "{token}"), HOLDS, "{outside}/file"),
    Probe(WRITE, "no file outside is removed", ("remove", "{outside}/kept"), GONE, "{outside}/kept"),
    Probe(WRITE, "nothing through a link", ("write", "{work}/to_linked", "{token}"), HOLDS, "{outside}/linked"),
    Probe(WRITE, "nothing beside the given", ("write", "{work}/../outside/up", "{token}"), HOLDS, "{outside}/up"),
    Probe(WRITE, "nothing where only reading is given", ("write", "{read}/new", "{token}"), HOLDS, "{read_here}/new"),
    Probe(READ, "what was given is readable", ("read", "{read}/given"), SAYS, "{given}", True),
    Probe(READ, "no file outside", ("read", "{outside}/secret"), SAYS, "{secret}"),
    Probe(READ, "nothing through a link", ("read", "{work}/to_secret"), SAYS, "{secret}"),
    Probe(READ, "nothing beside the given", ("read", "{work}/../outside/secret"), SAYS, "{secret}"),
    Probe(READ, "nothing by one's own root", ("read", "/proc/self/root{outside}/secret"), SAYS, "{secret}"),
    Probe(READ, "nothing by a process's root", ("read", "/proc/{pid}/root{outside}/secret"), SAYS, "{secret}"),
    Probe(ENV, "none in one's own variables", ("variable", "{name}"), SAYS, "{marker}"),
    Probe(ENV, "none in another process's", ("each_process", "environ", "{name}"), SAYS, "{marker}"),
    Probe(PROCESS, "no process outside is seen", ("each_process", "cmdline", "{mark}"), SAYS, "{mark}"),
    Probe(PROCESS, "no process outside is signalled", ("kill", "{pid:d}"), SIGNALLED),
    Probe(PROCESS, "no nameless socket outside is reached", ("abstract", "{mark}", "{token}"), HEARD),
    Probe(PROCESS, "no privilege by executing", ("privileges",), SAYS, "NoNewPrivs:0"),
    Probe(PROCESS, "no new user namespace", ("new_user_namespace",), SAYS, "done"),
    Probe(NETWORK, "no TCP to this machine's loopback", ("connect", "tcp", "127.0.0.1", "{port:d}", "{token}"), HEARD),
    Probe(NETWORK, "no UDP to this machine's loopback", ("connect", "udp", "127.0.0.1", "{port:d}", "{token}"), HEARD),
    Probe(NETWORK, "no TCP to this machine's address", ("connect", "tcp", "{address}", "{port:d}", "{token}"), HEARD),
    Probe(LIMITS, f"at most {DESCRIPTORS} descriptors", ("descriptors", 2 * DESCRIPTORS), SAYS, "done"),
    Probe(LIFETIME, "nothing lives on", ("linger", "{work}/lock", "{work}/stop"), LOCKED, "{work_here}/lock"),
)


IPV6 = (
    Probe(NETWORK, "no TCP to this machine's IPv6 loopback", ("connect", "tcp", "::1", "{port:d}", "{token}"), HEARD),
    Probe(NETWORK, "no UDP to this machine's IPv6 loopback", ("connect", "udp", "::1", "{port:d}", "{token}"), HEARD),
    Probe(
        NETWORK, "no TCP to this machine's IPv6 address", ("connect", "tcp", "{address6}", "{port:d}", "{token}"), HEARD
    ),
)


def probes(allowed: Sequence[Target], denied: Sequence[Target], *, ipv6: bool) -> list[Probe]:
    """Return the whole matrix, with the places of the network that the caller names; `ipv6` is whether there is any."""
    found = [*FIXED, *(IPV6 if ipv6 else ())]
    for target in denied:
        found += [_target(claim, f"no {target}", target) for claim in (NETWORK, ADDRESS)]
    return found + [_target(ADDRESS, f"{target} is open", target, opens=True) for target in allowed]


def _target(claim: str, promise: str, target: Target, *, opens: bool = False) -> Probe:
    kind = "udp-asked" if target.protocol == "udp" else target.protocol
    attempt = ("connect", kind, target.host, target.port, target.payload.hex())
    return Probe(claim, promise, attempt, SAYS, "reached", opens)
