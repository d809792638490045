"""The access profile: what is refused, what it answers, and what its fingerprint covers."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from launcher.access import compiled, guarantees
from launcher.access.judge import LEVELLED, LEVELS
from launcher.access.profile import Profile, Root, canonical, fingerprint, pack
from launcher.access.scope import access_for, access_version, resolved
from launcher.access.table import parse, parse_ceiling, problems
from launcher.run import receipt
from oci.refusal import Refused
from tests.unit.access_profiles import PROFILES, fields

ROOT = Path(__file__).parents[2]
WORK = "/nowhere/work"
# Any text, surrogates included (hypothesis leaves them out where none are asked for).
_ANY = st.text(st.characters(exclude_categories=()), max_size=3)


def refused(table: dict[str, object]) -> list[str]:
    """Return what a table is refused for, a text and hint each."""
    with pytest.raises(Refused) as caught:
        parse(table, base="/cards")
    assert {one.reason for one in caught.value.refusals} == {"access-profile"}
    return [f"{one.text} ({one.hint})" for one in caught.value.refusals]


def test_closed_first() -> None:
    """A table with nothing but a workspace denies everything, in its own home, behind every wall."""
    profile = parse({"workspace": WORK}, base="/cards")
    assert {getattr(profile, name) for name in LEVELLED} == {"deny"}
    assert (profile.home, profile.isolation, profile.ack_unconfined, profile.roots) == (
        "isolated",
        "sandboxed",
        False,
        (),
    )
    assert access_version() == 1


def test_every_problem_at_once() -> None:
    """Unknown, misspelt, relative, contradictory: each is told, with its key and with what was probably meant."""
    table: dict[str, object] = {
        "netwrk": "allow",
        "network": "alow",
        "command": True,
        "workspace_write": "allow",
        "isolation": "unconfined",
        "home": "mine",
        "roots": [
            {"path": "data", "read": "allow"},
            {"path": "/srv", "raed": "allow"},
            {"path": "/srv/", "write": "gated"},
            {"read": "allow"},
            "/x",
        ],
    }
    said = refused(table)
    wanted = (
        ("access.workspace:", "there is no workspace"),
        ("access.netwrk:", "did you mean 'network'?"),
        ("access.network:", "did you mean 'allow'?"),
        ("access.command: True", "deny, gated or allow"),
        ("access.workspace_write:", "what can be written can be read"),
        ("access.isolation:", "without ack_unconfined"),
        ("access.home: 'mine'", "isolated or real"),
        ("access.roots[0].path: 'data' is relative", "/cards/..."),
        ("access.roots[1].raed:", "did you mean 'read'?"),
        ("access.roots[2].path: /srv is roots[1] already", "one answer"),
        ("access.roots[2].write:", "what can be written can be read"),
        ("access.roots[3]: a root has no path", "give it one"),
        ("access.roots[4]: '/x' is not a table", ""),
    )
    assert len(said) == len(wanted)
    for start, part in wanted:
        assert any(line.startswith(start) and part in line for line in said), (start, said)


@pytest.mark.parametrize(
    ("table", "part"),
    [
        ({"workspace": "/"}, "the whole bench"),
        ({"workspace": ""}, "relative"),
        ({"workspace": "~/work"}, "relative"),
        ({"workspace": "/a\nb"}, "control character"),
        ({"workspace": "/a\udc80"}, "not UTF-8"),
        ({"workspace": 7}, "not a path"),
        ({"workspace": WORK, "ack_unconfined": True}, "isolation is not unconfined"),
        ({"workspace": WORK, "ack_unconfined": "yes"}, "true or false"),
        ({"workspace": WORK, "roots": {"path": "/srv"}}, "not a list"),
        ({"workspace": WORK, "roots": [{"path": WORK}]}, "the workspace already"),
        ({"workspace": WORK, "roots": [{"path": "/"}]}, "host_read and host_write"),
        ({"workspace": WORK, "host_write": "gated"}, "let host_read be at least gated"),
    ],
)
def test_one_problem(table: dict[str, object], part: str) -> None:
    """Each of these alone is refused, and for nothing else."""
    (line,) = refused(table)
    assert part in line


def test_unconfined_needs_its_acknowledgement() -> None:
    """With it the profile is well formed; the report then says that no wall makes it so."""
    profile = parse({"workspace": WORK, "isolation": "unconfined", "ack_unconfined": True}, base="/")
    assert [row.feature for row in compiled.unavailable(profile)] == ["isolation"]


def test_made_in_code_is_judged_too() -> None:
    """A value is refused as a table is: there is no way to a profile that is not well formed."""
    with pytest.raises(Refused, match="did you mean 'allow'"):
        Profile(workspace=WORK, network="alow")
    with pytest.raises(Refused, match="not in normal form"):
        Profile(workspace="/a/../b")
    with pytest.raises(Refused, match="can be read"):
        Profile(workspace=WORK).replace(workspace_write="allow")
    with pytest.raises(AttributeError):
        Profile(workspace=WORK).network = "allow"  # type: ignore[misc]


def test_paths_are_resolved_once(tmp_path: Path) -> None:
    """A link and its target are one place: one workspace, one fingerprint, and no second root."""
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    by_link = parse({"workspace": f"{tmp_path}/link/"}, base="/")
    assert by_link == parse({"workspace": str(real)}, base="/")
    assert by_link.workspace == str(real)
    (line,) = refused({"workspace": str(real), "roots": [{"path": f"{tmp_path}/link"}]})
    assert "the workspace already" in line


def test_problems_point_at_keys() -> None:
    """A linter gets the keys that lead to each problem; none is found where the table parses."""
    table = {"workspace": WORK, "roots": [{"path": "/srv", "read": "yes"}]}
    assert [one.where for one in problems(table, base="/")] == [("roots", 0, "read")]
    assert problems({"workspace": WORK}, base="/") == []


def test_ceiling_needs_no_workspace() -> None:
    """A ceiling may leave its workspace open, and its problems are told under its own name."""
    assert parse_ceiling({"network": "allow"}, base="/etc").workspace == ""
    with pytest.raises(Refused, match=r"ceiling\.netwrk"):
        parse_ceiling({"netwrk": "allow"}, base="/etc")
    with pytest.raises(Refused, match=r"ceiling\.workspace: '' is relative"):
        parse_ceiling({"workspace": ""}, base="/etc")


def answers(profile: Profile, kind: str, *scopes: str) -> list[int]:
    """Return what the profile answers for each scope."""
    return [access_for(profile, kind, scope) for scope in scopes]


def test_the_deepest_root_decides() -> None:
    """A path is answered by the deepest root that holds it, a tree by the least of all it spans."""
    profile = Profile(
        workspace="/w",
        workspace_read="allow",
        workspace_write="gated",
        host_read="gated",
        roots=(Root(path="/w/vendor", read="allow"), Root(path="/srv", read="allow", write="allow")),
    )
    read, write = "filesystem.read", "filesystem.write"
    assert answers(profile, read, "/w", "/w/x", "/srv/x", "/srvx", "/") == [2, 2, 2, 1, 1]
    assert answers(profile, write, "/w", "/w/x", "/w/vendor", "/w/vendor/x", "/srv", "/etc") == [1, 1, 0, 0, 2, 0]
    assert answers(profile, write, "tree:/w", "tree:/w/src", "tree:/srv", "tree:/", "host:*") == [0, 1, 2, 0, 0]
    assert answers(profile, read, "tree:/w", "host:*") == [2, 1]


def test_command_and_network() -> None:
    """One answer each, whatever the command or peer."""
    profile = Profile(workspace="/w", command="gated", network="allow")
    assert answers(profile, "command.execute", "*", "make test", "a\nb") == [1, 1, 1]
    assert answers(profile, "network", "*", "tcp:*:443", "tcp:api.example.com:443") == [2, 2, 2]


@pytest.mark.parametrize(
    ("kind", "scope"),
    [
        *(
            ("filesystem.read", scope)
            for scope in ("", "x", "/a/", "/a//b", "/a/../b", "//", "/a\n", "tree:", "tree:a")
        ),
        *(("filesystem.write", scope) for scope in ("host:", "host:x", "*", "tree:tree:/a", "tree:/a/", "/\udc80")),
        *(("command.execute", scope) for scope in ("", "a\0b", "\udc80")),
        *(("network", scope) for scope in ("", "tcp", "udp:a.com:443", "tcp:a.com", "tcp:a.com:0", "tcp:a.com:65536")),
        *(
            ("network", scope)
            for scope in ("tcp:A.com:443", "tcp:a.com:0443", "tcp:1.2.3.4:443", "tcp:a:443", "tcp:*:")
        ),
        *(
            ("network", scope)
            for scope in ("tcp:a.com:443 ", "tcp:a.com:+443", "tcp:a.com:٤٤٣", "tcp:a.com.:443", "a.com")
        ),
    ],
)
def test_malformed_scopes_raise(kind: str, scope: str) -> None:
    """No scope that is not one in normal form is ever answered."""
    with pytest.raises(Refused) as caught:
        access_for(Profile(workspace="/w", command="allow", network="allow", host_read="allow"), kind, scope)
    assert [one.reason for one in caught.value.refusals] == ["bad-scope"]


def test_scopes_of_paths_are_resolved(tmp_path: Path) -> None:
    """What a link is asked about is where it leads; what is no absolute path is no scope."""
    (tmp_path / "link").symlink_to("/etc")
    assert resolved(f"{tmp_path}/link") == "/etc"
    assert resolved(f"{tmp_path}/link/", tree=True) == "tree:/etc"
    with pytest.raises(Refused, match="bad-scope"):
        resolved("link")


@pytest.mark.parametrize("kind", ["", "filesystem", "filesystem.execute", "Network", "command"])
def test_unknown_kinds_raise(kind: str) -> None:
    """No kind that is not one is ever answered."""
    with pytest.raises(Refused, match="is no kind of access"):
        access_for(Profile(workspace="/w"), kind, "*")


@given(PROFILES, st.randoms())
def test_fingerprint_is_of_nothing_else(profile: Profile, random: Any) -> None:
    """The order of keys and roots, trailing slashes, what is spelt out: none of it is authority."""
    roots = [{**root.as_dict(), "path": f"{root.path}/"} for root in profile.roots]
    random.shuffle(roots)
    table = {**profile.as_dict(), "roots": roots}
    keys = list(table)
    random.shuffle(keys)
    assert fingerprint(parse({key: table[key] for key in keys}, base="/elsewhere")) == fingerprint(profile)
    spelt = {name: value for name, value in table.items() if value not in ("deny", "isolated", "sandboxed", False)}
    assert fingerprint(parse(spelt, base="/")) == fingerprint(profile)


@given(fields(), fields())
def test_fingerprint_is_of_every_field(one: dict[str, Any], other: dict[str, Any]) -> None:
    """A change of any one field, and of any of a root's, changes it."""
    profile = Profile(**one)
    for name in (*LEVELLED, "home", "isolation", "workspace", "roots"):
        changed = _changed(profile, name, other)
        if changed is not None and changed != profile:
            assert fingerprint(changed) != fingerprint(profile), name


