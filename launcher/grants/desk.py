"""Issuing and taking grants: where a person's yes becomes a token, and where a token opens one thing for one run.

The rule: nobody is believed. Issuing asks the profile itself and refuses what is not gated, whatever the caller's
approval said; taking compares every binding with the run at hand, and tells each that differs by its own name.
"""

import os
import time
from collections.abc import Sequence

from launcher.access import guarantees
from launcher.access.judge import LEVELS
from launcher.access.profile import Profile
from launcher.access.scope import TREE, access_for, levels
from launcher.fs import protect
from launcher.grants import classes, keys, records, spent, token
from launcher.grants.bindings import Binding, sealed
from launcher.grants.classes import Anchor, Class
from launcher.grants.state import State
from launcher.grants.token import Grant
from oci.refusal import Refusal, Refused

SECONDS = 900
_NONCE_BYTES = 16
_AGAIN = "look at the run as it is now, and issue the grant for that"
_DIFFERENT = (
    ("run", "wrong-execution", "it is for the run {granted!r}, and this is {own!r}", "start it with --run {granted}"),
    ("executor", "wrong-execution", "it is for the executor {granted!r}, and this is {own!r}", "hand it to that one"),
    (
        "command",
        "wrong-command",
        "it is for another command, or another start of it",
        "start exactly what was approved",
    ),
    (
        "variables",
        "wrong-command",
        "the variables, or what is in them, are not those that were approved",
        "start it with those; TERM is one, which --env TERM=... says in both places",
    ),
    ("cwd", "wrong-working-directory", "it is for a start in {granted!r}, and this is one in {own!r}", _AGAIN),
    ("profile", "profile-mismatch", "it is for another access profile, or for one under another ceiling", _AGAIN),
    ("route", "route-mismatch", "the policy file, the resolver or the network is not what it was", _AGAIN),
)


def issue(  # noqa: PLR0913 - everything that a grant is tied to
    state: State,
    profile: Profile,
    binding: Binding,
    *,
    cls: str,
    target: str,
    seconds: int = SECONDS,
    most: int = SECONDS,
    required: tuple[str, ...] = (),
    summary: str = "",
    against: Sequence[Refusal] = (),
) -> tuple[str, Grant]:
    """Return a new token and its grant, recorded; raises Refused, and then there is none.

    `seconds` is how long it is good, at most `most`; `required` are guarantees beyond those the profile needs;
    `summary` is what the command is called where grants are listed; `against` is what the caller found to refuse of it.
    """
    kind = classes.find(cls)
    mark = spent.mark(state)  # before the time: another process may move it on
    now = int(time.time())
    normal = classes.normalise(kind, target, command=binding.command)
    found = classes.anchor(normal) if kind.form in {classes.PATH_FORM, classes.TREE_FORM} else Anchor()
    wanted = guarantees.spell((*guarantees.needed(profile), *required))
    refusals = _linked(profile, target.removeprefix(TREE), normal) if found.path else []
    refusals += [*_gated(profile, kind, normal), *classes.unsupported(kind, normal, found), *_run(binding)]
    refusals += [*_seconds(seconds, most), *_clock(mark, now), *_promised(wanted, binding)]
    if refusals or against:
        raise Refused([*refusals, *against])
    key = keys.current(state, now=now)
    nonce = os.urandom(_NONCE_BYTES).hex()
    grant = Grant(
        key=key.id,
        **{name: getattr(binding, name) for name in ("executor", "run", "command", "cwd", "profile", "route")},
        variables=sealed(binding.variables, key.secret, nonce=nonce),
        guarantees=wanted,
        cls=cls,
        target=normal,
        anchor=found.path,
        device=found.device,
        inode=found.inode,
        issued=now,
        expires=now + seconds,
        nonce=nonce,
    )
    text = token.encode(grant, key.secret)
    spent.prune(state, now=now)
    records.add(state, grant, summary=summary, now=now)
    return text, grant


