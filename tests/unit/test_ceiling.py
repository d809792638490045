"""The bench's ceiling: whose file it is, and that no run has more than it, whatever flags or card ask for."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from launcher import bench, launch, options, reach
from launcher.access import judge
from launcher.access.ceiling import Ceiling
from launcher.access.profile import Profile, Root
from launcher.access.scope import access_for
from launcher.bench import CeilingFile
from launcher.cardfile import origin
from launcher.egress.policy import BASE_NAMES
from launcher.launch import Launch
from launcher.reach import Opened
from launcher.request import Request
from launcher.run import decided
from oci.refusal import Refusal
from tests.unit.surroundings import own_home

OPEN = {**dict.fromkeys(judge.LEVELLED, judge.ALLOW), "home": "real"}
Config = Callable[..., Path]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Return what writes the bench's settings; this test's user is the administrator."""
    path = tmp_path / "etc/config.toml"
    path.parent.mkdir()
    monkeypatch.setattr(bench, "CONFIG", str(path))
    monkeypatch.setattr(bench, "OWNERS", (0, os.getuid()))

    def write(text: str = "", **levels: str) -> Path:
        said = {**OPEN, **levels} if levels else {}
        table = "".join(f'{name} = "{level}"\n' for name, level in said.items())
        path.write_text(text + (f"[ceiling]\n{table}" if levels else ""))
        return path

    return write


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test a HOME of its own with a policy file, a bench with a route, and directories to name."""
    for name in ("work", "data", "data/open", "data/shut"):
        (tmp_path / name).mkdir()
    own_home(tmp_path, monkeypatch)
    return tmp_path


def judged(*words: str) -> tuple[Launch, list[str]]:
    """Return what flags come to, and the reasons of the refusals."""
    found, refusals = launch.judge(options.read([*words, "--resolver", "192.0.2.1", "--", "x"])[0])
    return found, [refusal.reason for refusal in refusals]


def roots(found: Launch) -> dict[str, str]:
    """Return the access of each root by the end of its path."""
    return {os.path.basename(root.path): root.access for root in found.filesystem.roots}


# whose file it is


def faults(refusals: list[Refusal]) -> str:
    """Return the texts of refusals, each the bench's configuration's."""
    assert {refusal.reason for refusal in refusals} <= {"bench-config"}
    return "\n".join(refusal.text for refusal in refusals)


def test_without_a_file_there_is_no_ceiling(config: Config) -> None:
    """And without the word in it, the file is not parsed before podman runs."""
    assert bench.ceiling() == (None, [])
    config("documentation_ranges = [")
    assert bench.ceiling() == (None, [])
    assert "Invalid value" in faults(bench.read()[1]) or "Unclosed" in faults(bench.read()[1])
    assert judged("--write", os.environ["HOME"].replace("/home", "/work"))[0].bounds is None


def test_who_may_write_it(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root's alone, and so every directory on the way: else it is refused, by every run and by `card check`."""
    path = config(network="deny")
    assert judged()[1] == []
    path.chmod(0o664)
    assert "others can write it" in faults(bench.ceiling()[1]) or path.stat().st_gid == path.stat().st_uid
    path.chmod(0o666)
    assert "others can write it (mode 0666)" in faults(bench.ceiling()[1])
    assert judged()[1] == ["bench-config"]
    path.chmod(0o644)
    path.parent.chmod(0o777)
    assert f"{path.parent} can be written by others" in faults(bench.ceiling()[1])
    path.parent.chmod(0o1777)  # sticky: nobody can replace what is another's
    assert bench.ceiling()[1] == []
    path.parent.chmod(0o755)
    monkeypatch.setattr(bench, "OWNERS", (4242,))
    assert "belongs to uid" in faults(bench.ceiling()[1])
    assert "bench-config" in [refusal.reason for refusal in bench.read()[1]]


def test_links_to_it_are_judged_on_both_ways(config: Config, place: Path) -> None:
    """A link is as good as the worst directory on its way and on the way it leads."""
    path = config(network="deny")
    real = place / "real"
    real.mkdir()
    path.rename(real / "config.toml")
    path.symlink_to(real / "config.toml")
    assert bench.ceiling()[1] == []
    real.chmod(0o777)
    assert f"{real} can be written by others" in faults(bench.ceiling()[1])
    real.chmod(0o755)
    between = place / "between"
    between.mkdir(mode=0o755)
    path.unlink()
    (between / "link").symlink_to("../real")
    path.symlink_to(between / "link/config.toml")
    assert bench.ceiling()[1] == []
    between.chmod(0o777)  # neither on the way that is written nor on the one it leads to in the end
    assert f"{between} can be written by others" in faults(bench.ceiling()[1])