def _changed(profile: Profile, name: str, other: dict[str, Any]) -> Profile | None:
    """Return the profile with one field of another's, or None where that would not be well formed."""
    changes: dict[str, Any] = {name: other[name]}
    if name == "isolation":
        changes["ack_unconfined"] = other["ack_unconfined"]
    try:
        return profile.replace(**changes)
    except Refused:
        return None


@given(PROFILES, PROFILES)
def test_canonical_bytes_are_injective(one: Profile, other: Profile) -> None:
    """Two profiles share their canonical bytes only when they are equal."""
    assert (canonical(one) == canonical(other)) == (one == other)


@given(st.lists(st.tuples(_ANY, _ANY), max_size=3), st.lists(st.tuples(_ANY, _ANY), max_size=3))
@example([("a", "\udcc3\udca9")], [("a", "é")])
@example([("a", "\ud83d\ude00")], [("a", "\U0001f600")])
def test_packed_bytes_are_injective(one: list[tuple[str, str]], other: list[tuple[str, str]]) -> None:
    """No two lists of items have one form in bytes, what is not UTF-8 among them; none is without one."""
    assert (pack(one) == pack(other)) == (one == other)


def test_canonical_bytes_are_as_documented() -> None:
    """Length and text, name and value, in the order that the documentation gives."""
    data = canonical(Profile(workspace="/w", roots=(Root(path="/é", read="allow"),)))
    words: list[str] = []
    while data:
        size = int.from_bytes(data[:4], "big")
        words.append(data[4 : 4 + size].decode())
        data = data[4 + size :]
    levels = [word for name in LEVELLED for word in (name, "deny")]
    start = ["domain", "card-run/access", "version", "1", "workspace", "/w"]
    end = ["home", "isolated", "isolation", "sandboxed", "root", "/é", "read", "allow", "write", "deny"]
    assert words == [*start, *levels, *end]


