"""A person's yes, made a token: what an approval product and `card grant issue` call.

The rule: the run is described once, by its request, and everything a grant is tied to is read from that and from the
bench. Whether it may be granted at all is `launcher.grants.desk`'s to say.
"""

import shlex

from launcher import bench
from launcher.grants import classes, desk, opening, startable, state
from launcher.grants.token import Grant
from launcher.launch import default_policy
from launcher.request import Request
from oci.refusal import Refused


def approve(
    request: Request, *, cls: str, target: str = "", seconds: int | None = None, required: tuple[str, ...] = ()
) -> tuple[str, Grant]:
    """Return a new token for the run that a request describes, and its grant; raises Refused, and then there is none.

    `seconds` is how long it is good (default: the most that the bench allows); `required` are guarantees that the run
    must have measured beyond those that its profile needs. The token is a secret: hand it to nobody but the run.
    """
    settings, refusals = bench.read()
    ceiling, wrong = bench.ceiling()
    if refusals or wrong:
        raise Refused([*refusals, *wrong])
    policy = request.egress or default_policy()
    profile, binding = opening.bound(request, ceiling, policy=policy)
    kind = classes.find(cls)
    normal = classes.normalise(kind, target, command=binding.command)
    opening.reachable(request, cls, normal, policy=policy)
    with state.opened() as held:
        return desk.issue(
            held,
            profile,
            binding,
            cls=cls,
            target=target,  # as it was asked: what it leads through is judged there
            seconds=settings.grant_seconds if seconds is None else seconds,
            most=settings.grant_seconds,
            required=required,
            summary=shlex.join(request.command),
            against=startable.refusals(request, ceiling, profile, kind, normal),
        )
