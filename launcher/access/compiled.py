"""The compile report: for each thing a profile states, whether card-run's walls enforce it, and which one does.

The rule: what a wall holds only in part is `narrowed`, and what none holds is `unavailable` and refuses the run; never
is something wider than what was stated. Pure.
"""

from launcher.access.judge import ALLOW, DENY, GATED, REAL, UNCONFINED
from launcher.access.profile import Profile
from launcher.access.scope import holds
from launcher.value import Value

ENFORCED, NARROWED, UNAVAILABLE = "enforced", "narrowed", "unavailable"
START, FILES, EGRESS, ENVIRONMENT, ALL, NO_WALL = "start", "filesystem", "egress", "environment", "all", "none"
_CLOSED = {DENY: "closed, and no grant opens it", GATED: "closed but for what a grant of the run opens"}


class Row(Value):
    """One feature of a profile: what was asked, what comes of it, the wall that holds it, and a sentence."""

    feature: str
    asked: str
    state: str
    wall: str
    text: str


def compiled(profile: Profile) -> tuple[Row, ...]:
    """Return the report, a row for each thing the profile states, in the order of its fields."""
    rows = [_read(profile, "workspace_read", profile.workspace, profile.workspace_read)]
    rows.append(_tree("workspace_write", profile.workspace_write))
    rows += [_host("host_read", profile.host_read), _host("host_write", profile.host_write)]
    rows += [_network(profile.network), _command(profile.command), _home(profile.home), _isolation(profile.isolation)]
    for root in profile.roots:
        rows.append(_read(profile, f"roots[{root.path}].read", root.path, root.read))
        rows.append(_tree(f"roots[{root.path}].write", root.write))
    return tuple(rows)


def unavailable(profile: Profile) -> tuple[Row, ...]:
    """Return the rows that no wall holds: with one of them a run is refused."""
    return tuple(row for row in compiled(profile) if row.state == UNAVAILABLE)


def _tree(feature: str, level: str) -> Row:
    opened = (
        "a read-only mount and a Landlock rule" if feature.endswith("read") else "a writable mount and a Landlock rule"
    )
    return Row(feature=feature, asked=level, state=ENFORCED, wall=FILES, text=_CLOSED.get(level, opened))


def _host(feature: str, level: str) -> Row:
    if level != ALLOW:
        return _tree(feature, level)
    text = "only paths that the card names are mounted, never the whole bench"
    return Row(feature=feature, asked=level, state=NARROWED, wall=FILES, text=text)


def _network(level: str) -> Row:
    if level != ALLOW:
        return Row(feature="network", asked=level, state=ENFORCED, wall=EGRESS, text=_CLOSED[level])
    text = "TCP 443 to the pinned addresses of the card's hosts, all of them in the policy file"
    return Row(feature="network", asked=level, state=NARROWED, wall=EGRESS, text=text)


def _command(level: str) -> Row:
    text = {DENY: "nothing is started", GATED: "started by a grant for exactly this command"}
    return Row(
        feature="command", asked=level, state=ENFORCED, wall=START, text=text.get(level, "started as it is given")
    )


def _home(home: str) -> Row:
    if home != REAL:
        return Row(
            feature="home", asked=home, state=ENFORCED, wall=FILES, text="the card's own, nothing of the caller's"
        )
    text = "the caller's HOME is named to the worker; what of it can be reached is what the levels say"
    return Row(feature="home", asked=home, state=NARROWED, wall=ENVIRONMENT, text=text)


def _isolation(isolation: str) -> Row:
    if isolation != UNCONFINED:
        return Row(feature="isolation", asked=isolation, state=ENFORCED, wall=ALL, text="every wall, or no run")
    text = "card-run starts nothing without its walls"
    return Row(feature="isolation", asked=isolation, state=UNAVAILABLE, wall=NO_WALL, text=text)


def _read(profile: Profile, feature: str, path: str, level: str) -> Row:
    row = _tree(feature, level)
    if level != ALLOW and _around(profile, path) == ALLOW:
        text = "it lies in a tree that is mounted, and no wall takes reading away from a part of one"
        return row.replace(state=UNAVAILABLE, wall=NO_WALL, text=text)
    return row


def _around(profile: Profile, path: str) -> str:
    """Return what may be read of the deepest place around a path that can be mounted; the bench itself never is."""
    places = {profile.workspace: profile.workspace_read, **{root.path: root.read for root in profile.roots}}
    above = [top for top in places if top != path and holds(top, path)]
    return places[max(above, key=len)] if above else DENY
