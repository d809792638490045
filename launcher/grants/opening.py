"""From a request's tokens to what they open for this one run, and the moment they are used up.

A grant becomes exactly one more root, one more host, or the start itself. The rule: all of a run's tokens hold or it is
refused, and they are used up when its walls stand and the worker has not started: what fails before costs no grant.
"""

from launcher import bench, reach
from launcher.access import guarantees
from launcher.access.profile import Profile
from launcher.access.scope import READ, WRITE, peer
from launcher.bench import CeilingFile
from launcher.egress import policy as policies
from launcher.fs.policy import Filesystem
from launcher.grants import bindings, classes, desk, state, words
from launcher.grants.bindings import Binding
from launcher.grants.token import Grant
from launcher.limits import NAMES
from launcher.reach import Bounds
from launcher.request import Request
from launcher.roots import Opened
from oci.refusal import Refusal, Refused

_NO_NETWORK = "none"


def bound(request: Request, ceiling: CeilingFile | None, *, policy: str) -> tuple[Profile, Binding]:
    """Return the profile that a request is held to, and what a grant for it is tied to; no grant is looked at."""
    left, bounds, _ = reach.bound(request, ceiling)
    return bounds.profile, bindings.of(request, left, bounds.profile, policy=policy, promised=promised(request))


def promised(request: Request) -> tuple[str, ...]:
    """Return the guarantees without which no worker of this request is released (`launcher.run.receipt.shortfall`)."""
    limited = request.limits == "strict" and any(getattr(request, name) for name in NAMES)
    return (*guarantees.ALWAYS, "resource_limits") if limited else guarantees.ALWAYS


def bounded(request: Request, ceiling: CeilingFile | None, *, policy: str) -> tuple[Request, Bounds, list[Refusal]]:
    """Return the request as its profile, the ceiling and its tokens leave it, what it was held to, and refusals.

    The worker starts where it would without any grant. Nothing is used up.
    """
    profile, binding = bound(request, ceiling, policy=policy)
    opened, refusals = take(request, profile, binding, policy=policy)
    left, bounds, refused = reach.bound(request, ceiling, opened)
    if refusals:  # whoever has a token that does not hold needs no second word that one is missing
        refused = [one for one in refused if one.reason != "required"]
        bounds = bounds.replace(gated=())
    refusals += refused
    return left.replace(opened=opened, cwd=left.cwd or binding.cwd), bounds, refusals


def take(request: Request, profile: Profile, binding: Binding, *, policy: str) -> tuple[Opened, list[Refusal]]:
    """Return what the tokens of a request open, and every refusal. Nothing is used up."""
    grants: dict[str, Grant] = {}
    notes: list[str] = []
    refusals: list[Refusal] = []
    with state.opened() as held:
        for word in request.grant:
            try:
                text, note = words.read(word)
                notes += [note] if note and note not in notes else []
                grant = desk.take(held, text, profile, binding)
                reachable(request, grant.cls, grant.target, policy=policy)
                if grant.nonce not in grants:
                    notes.append(f"grant {grant.id} opens {grant.cls} {grant.target} for this run")
                grants[grant.nonce] = grant
            except Refused as error:
                refusals += error.refusals
    opened = _opened(tuple(grants.values()))
    return opened.replace(variables=binding.variables, notes=tuple(notes)), refusals


def reachable(request: Request, cls: str, target: str, *, policy: str) -> None:
    """Raise Refused (`unsupported`) for a host that this run could not be given: the policy file is the universe.

    Unless the bench says that grants may exceed it, for this run only.
    """
    if cls != classes.PROXY_TARGET:
        return
    if request.net == _NO_NETWORK:
        raise Refused([Refusal("unsupported", f"{cls}: the card has --net none", "leave that out")])
    host = peer(target).host
    settings, refusals = bench.read()
    universe, wrong = policies.read(policy)
    if refusals or wrong:
        raise Refused([*refusals, *wrong])
    if host not in universe.lines and not settings.grants_may_exceed_policy:
        hint = f"have {host} reviewed into that file, or let the bench set grants_may_exceed_policy"
        raise Refused([Refusal("unsupported", f"{cls}: {host} is not in {policy}", hint)])


def use(grants: tuple[Grant, ...]) -> None:
    """Use up all of a run's grants, its walls standing and its worker not started; raises Refused when one was before.

    Those already used up then stay so: the run ends, and a grant is never for two.
    """
    if not grants:
        return
    with state.opened() as held:
        for grant in grants:
            desk.use(held, grant)


def rooted(roots: Filesystem, grants: tuple[Grant, ...]) -> list[Refusal]:
    """Refuse each granted path that is not, as it was now resolved to be mounted, the very thing that was granted.

    What is mounted is compared with these roots from inside (stage 2), so that no moment is left to swap it in.
    """
    found = {root.path: (root.device, root.inode) for root in roots.roots}
    text = "{} is not what it was when the grant was issued"
    return [
        Refusal("target-changed", text.format(grant.target), "look at the path, then issue the grant again")
        for grant in grants
        if grant.anchor and found.get(grant.target) != (grant.device, grant.inode)
    ]


def varied(env: tuple[tuple[str, str], ...], opened: Opened) -> list[Refusal]:
    """Refuse variables that are not those which the grants were compared with: a file of them is read once more."""
    if bindings.variables_digest(env) == opened.variables:
        return []
    text = "the variables changed while the run was judged"
    return [Refusal("wrong-command", text, "leave the files of --env-file alone while a run starts")]


def swapped(refusals: list[Refusal], grants: tuple[Grant, ...]) -> list[Refusal]:
    """Return stage 2's refusals, what was mounted in place of a granted target called by its name."""
    targets = {grant.target for grant in grants if grant.anchor}
    return [
        Refusal("target-changed", one.text, "look at the path, then issue the grant again")
        if one.reason == "path-swapped" and any(one.text.startswith(f"{target} ") for target in targets)
        else one
        for one in refusals
    ]


def shown(grant: Grant) -> dict[str, object]:
    """Return what a receipt tells of a grant: nothing that opens anything."""
    names = ("cls", "target", "executor", "key", "issued", "expires")
    return {"id": grant.id, **{name: getattr(grant, name) for name in names}}


def _opened(grants: tuple[Grant, ...]) -> Opened:
    kinds = [(classes.find(grant.cls), grant) for grant in grants]
    return Opened(
        read=tuple(grant.target for kind, grant in kinds if kind.kind == READ),
        write=tuple(grant.target for kind, grant in kinds if kind.kind == WRITE),
        hosts=tuple(dict.fromkeys(peer(grant.target).host for _, grant in kinds if grant.cls == classes.PROXY_TARGET)),
        command=any(grant.cls == classes.START for grant in grants),
        grants=grants,
    )
