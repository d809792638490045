"""Guarantees: what a run can measure of its walls, by name, and which of them a profile cannot do without.

A guarantee is one bit, true only where a run measured it (`launcher.run.receipt`). A set of them has one spelling, so
that it can be bound by a grant.
"""

from launcher.access.judge import ALLOW, LEVELS
from launcher.access.profile import Profile
from launcher.access.scope import levels
from oci.refusal import Refusal, Refused

BITS = (
    "process_boundary",
    "write_boundary",
    "read_boundary",
    "env_scrub",
    "network_boundary",
    "address_network",
    "target_network",
    "resource_limits",
)

# What every run measures, or is not released.
ALWAYS = BITS[:6]


def needed(profile: Profile) -> tuple[str, ...]:
    """Return the guarantees without which a run would not be what its profile says.

    A write boundary is needed unless the workspace, every root and the rest of the bench may all be written, a read
    boundary unless they may all be read; the others are needed whatever a profile says.
    """
    closed = {
        "write_boundary": min(levels(profile, write=True).values()) < LEVELS.index(ALLOW),
        "read_boundary": min(levels(profile, write=False).values()) < LEVELS.index(ALLOW),
        "network_boundary": True,
        "address_network": True,
        "process_boundary": True,
        "env_scrub": True,
    }
    return tuple(name for name in BITS if closed.get(name, False))


def spell(names: "tuple[str, ...]") -> str:
    """Return the one text of a set of guarantees; raises Refused (`unknown-guarantee`) for one that is none."""
    unknown = sorted(set(names) - set(BITS))
    if unknown:
        text = f"{', '.join(unknown)} is no guarantee"
        raise Refused([Refusal("unknown-guarantee", text, f"one of {', '.join(BITS)}")])
    return ",".join(name for name in BITS if name in names)
