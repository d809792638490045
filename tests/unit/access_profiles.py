"""Profiles, ceilings and scopes drawn at random, over few enough paths that they meet, nest and miss each other."""

from typing import Any

from hypothesis import strategies as st

from launcher.access.ceiling import Ceiling
from launcher.access.judge import HOMES, ISOLATIONS, LEVELS, UNCONFINED
from launcher.access.profile import Profile, Root

# "ab" beside "a": a prefix of the text that holds nothing of it.
NAMES = ("a", "ab", "b")
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))
PAIRS = st.tuples(st.sampled_from(LEVELS), st.sampled_from(LEVELS)).filter(
    lambda pair: LEVELS.index(pair[1]) <= LEVELS.index(pair[0])
)
HOSTS = st.sampled_from(("*", "api.example.com", "github.com"))
NETWORKS = st.one_of(st.just("*"), st.tuples(HOSTS, st.integers(1, 65535)).map(lambda p: f"tcp:{p[0]}:{p[1]}"))
FILES = st.one_of(st.just("host:*"), PATHS, PATHS.map(lambda path: f"tree:{path}"))
QUESTIONS = st.one_of(
    st.tuples(st.just("command.execute"), st.sampled_from(("*", "make test"))),
    st.tuples(st.sampled_from(("filesystem.read", "filesystem.write")), FILES),
    st.tuples(st.just("network"), NETWORKS),
)


@st.composite
def fields(draw: st.DrawFn, *, workspace: str | None = None) -> dict[str, Any]:
    """Return the fields of a profile that is well formed."""
    place = workspace if workspace is not None else draw(PATHS)
    (workspace_read, workspace_write), (host_read, host_write) = draw(PAIRS), draw(PAIRS)
    isolation = draw(st.sampled_from(ISOLATIONS))
    paths = draw(st.lists(PATHS.filter(lambda path: path != place), max_size=4, unique=True))
    roots = [(path, draw(PAIRS)) for path in paths]
    return {
        "workspace": place,
        "workspace_read": workspace_read,
        "workspace_write": workspace_write,
        "host_read": host_read,
        "host_write": host_write,
        "network": draw(st.sampled_from(LEVELS)),
        "command": draw(st.sampled_from(LEVELS)),
        "home": draw(st.sampled_from(HOMES)),
        "isolation": isolation,
        "ack_unconfined": isolation == UNCONFINED,
        "roots": tuple(Root(path=path, read=pair[0], write=pair[1]) for path, pair in roots),
    }


PROFILES = fields().map(lambda given: Profile(**given))
CEILINGS = st.one_of(PROFILES, st.one_of(fields(), fields(workspace="")).map(lambda given: Ceiling(**given)))