def take(state: State, text: str, profile: Profile, binding: Binding) -> Grant:
    """Return the grant that a token gives this run; raises Refused for everything that keeps it from it.

    Nothing is used up yet: `use` does that, once the run's walls stand.
    """
    grant, signature = token.decode(text)
    now = int(time.time())
    key = keys.find(state, grant.key, now=now)
    if key is None or not token.genuine(grant, signature, key.secret):
        why = "by no key that is good here" if key is None else "for something else than it says"
        raise Refused([Refusal("bad-mac", f"the grant was signed {why}", "issue it on this bench, as this user")])
    kind = classes.find(grant.cls)
    own = binding.replace(variables=sealed(binding.variables, key.secret, nonce=grant.nonce))
    refusals = [*_time(grant, now), *_differences(grant, own), *_promised(grant.guarantees, binding)]
    refusals += _closed(profile, kind, grant.target)
    for look in (lambda: spent.look(state, grant.nonce, expires=grant.expires, now=now), lambda: there(grant)):
        try:
            look()
        except Refused as error:
            refusals += [one for one in error.refusals if one not in refusals]
    if refusals:
        raise Refused(refusals)
    return grant


def use(state: State, grant: Grant) -> None:
    """Use a grant up, now; raises Refused: `replay`, `denied` or `expired`. The worker must not have started."""
    spent.spend(state, grant.nonce, expires=grant.expires, now=int(time.time()))


def there(grant: Grant) -> Anchor:
    """Return what a grant's target is now; raises Refused: `target-changed` for another thing, or `unsupported`."""
    kind = classes.find(grant.cls)
    if not kind.form or kind.form == classes.HOST_FORM:
        return Anchor()
    found = classes.anchor(grant.target)
    if (found.path, found.device, found.inode) != (grant.anchor, grant.device, grant.inode):
        text = f"{grant.target} is not what it was when the grant was issued"
        raise Refused([Refusal("target-changed", text, "look at the path, then issue the grant again")])
    refusals = classes.unsupported(kind, grant.target, found)
    if refusals:
        raise Refused(refusals)
    return found


def _linked(profile: Profile, target: str, real: str) -> list[Refusal]:
    """Refuse a target behind a link which a worker may have made: a person saw its name, and not where it leads."""
    table = levels(profile, write=True)
    through = protect.link(target, [top for top, level in table.items() if top and level])
    if table[""] and target != real:
        through = through or target
    if not through:
        return []
    text = f"{target} leads through the symbolic link {through}, which a worker may have made, to {real}"
    return [Refusal("target-linked", text, "ask about where it leads, and grant that by its own name")]


def _gated(profile: Profile, kind: Class, target: str) -> list[Refusal]:
    """Refuse to issue what is not gated, asking the profile itself."""
    level = access_for(profile, kind.kind, kind.scope(target))
    if level == LEVELS.index("gated"):
        return []
    if level:
        return [Refusal("not-gated", f"the profile allows {kind.kind} there already", "no grant is needed")]
    return _closed(profile, kind, target)


def _closed(profile: Profile, kind: Class, target: str) -> list[Refusal]:
    if access_for(profile, kind.kind, kind.scope(target)):
        return []
    text = f"the profile denies {kind.kind} for {kind.scope(target)}"
    return [Refusal("denied", text, "no grant opens what is denied: change the profile, or the bench's ceiling")]


def _run(binding: Binding) -> list[Refusal]:
    if binding.run:
        return []
    return [Refusal("wrong-execution", "a grant is for one run, and none is named", "name it with --run ID")]


def _seconds(seconds: int, most: int) -> list[Refusal]:
    if type(seconds) is int and 0 < seconds <= most:  # 60.0 would be another spelling in the token
        return []
    return [Refusal("bad-expiry", f"a grant is good for 1 to {most} seconds, not {seconds}", "the bench sets the most")]


def _clock(mark: int, now: int) -> list[Refusal]:
    if now >= mark:
        return []
    text = "the clock was set back: it cannot be told which grants were used"
    return [Refusal("grant-state", text, "set the clock, or `card grant rotate --now`")]


def _promised(wanted: str, binding: Binding) -> list[Refusal]:
    lacking = [name for name in wanted.split(",") if name not in binding.promised]
    if not lacking:
        return []
    text = f"the grant wants {', '.join(lacking)}, which this run does not promise"
    return [Refusal("guarantee-mismatch", text, "ask for what is measured, or let the run have those limits")]


def _time(grant: Grant, now: int) -> list[Refusal]:
    if now >= grant.issued:
        return []
    return [Refusal("expired", "the grant is from later than now: the clock was set back", "issue it again")]


def _differences(grant: Grant, binding: Binding) -> list[Refusal]:
    found: list[Refusal] = []
    for name, reason, text, hint in _DIFFERENT:
        granted, own = getattr(grant, name), getattr(binding, name)
        if granted != own:
            words = {"granted": granted, "own": own}
            found.append(Refusal(reason, f"the grant: {text.format(**words)}", hint.format(**words)))
    return found