BAD = {
    "misspelt": ('[ceiling]\nnetwrok = "deny"', "did you mean 'network'?"),
    "a bad level": ('[ceiling]\nnetwork = "never"', "not deny, gated or allow"),
    "no table": ('ceiling = "deny"', "ceiling is a table"),
    "a relative root": ('[ceiling]\n[[ceiling.roots]]\npath = "srv"', "is relative"),
    "no TOML": ("[ceiling]\nnetwork = deny", "Invalid value"),
    "written before read": ('[ceiling]\nworkspace_write = "allow"', "contradicts itself"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_ceiling_stops_every_run(name: str, config: Config) -> None:
    """A ceiling that cannot be read is not no ceiling."""
    text, words = BAD[name]
    config(text)
    early, late = bench.ceiling()[1], bench.read()[1]
    assert any(words in f"{one.text} {one.hint}" for one in early)
    assert set(early) <= set(late)
    assert judged()[1] == ["bench-config"] * len(early)


def test_a_ceiling_spelt_with_escapes_is_not_overlooked(config: Config) -> None:
    """It is looked for by its letters before podman runs, so nothing else may mean it."""
    config('["c\\u0065iling"]\nnetwork = "deny"')
    assert bench.ceiling() == (None, [])
    assert "spelt with escapes" in faults(bench.read()[1])


# what it takes away


def test_an_open_ceiling_takes_nothing(config: Config, place: Path) -> None:
    """The control: with everything allowed a run is what it is without a ceiling."""
    words = ("--write", f"{place}/work", "--read", f"{place}/data", "--allow-host", "pypi.org", "--home", "real")
    config(network="allow")
    found, reasons = judged(*words)
    assert (reasons, roots(found), found.net) == ([], {"work": "write", "data": "read"}, "pasta")
    assert found.names == (*BASE_NAMES, "pypi.org")
    assert found.bounds is not None
    assert found.bounds.narrowed == ()


def test_writing_is_narrowed_to_reading(config: Config, place: Path) -> None:
    """A workspace that may not be written is mounted read-only, still where the worker starts, and a note says so."""
    config(workspace_write="deny")
    found, reasons = judged("--write", f"{place}/work")
    assert (reasons, roots(found)) == ([], {"work": "read"})
    assert found.filesystem.cwd == f"{place}/work"
    assert f"the bench's ceiling keeps {place}/work read-only" in found.notes


def test_what_is_protected_may_be_narrowed_too(config: Config, place: Path) -> None:
    """In a workspace that is read-only anyway there is nothing to protect, and no reason to refuse."""
    (place / "work/keys").touch()
    words = ("--write", f"{place}/work", "--protect", f"{place}/work/keys")
    assert judged(*words)[0].filesystem.closed == (f"{place}/work/keys",)
    config(workspace_write="deny")
    found, reasons = judged(*words)
    assert (reasons, roots(found), found.filesystem.closed) == ([], {"work": "read"}, ())
    assert judged("--protect", f"{place}/data")[1] == ["protect-outside"]


def test_reading_is_closed(config: Config, place: Path) -> None:
    """What may not be read is not mounted; a workspace that may not be read leaves no run."""
    config(host_read="deny", host_write="deny")
    found, reasons = judged("--write", f"{place}/work", "--read", f"{place}/data")
    assert (reasons, roots(found)) == ([], {"work": "write"})
    assert f"the bench's ceiling closes {place}/data" in found.notes
    config(workspace_read="gated", workspace_write="deny")
    assert judged("--write", f"{place}/work")[1] == ["ceiling-workspace"]


def test_the_network_is_closed(config: Config) -> None:
    """A card goes without it, unless it said that it needs its model host."""
    for level in ("deny", "gated"):
        config(network=level)
        found, reasons = judged("--allow-host", "pypi.org")
        assert (reasons, found.net, found.names) == ([], "none", ())
        assert "the bench's ceiling closes the network, without pypi.org" in found.notes
        assert judged("--model-host", "model.example.org")[1] == ["ceiling-network"]


def test_nothing_is_started(config: Config) -> None:
    """A ceiling on the command leaves no run, and only a gated one speaks of grants."""
    for level, reason, hint in (("deny", "ceiling-command", ""), ("gated", "required", "card grant issue")):
        config(command=level)
        _, refusals = launch.judge(options.read(["--resolver", "192.0.2.1", "--", "x"])[0])
        assert [(one.reason, one.hint) for one in refusals] == [(reason, hint)]


def test_home_stays_the_cards_own(config: Config) -> None:
    """`--home real` is narrowed, and said."""
    config(home="isolated")
    found, reasons = judged("--home", "real")
    assert (reasons, dict(found.env)["HOME"]) == ([], "/card")
    assert "the bench's ceiling keeps HOME isolated" in found.notes


def test_roots_of_the_ceiling(config: Config, place: Path) -> None:
    """A root bounds what is inside it: a wider `--read` comes down to it, and a read-only one inside stays so."""
    path = config(host_read="deny", host_write="deny")
    path.write_text(f'{path.read_text()}[[ceiling.roots]]\npath = "{place}/data/open"\nread = "allow"\n')
    found, reasons = judged("--write", f"{place}/work", "--read", f"{place}/data")
    assert (reasons, roots(found)) == ([], {"work": "write", "open": "read"})
    path = config(host_read="allow")
    path.write_text(f'{path.read_text()}[[ceiling.roots]]\npath = "{place}/data/shut"\nread = "allow"\n')
    found, reasons = judged("--write", f"{place}/data")
    assert (reasons, roots(found)) == ([], {"data": "write", "shut": "read"})
    (place / "data/shut").rmdir()
    assert judged("--write", f"{place}/data")[1] == ["path-missing"]
    path.write_text(path.read_text().removesuffix('read = "allow"\n'))  # closed, and the worker could make it
    assert judged("--write", f"{place}/data")[1] == ["ceiling-unenforceable"]


@pytest.mark.parametrize("option", ["--read", "--read-noexec"])
def test_what_is_only_read_is_no_workspace(option: str, config: Config, place: Path) -> None:
    """A ceiling that leaves workspaces open and the bench shut closes a path to read, with a `--write` and without."""
    access = option.removeprefix("--").removeprefix("read-")
    found, reasons = judged(option, f"{place}/data")
    assert (reasons, roots(found), found.filesystem.cwd) == ([], {"data": access}, "/card")
    config(network="deny")
    found, reasons = judged(option, f"{place}/data")
    assert (reasons, roots(found), found.filesystem.cwd) == ([], {"data": access}, "/card")
    config(host_read="deny", host_write="deny")
    for more in ((), ("--write", f"{place}/work")):
        found, reasons = judged(option, f"{place}/data", *more)
        assert (reasons, "data" in roots(found)) == ([], False)
        assert f"the bench's ceiling closes {place}/data" in found.notes
    config(workspace_read="deny", workspace_write="deny")
    found, reasons = judged(option, f"{place}/data")
    assert (reasons, roots(found), found.filesystem.cwd) == ([], {"data": access}, "/card")
    for more in ((), ("--write", f"{place}/work")):
        assert judged(option, "/card", *more)[1], "it is the card's own HOME, and no place of the bench"


def test_a_tree_for_workspaces(config: Config, place: Path) -> None:
    """A ceiling with a workspace of its own has cards work below it, and nowhere else; the refusal says where."""
    (place / "work/mine").mkdir()
    config(workspace=f"{place}/work", host_read="deny", host_write="deny")
    found, reasons = judged("--write", f"{place}/work/mine")
    assert (reasons, roots(found)) == ([], {"mine": "write"})
    _, refusals = launch.judge(options.read(["--resolver", "192.0.2.1", "--write", f"{place}/data", "--", "x"])[0])
    assert [(one.reason, one.hint) for one in refusals] == [("ceiling-workspace", f"work below {place}/work")]


def test_what_is_no_run_is_not_bounded(config: Config) -> None:
    """`card egress` makes tables for the bench itself: its administrator's ceiling is for cards."""
    config(network="deny", command="deny")
    request = Request(command=("-",), allow_host=("pypi.org",), resolver="192.0.2.1")
    found, refusals = launch.judge(request, bench_bounds=False)
    assert (refusals, found.names) == ([], (*BASE_NAMES, "pypi.org"))
    assert launch.judge(request)[0].names == ()


def test_a_place_that_no_wall_can_close(config: Config, place: Path) -> None:
    """A root of the ceiling inside a tree that is asked for cannot be taken out of it: refused, not overlooked."""
    path = config(host_read="allow")
    path.write_text(f'{path.read_text()}[[ceiling.roots]]\npath = "{place}/data/shut"\n')
    assert judged("--read", f"{place}/data")[1] == ["ceiling-unenforceable"]
    assert judged("--read", f"{place}/data/open")[1] == []


def test_a_cards_own_profile_is_restricted(config: Config, place: Path) -> None:
    """What a card allows itself is no more than the ceiling allows, and the plan says who took it."""
    path = config(workspace_write="deny", network="deny")
    card = place / "agent.toml"
    card.write_text(
        'write = []\n[access]\nworkspace = "work"\nworkspace_read = "allow"\nworkspace_write = "allow"\n'
        'network = "allow"\ncommand = "allow"\n'
    )
    found, reasons = judged("--card", str(card))
    assert (reasons, roots(found), found.net) == ([], {"work": "read"}, "none")
    rows = {row.key: row.origin for row in origin.rows(found)}
    assert rows["net"] == rows["access.network"] == rows["access.workspace_write"] == f"the bench's ceiling {path}"
    assert rows["access.command"] == f"card file {card} line 7"
    assert rows["read"] == f"card file {card} line 3"


def test_no_grant_is_wanted_for_what_it_denies(config: Config, place: Path) -> None:
    """A listed path that a card gates wants a grant (`required`), unless the ceiling leaves nothing to grant."""
    card = place / "agent.toml"
    levels = 'workspace = "work"\nworkspace_read = "allow"\ncommand = "allow"\nhost_read = "gated"\n'
    card.write_text(f'read = ["data"]\n[access]\n{levels}')
    for level, reason in (("gated", "required"), ("deny", "access-contradiction")):
        config(host_read=level, host_write="deny")
        assert judged("--card", str(card))[1] == [reason]


def test_flags_cannot_lift_it(config: Config, place: Path) -> None:
    """Neither a flag nor a user's defaults go past the ceiling."""
    config(network="deny", host_read="deny", host_write="deny")
    (place / "home/.config/card-run/config.toml").write_text('net = "pasta"\nhosts = ["pypi.org"]\nhome = "real"\n')
    found, reasons = judged("--net", "slirp", "--write", f"{place}/work", "--write", f"{place}/data")
    assert (reasons, found.net, roots(found)) == ([], "none", {"work": "write"})


def test_grants_open_what_is_gated(config: Config, place: Path) -> None:
    """What was opened for this run is added to it: a root, a host, the start."""
    path = config(workspace_write="gated", network="gated", command="gated")
    request = options.read(["--write", f"{place}/work", "--allow-host", "pypi.org", "--", "x"])[0]
    ceiling = CeilingFile(path=str(path), data=b"", ceiling=_ceiling(dict.fromkeys(GATED, "gated")))
    opened = Opened(write=(f"{place}/work",), read=(f"{place}/data",), hosts=("pypi.org",), command=True)
    found, _, refusals = reach.bound(request, ceiling, opened)
    assert refusals == []
    assert (found.write, found.read, found.net) == ((f"{place}/work",), (f"{place}/data",), "pasta")
    assert found.allow_host == ("pypi.org",)
    closed, _, refusals = reach.bound(request, ceiling)
    assert [refusal.reason for refusal in refusals] == ["required"]
    assert (closed.write, closed.read, closed.net) == ((), (f"{place}/work",), "none")


GATED = ("workspace_write", "network", "command")


def _ceiling(levels: dict[str, str]) -> Ceiling:
    fields: dict[str, Any] = {**OPEN, **levels}
    return Ceiling(**fields)


def test_the_receipt_names_the_files(config: Config, place: Path) -> None:
    """Card, defaults and ceiling with their digests, and the profile that the run was held to."""
    path = config(network="deny")
    (place / "home/.config/card-run/config.toml").write_text("")
    (place / "agent.toml").write_text('write = ["work"]\n')
    found, _ = judged("--card", f"{place}/agent.toml")
    files = decided.files(found)
    assert {name: one and one["path"] for name, one in files.items()} == {
        "card": f"{place}/agent.toml",
        "defaults": f"{place}/home/.config/card-run/config.toml",
        "ceiling": str(path),
    }
    assert all(one and len(one["sha256"]) == 64 for one in files.values())
    access = decided.access(found)
    assert (access["stated"], access["profile"]["network"], access["narrowed"]) == (
        False,
        "deny",
        ["the bench's ceiling closes the network"],
    )
    path.unlink()
    plain = decided.access(judged("--write", f"{place}/work")[0])
    assert (plain["stated"], plain["profile"]["workspace"], plain["narrowed"]) == (False, f"{place}/work", [])


LEVELS = st.sampled_from(judge.LEVELS)


@st.composite
def levels(draw: st.DrawFn, tops: tuple[str, ...]) -> Profile:
    """Return a profile over a few nested places."""
    pairs = [sorted((draw(LEVELS), draw(LEVELS)), key=judge.LEVELS.index, reverse=True) for _ in range(2)]
    chosen = draw(st.lists(st.sampled_from(tops), unique=True, max_size=3))
    found = [(path, sorted((draw(LEVELS), draw(LEVELS)), key=judge.LEVELS.index, reverse=True)) for path in chosen]
    return Profile(
        workspace="/srv/w",
        workspace_read=pairs[0][0],
        workspace_write=pairs[0][1],
        host_read=pairs[1][0],
        host_write=pairs[1][1],
        network=draw(LEVELS),
        command=draw(LEVELS),
        roots=tuple(Root(path=path, read=pair[0], write=pair[1]) for path, pair in found if path != "/srv/w"),
    )


TOPS = ("/srv", "/srv/w/in", "/srv/d", "/srv/d/in", "/opt")
PATHS = st.lists(st.sampled_from(("/srv/w", *TOPS)), max_size=3)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(st.one_of(st.none(), levels(TOPS)), levels(TOPS), PATHS, PATHS, st.sampled_from(["none", "pasta"]))
def test_never_wider(profile: Profile | None, top: Profile, write: list[str], read: list[str], net: str) -> None:
    """Whatever is asked: no root, no network and no start that profile and ceiling do not both allow."""
    ceiling = CeilingFile(path="x", data=b"", ceiling=Ceiling(**{**top.as_dict(), "workspace": ""}))
    request = Request(command=("x",), write=tuple(write), read=tuple(read), net=net, profile=profile)
    found, bounds, refusals = reach.bound(request, ceiling)
    held = ceiling.ceiling.over(bounds.asked.workspace)
    for kind, paths in (("filesystem.write", found.write), ("filesystem.read", (*found.read, *found.read_noexec))):
        for path in paths:
            assert min(access_for(bounds.asked, kind, path), access_for(held, kind, path)) == 2, (kind, path)
    assert found.net == "none" or (held.network, bounds.asked.network) == ("allow", "allow")
    started = (held.command, bounds.asked.command) == ("allow", "allow")
    assert started or {"ceiling-command", "required", "denied"} & {one.reason for one in refusals}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(st.one_of(st.none(), levels(TOPS)), levels(TOPS), PATHS, PATHS)
def test_nothing_inside_is_wider(profile: Profile | None, top: Profile, write: list[str], read: list[str]) -> None:
    """A place inside a mounted tree that may not be written or read is mounted read-only there, or the run refused."""
    ceiling = CeilingFile(path="x", data=b"", ceiling=Ceiling(**{**top.as_dict(), "workspace": ""}))
    request = Request(command=("x",), write=tuple(write), read=tuple(read), profile=profile)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os.path, "lexists", lambda _: True)
        found, bounds, refusals = reach.bound(request, ceiling)
    if refusals:
        return
    mounts = {**dict.fromkeys(found.read, 1), **dict.fromkeys(found.write, 2)}
    for path in ("/srv/w", *TOPS):
        around = [mount for mount in mounts if path == mount or path.startswith(f"{mount}/")]
        level = mounts[max(around, key=len)] if around else 0
        readable, writable = (access_for(bounds.profile, f"filesystem.{kind}", path) == 2 for kind in ("read", "write"))
        assert level < 2 or writable, (path, mounts)
        assert level < 1 or readable, (path, mounts)
