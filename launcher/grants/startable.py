"""Whether a run could start at all with the grant that is asked for, so that no token is made that opens nothing.

The rule: nothing is judged here. The rules of a start are asked themselves, and of what they refuse only that counts
which no other grant, and no later moment, could change.
"""

from launcher import guard, launch, reach
from launcher.access.judge import GATED, LEVELS
from launcher.access.profile import Profile
from launcher.access.scope import READ, TREE, WRITE, access_for, levels
from launcher.bench import CeilingFile
from launcher.fs import policy as filesystem
from launcher.grants.classes import HOST_FORM, Class
from launcher.request import Request
from launcher.roots import Opened
from oci.refusal import Refusal

# Of the options alone, each of which a grant is tied to.
_OF_THE_OPTIONS = frozenset({
    "bad-run-id", "no-command", "bad-command", "bad-image", "bad-env", "podman-arg", "bad-path",
})  # fmt: skip
# Of where a path is, whatever is there.
_OF_THE_PLACE = frozenset({"path-reserved", "path-too-wide", "grants-exposed", "pool-exposed"})
_OF_THE_PROFILE = frozenset({"access-unenforceable", "ceiling-unenforceable"})


def refusals(request: Request, ceiling: CeilingFile | None, profile: Profile, cls: Class, target: str) -> list[Refusal]:
    """Return why a run would be refused whatever it is granted, or because of the target: that as `unsupported`.

    `profile` is what the request is held to, `target` a target of the class in its one spelling. Makes nothing.
    """
    found = launch.judge(request.replace(plan=True, grant=()))[1]
    barred = _mounted(cls, target) if cls.form and cls.form != HOST_FORM else []
    barred += [one for one in _opened(request, ceiling, profile) if one.reason in _OF_THE_PROFILE]
    return [
        *(one for one in found if one.reason in _OF_THE_OPTIONS),
        *(Refusal("unsupported", f"{cls.name}: {one.text}", one.hint) for one in barred),
    ]


def _mounted(cls: Class, target: str) -> list[Refusal]:
    """Return why the target could not be a root of a card."""
    asked = filesystem.Asked(look_only=True)
    asked = asked.replace(write=(target,), granted=(target,)) if cls.kind == WRITE else asked.replace(read=(target,))
    roots, found = filesystem.decide(asked, forbidden=guard.forbidden())
    return [one for one in (*found, *guard.secluded(roots)) if one.reason in _OF_THE_PLACE]


def _opened(request: Request, ceiling: CeilingFile | None, profile: Profile) -> list[Refusal]:
    """Return what would be refused of the request with a grant for every place that can have one."""
    gated = {
        kind: tuple(top for top in levels(profile, write=kind == WRITE) if top and _gated(profile, kind, top))
        for kind in (READ, WRITE)
    }
    return reach.bound(request, ceiling, Opened(read=gated[READ], write=gated[WRITE], command=True))[2]


def _gated(profile: Profile, kind: str, top: str) -> bool:
    return access_for(profile, kind, f"{TREE}{top}") == LEVELS.index(GATED)
