"""Which guarantees a profile needs: every wall that holds something of it."""

from typing import Any

from hypothesis import given

from launcher.access import guarantees
from launcher.access.judge import ALLOW
from launcher.access.profile import Profile, Root
from tests.unit.access_profiles import PROFILES

OPEN: dict[str, Any] = {"host_read": ALLOW, "host_write": ALLOW, "workspace_read": ALLOW, "workspace_write": ALLOW}


def test_a_closed_workspace_needs_its_wall() -> None:
    """Where the rest of the bench may be written and read, what the workspace closes is held by a wall too."""
    needed = guarantees.needed(Profile(workspace="/w", **OPEN))
    assert not {"write_boundary", "read_boundary"} & set(needed)
    kept = guarantees.needed(Profile(workspace="/w", **{**OPEN, "workspace_write": "deny"}))
    assert set(kept) - set(needed) == {"write_boundary"}
    shut = guarantees.needed(Profile(workspace="/w", **{**OPEN, "workspace_write": "gated", "workspace_read": "gated"}))
    assert set(shut) - set(needed) == {"write_boundary", "read_boundary"}
    root = guarantees.needed(Profile(workspace="/w", roots=(Root(path="/r", read=ALLOW),), **OPEN))
    assert set(root) - set(needed) == {"write_boundary"}


@given(PROFILES)
def test_boundaries_are_needed_wherever_something_is_closed(profile: Profile) -> None:
    """A boundary is left out for a profile that allows that kind of access of every place, and for no other."""
    needed = set(guarantees.needed(profile))
    writing = {profile.host_write, profile.workspace_write, *(root.write for root in profile.roots)}
    reading = {profile.host_read, profile.workspace_read, *(root.read for root in profile.roots)}
    assert ("write_boundary" in needed, "read_boundary" in needed) == (writing != {ALLOW}, reading != {ALLOW})
    assert {"process_boundary", "env_scrub", "network_boundary", "address_network"} <= needed
    assert needed <= set(guarantees.ALWAYS)
