"""Restricting a profile never widens it: asked of `access_for`, over scopes that meet its roots and that miss them."""

from hypothesis import given

from launcher.access.ceiling import Ceiling, restrict
from launcher.access.judge import HOMES, ISOLATIONS
from launcher.access.profile import Profile, Root, fingerprint
from launcher.access.scope import access_for
from tests.unit.access_profiles import CEILINGS, PATHS, PROFILES, QUESTIONS


def held(ceiling: Profile | Ceiling, base: Profile) -> Profile:
    """Return the ceiling as it stands over a profile's workspace."""
    return ceiling.over(base.workspace) if isinstance(ceiling, Ceiling) else ceiling


@given(PROFILES, CEILINGS, QUESTIONS)
def test_is_the_least_of_both(base: Profile, ceiling: Profile | Ceiling, question: tuple[str, str]) -> None:
    """What is answered is at most what each answers; for one place, it is exactly the lesser."""
    answers = [access_for(profile, *question) for profile in (base, held(ceiling, base))]
    found = access_for(restrict(base, ceiling), *question)
    assert found <= min(answers)
    if not question[1].startswith(("tree:", "host:")):
        assert found == min(answers)


@given(PROFILES, CEILINGS)
def test_home_and_isolation_are_the_lesser(base: Profile, ceiling: Profile | Ceiling) -> None:
    """What is not a level is the more closed of both too, and the workspace stays the base's."""
    result = restrict(base, ceiling)
    assert HOMES.index(result.home) == min(HOMES.index(base.home), HOMES.index(ceiling.home))
    assert ISOLATIONS.index(result.isolation) == min(
        ISOLATIONS.index(base.isolation), ISOLATIONS.index(ceiling.isolation)
    )
    assert result.workspace == base.workspace


@given(PROFILES, CEILINGS)
def test_is_idempotent(base: Profile, ceiling: Profile | Ceiling) -> None:
    """A second time changes nothing, by itself or by the same ceiling."""
    once = restrict(base, ceiling)
    assert restrict(once, ceiling) == once
    assert restrict(once, once) == once
    assert fingerprint(restrict(base, base)) == fingerprint(base)


@given(PROFILES, CEILINGS, CEILINGS, QUESTIONS)
def test_ceilings_commute(
    base: Profile, one: Profile | Ceiling, other: Profile | Ceiling, question: tuple[str, str]
) -> None:
    """Two ceilings answer alike in either order."""
    there, back = restrict(restrict(base, one), other), restrict(restrict(base, other), one)
    assert access_for(there, *question) == access_for(back, *question)


@given(PROFILES, PROFILES, QUESTIONS)
def test_base_and_ceiling_commute(one: Profile, other: Profile, question: tuple[str, str]) -> None:
    """Which of two profiles is called the ceiling matters for the workspace's name and for no answer."""
    assert access_for(restrict(one, other), *question) == access_for(restrict(other, one), *question)


@given(PROFILES, CEILINGS, PATHS)
def test_ceiling_roots_bound_what_they_hold(base: Profile, ceiling: Profile | Ceiling, path: str) -> None:
    """No tree inside a root of the ceiling is more open than that root, wherever the base's own roots are."""
    result = restrict(base, ceiling)
    for root in ceiling.roots:
        places = [held(ceiling, base).workspace, *(one.path for one in held(ceiling, base).roots)]
        if not any(place.startswith(f"{root.path}/") for place in places):
            answer = access_for(result, "filesystem.write", f"{root.path}{path}")
            assert answer <= access_for(held(ceiling, base), "filesystem.write", root.path)


def test_floating_ceiling_over_a_workspace() -> None:
    """A ceiling without a workspace allows one anywhere, but not where one of its roots says no."""
    ceiling = Ceiling(workspace_read="allow", workspace_write="allow", roots=(Root(path="/etc"),))
    base = Profile(workspace="/home/u/w", workspace_read="allow", workspace_write="allow", host_read="allow")
    assert access_for(restrict(base, ceiling), "filesystem.write", "tree:/home/u/w") == 2
    assert access_for(restrict(base, ceiling), "filesystem.read", "/home/u/x") == 0
    sly = base.replace(workspace="/etc/w")
    assert access_for(restrict(sly, ceiling), "filesystem.read", "/etc/w") == 0
    assert access_for(restrict(base.replace(workspace="/etc"), ceiling), "filesystem.read", "/etc") == 0


def test_placed_ceiling_bounds_where_workspaces_are() -> None:
    """A ceiling with a workspace treats a workspace outside of it as it treats the bench."""
    ceiling = Ceiling(workspace="/home", workspace_read="allow", workspace_write="allow")
    base = Profile(workspace="/home/u/w", workspace_read="allow", workspace_write="allow")
    assert access_for(restrict(base, ceiling), "filesystem.write", "tree:/home/u/w") == 2
    assert access_for(restrict(base.replace(workspace="/srv"), ceiling), "filesystem.write", "/srv") == 0


def test_ceiling_root_inside_a_base_root() -> None:
    """A root of the ceiling cuts its part out of a wider root of the base, and a tree that spans it says so."""
    base = Profile(workspace="/w", roots=(Root(path="/srv", read="allow"),))
    ceiling = Ceiling(host_read="allow", roots=(Root(path="/srv/secret"),))
    result = restrict(base, ceiling)
    assert access_for(result, "filesystem.read", "/srv/data") == 2
    assert access_for(result, "filesystem.read", "/srv/secret/key") == 0
    assert access_for(result, "filesystem.read", "/srv/secrets") == 2
    assert access_for(result, "filesystem.read", "tree:/srv") == 0


def test_nothing_stated_is_nothing_allowed() -> None:
    """A ceiling that states nothing closes everything."""
    base = Profile(
        workspace="/w",
        **dict.fromkeys(("workspace_read", "host_read", "network", "command"), "allow"),  # type: ignore[arg-type]
    )
    result = restrict(base, Ceiling())
    questions = (("command.execute", "*"), ("network", "*"), ("filesystem.read", "/w"), ("filesystem.read", "host:*"))
    assert [access_for(result, *question) for question in questions] == [0, 0, 0, 0]