@given(PROFILES)
def test_report_has_a_row_for_each_feature(profile: Profile) -> None:
    """Every field and every access of every root is reported, in one of three states, each with its wall."""
    rows = compiled.compiled(profile)
    assert len(rows) == len(LEVELLED) + 2 + 2 * len(profile.roots)
    assert {row.state for row in rows} <= {"enforced", "narrowed", "unavailable"}
    assert all((row.wall == "none") == (row.state == "unavailable") for row in rows)


def test_report_of_a_hole_in_a_tree() -> None:
    """What lies unreadable in a tree that is mounted is held by no wall, and said to be."""
    profile = Profile(workspace="/w", workspace_read="allow", roots=(Root(path="/w/secret"), Root(path="/x")))
    assert [row.feature for row in compiled.unavailable(profile)] == ["roots[/w/secret].read"]
    around = Profile(workspace="/srv/w", roots=(Root(path="/srv", read="allow"),))
    assert [row.feature for row in compiled.unavailable(around)] == ["workspace_read"]


@given(PROFILES)
def test_guarantees_are_the_receipts(profile: Profile) -> None:
    """The names are those a receipt measures; each needed one is among those that every run must have."""
    measured = receipt.guarantees(receipt.Measured(hook={}, stage2={}, times_ms={}), {})
    assert tuple(sorted(guarantees.BITS)) == tuple(sorted(measured))
    assert set(guarantees.needed(profile)) <= set(receipt.FULL)
    assert guarantees.spell(tuple(reversed(guarantees.BITS))) == ",".join(guarantees.BITS)
    with pytest.raises(Refused, match="no guarantee"):
        guarantees.spell(("write_boundry",))


# What an importer gets: our own small modules, and nothing that takes longer than them all.
IMPORTS = {
    "hooks",
    "hooks.egress",
    "hooks.plan",
    "launcher",
    "launcher.access",
    "launcher.access.ceiling",
    "launcher.access.compiled",
    "launcher.access.guarantees",
    "launcher.access.judge",
    "launcher.access.profile",
    "launcher.access.scope",
    "launcher.access.table",
    "launcher.egress",
    "launcher.egress.names",
    "launcher.fs",
    "launcher.fs.paths",
    "launcher.value",
    "oci",
    "oci.annotations",
    "oci.refusal",
    "oci.state",
    "oci.strictjson",
}
PROGRAM = """
import sys, os, stat, time
before = set(sys.modules)
sys.path.insert(0, sys.argv[1])
opened = []
sys.addaudithook(lambda name, args: opened.append(args[0]) if name == "open" else None)
from launcher.access import ceiling, compiled, guarantees, profile, scope, table
sys.stdout.write("\\n".join(sorted(set(sys.modules) - before)) + "\\n")
odd = [str(path) for path in opened if not str(path).endswith((".py", ".pyc"))]
assert not odd, odd
"""


def test_import_is_light_and_without_effect() -> None:
    """Importing the library brings these modules alone and opens nothing but them."""
    words = [sys.executable, "-I", "-S", "-B", "-c", PROGRAM, str(ROOT)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env={"PATH": os.defpath})
    assert set(done.stdout.split()) - IMPORTS <= {"_socket", "_json", "json", "_struct", "struct"}
    assert set(done.stdout.split()) >= IMPORTS


def test_levels_are_closed_first() -> None:
    """The index of a level is what access_for answers."""
    assert [access_for(Profile(workspace="/w", network=level), "network", "*") for level in LEVELS] == [0, 1, 2]
