"""From tokens to a run: what a grant opens in a request that is judged, and what stays closed."""

import os
from pathlib import Path
from typing import Any

import pytest

from launcher import bench, launch, report
from launcher.access.ceiling import Ceiling
from launcher.access.profile import Profile, Root
from launcher.bench import Bench, CeilingFile
from launcher.fs import policy as filesystem
from launcher.fs.paths import NOEXEC, READ, WRITE
from launcher.grants import approval, bindings, classes, opening, words
from launcher.launch import Launch
from launcher.request import Request
from launcher.roots import Opened
from oci.refusal import EXIT_REFUSED, Refusal, Refused

PATH, TREE, HOST, START = "filesystem.path.write.v1", "filesystem.tree.write.v1", classes.PROXY_TARGET, classes.START
POLICY = "github.com\napi.github.com\nobjects.githubusercontent.com\napi.example.com\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a place with a workspace, a policy file, and a grant state of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "w/src").mkdir(parents=True)
    (tmp_path / "w/src2").mkdir()
    (tmp_path / "w/file").touch()
    (tmp_path / "egress.txt").write_text(POLICY)
    return tmp_path


def asked(place: Path, **given: Any) -> Request:
    """Return a request of a card that gates what it may write and reach."""
    levels: dict[str, Any] = {
        "workspace_read": "allow",
        "workspace_write": "gated",
        "command": "allow",
        "network": "gated",
    }
    levels |= given.pop("levels", {})
    return Request(
        command=("make", "test"),
        run="r1",
        egress=str(place / "egress.txt"),
        resolver="192.0.2.53",
        profile=Profile(workspace=str(place / "w"), **levels),
        **given,
    )


def judged(request: Request) -> Launch:
    """Return the launch of a request that nothing of access is refused of."""
    found, refusals = launch.judge(request)
    assert [one for one in refusals if one.reason != "no-route"] == []
    return found


def refused(request: Request) -> list[str]:
    """Return what a request is refused for."""
    return [one.reason for one in launch.judge(request)[1] if one.reason != "no-route"]


def token(request: Request, cls: str, target: str = "", **given: Any) -> str:
    """Return a token for a request."""
    return approval.approve(request, cls=cls, target=target, **given)[0]


def roots(found: Launch) -> dict[str, str]:
    """Return each root's access by its path."""
    return {root.path: root.access for root in found.filesystem.roots}


def test_gated_stays_closed(place: Path) -> None:
    """Without a grant the workspace is read-only and no host is open."""
    found = judged(asked(place))
    assert roots(found) == {str(place / "w"): READ}
    assert (found.net, found.names) == ("none", ())
    assert any("gated" in note for note in found.notes)


def test_a_file_and_nothing_else(place: Path) -> None:
    """A path grant is one more root, of that file; the rest of the workspace is as it was."""
    request = asked(place)
    found = judged(request.replace(grant=(token(request, PATH, str(place / "w/file")),)))
    assert roots(found) == {str(place / "w"): READ, str(place / "w/file"): WRITE}
    assert found.filesystem.cwd == str(place / "w")


def test_a_tree_and_no_sibling(place: Path) -> None:
    """A tree grant is one more root; what only begins with its name is not in it."""
    request = asked(place)
    found = judged(request.replace(grant=(token(request, TREE, str(place / "w/src")),)))
    assert roots(found) == {str(place / "w"): READ, str(place / "w/src"): WRITE}


def test_the_whole_workspace(place: Path) -> None:
    """A grant for a mounted root widens that root, and adds none."""
    request = asked(place)
    found = judged(request.replace(grant=(token(request, TREE, str(place / "w")),)))
    assert roots(found) == {str(place / "w"): WRITE}


def test_a_tree_covers_the_gated_roots_in_it(place: Path) -> None:
    """A root of the profile that is gated too is opened with the tree around it, and is not read-only inside it."""
    nested = Root(path=str(place / "w/src"), read="allow", write="gated")
    request = asked(place, levels={"roots": (nested,)})
    assert roots(judged(request)) == {str(place / "w"): READ, str(place / "w/src"): READ}
    found = judged(request.replace(grant=(token(request, TREE, str(place / "w")),)))
    assert roots(found) == {str(place / "w"): WRITE}
    denied = asked(place, levels={"roots": (nested.replace(write="deny"),)})
    with pytest.raises(Refused, match="denied"):
        token(denied, TREE, str(place / "w"))
    beside = judged(denied.replace(grant=(token(denied, TREE, str(place / "w/src2")),)))
    assert roots(beside) == {str(place / "w"): READ, str(place / "w/src"): READ, str(place / "w/src2"): WRITE}


def test_asking_for_less_is_heard(place: Path) -> None:
    """A path that is named for reading stays read-only inside a tree that a grant opens for writing."""
    request = asked(place, read=(str(place / "w/src"),))
    found = judged(request.replace(grant=(token(request, TREE, str(place / "w")),)))
    assert roots(found) == {str(place / "w"): WRITE, str(place / "w/src"): READ}


def test_a_link_that_a_worker_made_is_not_approved(place: Path) -> None:
    """Asked about a name in the workspace, a person says yes to that name, and not to where a worker has it lead."""
    (place / "precious").touch()
    (place / "w/notes").symlink_to(place / "precious")
    for level in ("gated", "allow"):
        request = asked(place, levels={"workspace_write": level, "host_read": "gated", "host_write": "gated"})
        with pytest.raises(Refused, match="target-linked"):
            token(request, PATH, str(place / "w/notes"))
        assert token(request, PATH, str(place / "precious"))


def test_no_grant_takes_noexec_away(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is listed as noexec is so too where a grant opens it, the tree around it, or a part of it."""
    data, inner = place / "data", place / "data/inner"
    inner.mkdir(parents=True)
    gated = {"host_read": "gated", "host_write": "gated"}
    for listed, granted, expected in (
        (data, data, {data: NOEXEC}),
        (inner, data, {data: READ, inner: NOEXEC}),
        (place / "w/../data", data, {data: NOEXEC}),
    ):
        request = asked(place, levels=gated, read_noexec=(str(listed),))
        found = judged(request.replace(grant=(token(request, "filesystem.tree.read.v1", str(granted)),)))
        assert roots(found) == {str(place / "w"): READ, **{str(path): access for path, access in expected.items()}}
    plain = asked(place, levels=gated)
    found = judged(plain.replace(grant=(token(plain, "filesystem.tree.read.v1", str(data)),)))
    assert roots(found)[str(data)] == READ
    written = asked(place, levels=gated, read_noexec=(str(inner),))
    found = judged(written.replace(grant=(token(written, TREE, str(data)),)))
    assert roots(found) == {str(place / "w"): READ, str(data): WRITE, str(inner): NOEXEC}
    shut = Ceiling(workspace_read="allow", host_read="gated", command="allow")
    monkeypatch.setattr(bench, "ceiling", lambda: (CeilingFile(path="/c", data=b"", ceiling=shut), []))
    request = asked(place, levels={"host_read": "allow", "workspace_write": "deny"}, read_noexec=(str(data),))
    found = judged(request.replace(grant=(token(request, "filesystem.tree.read.v1", str(inner)),)))
    assert roots(found) == {str(place / "w"): READ, str(inner): NOEXEC}


def test_one_host_and_no_base_name(place: Path) -> None:
    """A network grant opens its host alone: not even the base names, and not what the card lists besides."""
    request = asked(place, allow_host=("github.com",))
    found = judged(request.replace(grant=(token(request, HOST, "tcp:api.example.com:443"),)))
    assert (found.net, found.names) == ("pasta", ("api.example.com",))


def test_a_start_needs_its_grant(place: Path) -> None:
    """A gated command is refused before anything starts; with its grant it is not, and another command is."""
    request = asked(place, levels={"command": "gated"})
    assert refused(request) == ["required"]
    text = token(request, START)
    assert judged(request.replace(grant=(text,))).command == ("make", "test")
    assert refused(request.replace(grant=(text,), command=("make", " test"))) == ["wrong-command"]
    assert refused(asked(place, levels={"command": "deny"})) == ["denied"]
    with pytest.raises(Refused, match="denied"):
        token(asked(place, levels={"command": "deny"}), START)


def test_a_listed_path_that_is_gated(place: Path) -> None:
    """What the card lists and its profile gates is `required` without a grant, and is the grant's with one."""
    request = asked(place, write=(str(place / "w/src"),))
    assert refused(request) == ["required"]
    found = judged(request.replace(grant=(token(request, TREE, str(place / "w/src")),)))
    assert roots(found) == {str(place / "w"): READ, str(place / "w/src"): WRITE}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"run": "r2"}, "wrong-execution"),
        ({"run": None}, "wrong-execution"),
        ({"executor": "agent-2"}, "wrong-execution"),
        ({"command": ("make",)}, "wrong-command"),
        ({"cwd": "src"}, "wrong-working-directory"),
        ({"profile": "home"}, "profile-mismatch"),
        ({"resolver": "192.0.2.54"}, "route-mismatch"),
        ({"net": "slirp"}, "route-mismatch"),
        ({"dns": "none"}, "route-mismatch"),
        ({"egress": "other"}, "route-mismatch"),
        ({"limits": "best-effort"}, "wrong-command"),
        ({"allow_host": ("api.example.com",)}, "wrong-command"),
        ({"tty": True, "interactive": True, "quiet": True, "json": "receipt"}, ""),
        ({"timeout": "60"}, "wrong-command"),
        ({"image": "localhost/other:latest"}, "wrong-command"),
        ({"user": "root"}, "wrong-command"),
        ({"env": ("PATH=/x",)}, "wrong-command"),
        ({"env_host": True}, "wrong-command"),
        ({"podman_arg": ("--label=a=b",)}, "wrong-command"),
        ({"git_writable": True}, "wrong-command"),
    ],
)
def test_a_run_that_differs(place: Path, change: dict[str, Any], reason: str) -> None:
    """Whatever of the run a grant is tied to is compared with the run that is started, and told by its name."""
    request = asked(place)
    text = token(request, PATH, str(place / "w/file"))
    (place / "other").write_text(f"{POLICY}more.example.com\n")
    changes = dict(change)
    for name in ("cwd", "egress"):
        changes |= {name: str(place / {"cwd": "w/src", "egress": "other"}[name])} if name in change else {}
    changes |= {"profile": request.profile.replace(home="real")} if "profile" in change and request.profile else {}
    assert refused(request.replace(grant=(text,), **changes)) == ([reason] if reason else [])


def test_a_grant_that_does_not_hold_is_not_said_to_be_missing(place: Path) -> None:
    """Without one it is told what is closed; with one that is for another run, only that."""
    text = token(asked(place), TREE, str(place / "w"))
    closed = f"write of {place}/w is gated: closed without a grant"
    assert closed in judged(asked(place)).notes
    other = asked(place, grant=(text,)).replace(command=("make", "all"))
    found, refusals = launch.judge(other)
    assert [one.reason for one in refusals] == ["wrong-command"]
    assert not [note for note in found.notes if "closed without a grant" in note]


def test_quiet_tells_refusals_only(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the profile gates is a note, and `--quiet` prints none beside refusals."""
    monkeypatch.setattr(report, "_finish", lambda *_: (None, []))
    for quiet in (False, True):
        request = asked(place, image="alpine", quiet=quiet)
        assert report.plan(*launch.judge(request), show=False, as_json=False) == EXIT_REFUSED
        said = capsys.readouterr().err
        assert ("NOTE" in said) != quiet
        assert "reason=bad-image" in said


def test_a_ceiling_between_issue_and_start(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ceiling that came meanwhile is another profile; one that denies leaves nothing to grant."""
    request = asked(place)
    text = token(request, PATH, str(place / "w/file"))
    shut = Ceiling(workspace_read="allow", command="allow")
    monkeypatch.setattr(bench, "ceiling", lambda: (CeilingFile(path="/c", data=b"", ceiling=shut), []))
    assert set(refused(request.replace(grant=(text,)))) == {"profile-mismatch", "denied"}
    with pytest.raises(Refused, match="denied"):
        token(request, PATH, str(place / "w/file"))


def test_the_ceiling_can_gate_what_flags_ask(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bench whose ceiling gates writing or the start: closed, until a grant opens it for one run."""
    gates = Ceiling(workspace_read="allow", workspace_write="gated", command="allow", network="allow")
    monkeypatch.setattr(bench, "ceiling", lambda: (CeilingFile(path="/c", data=b"", ceiling=gates), []))
    request = asked(place, write=(str(place / "w"),)).replace(profile=None)
    assert roots(judged(request)) == {str(place / "w"): READ}
    found = judged(request.replace(grant=(token(request, TREE, str(place / "w")),)))
    assert roots(found) == {str(place / "w"): WRITE}
    shut = CeilingFile(path="/c", data=b"", ceiling=gates.replace(command="gated"))
    monkeypatch.setattr(bench, "ceiling", lambda: (shut, []))
    assert refused(request) == ["required"]
    assert judged(request.replace(grant=(token(request, START),)))


def test_the_policy_file_stays_the_universe(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host outside the file is unsupported, unless the bench lets grants exceed it."""
    request = asked(place)
    with pytest.raises(Refused, match="unsupported"):
        token(request, HOST, "tcp:other.example.com:443")
    monkeypatch.setattr(bench, "read", lambda: (Bench(grants_may_exceed_policy=True), []))
    text = token(request, HOST, "tcp:other.example.com:443")
    assert judged(request.replace(grant=(text,))).names == ("other.example.com",)
    monkeypatch.setattr(bench, "read", lambda: (Bench(), []))
    assert refused(request.replace(grant=(text,))) == ["unsupported"]


@pytest.mark.parametrize("change", [{"write": ("/tmp/\udcff",)}, {"image": "\udcff"}, {"read": ("\udcff",)}])
def test_what_is_not_utf_8_is_refused_as_ever(place: Path, change: dict[str, Any]) -> None:
    """A path or name that is not UTF-8 is another start, refused by its own name, and no bug."""
    request = asked(place, levels={"host_read": "allow", "host_write": "allow"})
    text = token(request, PATH, str(place / "w/file"))
    found = refused(request.replace(grant=(text,), **change))
    assert "wrong-command" in found
    assert {"bad-path", "bad-image"} & set(found)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"run": "No-Id"}, "bad-run-id"),
        ({"run": ""}, "bad-run-id"),
        ({"image": "short"}, "bad-image"),
        ({"write": ("/tmp/\udcff",)}, "bad-path"),
        ({"env": ("=x",)}, "bad-env"),
        ({"podman_arg": ("--privileged",)}, "podman-arg"),
    ],
)
def test_no_token_for_options_that_never_start(place: Path, change: dict[str, Any], reason: str) -> None:
    """A run that is refused for its own options, whatever it is granted, is refused when its grant is issued."""
    request = asked(place, levels={"host_read": "allow", "host_write": "allow"})
    assert token(request, PATH, str(place / "w/file"))
    with pytest.raises(Refused) as caught:
        token(request.replace(**change), PATH, str(place / "w/file"))
    assert reason in [one.reason for one in caught.value.refusals]


def test_no_token_for_a_place_that_is_never_mounted(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What no card may have as a root is unsupported: for writing HOME and what decides a run, and the grants' keys."""
    monkeypatch.setenv("HOME", str(place / "home/me"))
    monkeypatch.setenv("XDG_STATE_HOME", str(place / "home/me/state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place / "home/me/.config"))
    for name in ("me/work", "me/.config/containers", "data"):
        (place / "home" / name).mkdir(parents=True)
    (place / "home/me/.config/containers/containers.conf").touch()
    wide = {"host_read": "gated", "host_write": "gated"}
    request = asked(place, levels=wide)
    read = TREE.replace("write", "read")
    assert token(request, TREE, str(place / "home/me/work"))
    assert token(request, TREE, str(place / "home/data"))
    assert token(request, read, str(place / "home/me/.config"))
    for cls, target in (
        (TREE, str(place / "home")),
        (TREE, str(place / "home/me")),
        (TREE, str(place / "home/me/.config/containers")),
        (PATH, str(place / "home/me/.config/containers/containers.conf")),
        (TREE, "/proc"),
        (read, "/proc/sys"),
        (read, str(place / "home/me")),
        (read, str(place / "home/me/state/card-run/grants/spent")),
    ):
        with pytest.raises(Refused) as caught:
            token(request, cls, target)
        assert {one.reason for one in caught.value.refusals} == {"unsupported"}, (cls, target)


def test_no_token_for_a_profile_that_no_wall_holds(place: Path) -> None:
    """A place that is closed inside an open tree is refused with any grant; where one opens the tree, it is not."""
    inner = Root(path=str(place / "w/src"), read="gated", write="gated")
    shut = asked(place, levels={"workspace_write": "allow", "roots": (inner,)})
    read = TREE.replace("write", "read")
    for cls, target in ((TREE, inner.path), (read, inner.path), (HOST, "tcp:api.example.com:443")):
        with pytest.raises(Refused, match="unsupported"):
            token(shut, cls, target)
    opened = asked(place, levels={"roots": (inner,)})
    found = opened.replace(
        grant=(token(opened, TREE, str(place / "w")), token(opened, HOST, "tcp:api.example.com:443"))
    )
    assert roots(judged(found)) == {str(place / "w"): WRITE}
    denied = asked(place, levels={"roots": (inner.replace(write="deny"),)})
    with pytest.raises(Refused, match="unsupported"):
        token(denied, TREE, str(place / "w/src2"))


@pytest.mark.parametrize("odd", ["pipe", "endless", "missing"])
def test_a_policy_file_that_cannot_be_read(place: Path, odd: str) -> None:
    """A named pipe and a file without end hold nobody up, neither who issues nor a run with a grant."""
    request = asked(place)
    text = token(request, PATH, str(place / "w/file"))
    os.mkfifo(place / "pipe")
    (place / "endless").symlink_to("/dev/zero")
    other = request.replace(egress=str(place / odd), grant=(text,))
    with pytest.raises(Refused, match="policy-unreadable"):
        token(other, PATH, str(place / "w/file"))
    with pytest.raises(Refused, match="policy-unreadable"):
        launch.judge(other)


def test_a_card_without_network_is_given_none(place: Path) -> None:
    """`--net none` is said by whoever runs the card, and no grant unsays it."""
    with pytest.raises(Refused, match="unsupported"):
        token(asked(place, net="none"), HOST, "tcp:api.example.com:443")


def test_the_bench_says_how_long(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifteen minutes are the most, until the bench says otherwise."""
    request = asked(place)
    with pytest.raises(Refused, match="bad-expiry"):
        token(request, HOST, "tcp:api.example.com:443", seconds=901)
    monkeypatch.setattr(bench, "read", lambda: (Bench(grant_seconds=60), []))
    with pytest.raises(Refused, match="bad-expiry"):
        token(request, HOST, "tcp:api.example.com:443", seconds=61)
    _, grant = approval.approve(request, cls=HOST, target="tcp:api.example.com:443")
    assert grant.expires - grant.issued == 60


def test_several_grants_of_one_run(place: Path) -> None:
    """Each opens its own; one that does not hold refuses the run; one given twice is one."""
    request = asked(place)
    file, host = token(request, PATH, str(place / "w/file")), token(request, HOST, "tcp:api.example.com:443")
    found = judged(request.replace(grant=(file, host, file)))
    assert roots(found)[str(place / "w/file")] == WRITE
    assert found.names == ("api.example.com",)
    assert refused(request.replace(grant=(file, f"{host}x"))) in (["malformed"], ["bad-mac"])
    opened = found.asked.opened
    assert opened
    opening.use(opened.grants)
    assert refused(request.replace(grant=(file, host))) == ["replay", "replay"]


def test_every_option_is_of_the_start_unless_it_says_nothing_of_it() -> None:
    """An option that is added to card-run is bound by every grant, until somebody says that it need not be."""
    plain = Request(command=("x",))
    others: dict[type, Any] = {str: "x", type(None): "x", tuple: ("y",), bool: True, float: 1.0}
    digest = bindings.start_digest(plain)
    changed = [plain.replace(**{name: others[type(value)]}) for name, value in plain.as_dict().items()]
    same = {name for name, one in zip(plain.as_dict(), changed, strict=True) if bindings.start_digest(one) == digest}
    told = {"resolve_timeout", "json", "events", "lifeline", "plan", "quiet", "detach", "interactive", "tty"}
    elsewhere = {"run", "executor", "cwd", "profile", "egress", "resolver", "net", "dns", "env", "env_file", "env_host"}
    assert same == told | elsewhere | {"grant", "opened", "merged", "card_name"}


@pytest.mark.parametrize(
    "change",
    [
        {"env": ("TASK=rm -rf .",)},
        {"env": ("TASK=make test", "BASH_ENV=/w/x")},
        {"env": ("TASK=make test", "TASK=rm -rf .")},
        {"env": ("TASK=make test", "CALLER=other")},
        {"env": ("TASK=make test", "HOME=/w"), "env_file": ()},
        {"env": ()},
        {"env_file": ()},
        {"env_host": True},
    ],
)
def test_variables_are_of_the_start(place: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]) -> None:
    """What a shell would make of the command is in its variables, so a run with others, or other values, is another."""
    monkeypatch.setenv("CALLER", "here")
    (place / "env").write_text("FILE=1\nCALLER\n")
    given: dict[str, Any] = {"env": ("TASK=make test", "CALLER"), "env_file": (str(place / "env"),)}
    request = asked(place, levels={"command": "gated"}, **given).replace(command=("sh", "-c", "$TASK"))
    text = token(request, START)
    same = {"env": ("FILE=1", "CALLER=here", "TASK=make test"), "env_file": ()}
    for good in ({}, same, {"tty": True, "interactive": True}):
        assert refused(request.replace(grant=(text,), **good)) == [], good
    assert refused(request.replace(grant=(text,), **change)) == ["wrong-command"]


def test_variables_that_come_from_elsewhere(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of variables that was edited, and a caller with another value, are told apart, and no value is told."""
    monkeypatch.setenv("CALLER", "here")
    (place / "env").write_text("FILE=1\n")
    request = asked(place, env=("CALLER",), env_file=(str(place / "env"),))
    request = request.replace(grant=(token(request, PATH, str(place / "w/file")),))
    assert refused(request) == []
    monkeypatch.setenv("CALLER", "a-secret")
    (found,) = [one for one in launch.judge(request)[1] if one.reason != "no-route"]
    assert found.reason == "wrong-command"
    assert "variables" in found.text
    assert "a-secret" not in str(found)
    monkeypatch.setenv("CALLER", "here")
    (place / "env").write_text("FILE=1\nLD_PRELOAD=/w/x.so\n")
    assert refused(request) == ["wrong-command"]
    (place / "env").write_text("# the same\nFILE=1\n")
    assert refused(request) == []
    monkeypatch.setenv("TERM", "other")
    assert refused(request) == ["wrong-command"]


def test_the_callers_home_is_of_the_start(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where HOME is the caller's, another HOME is another run; where it is the card's own, the caller's is nothing."""
    (place / "home").mkdir()
    for home, reasons in (("real", ["wrong-command"]), ("isolated", [])):
        monkeypatch.setenv("HOME", str(place))
        request = asked(place, home=home, levels={"home": home})
        request = request.replace(grant=(token(request, PATH, str(place / "w/file")),))
        assert refused(request) == []
        monkeypatch.setenv("HOME", str(place / "home"))
        assert refused(request) == reasons


def test_opened_without_a_token_is_nothing(place: Path) -> None:
    """What a caller says is open, without a token for it, is not."""
    sly = Opened(write=(str(place / "w/file"),), hosts=("other.example.com",), command=True)
    found = judged(asked(place, opened=sly))
    assert roots(found) == {str(place / "w"): READ}
    assert found.names == ()
    bare = launch.judge(Request(command=("true",), egress=str(place / "egress.txt"), opened=sly))[0]
    assert "other.example.com" not in bare.names


def test_a_plan_uses_nothing_up(place: Path) -> None:
    """Judging a request, however often, leaves its grants as they are."""
    request = asked(place, plan=True)
    text = token(request, PATH, str(place / "w/file"))
    for _ in range(3):
        judged(request.replace(grant=(text,)))


def test_a_swap_between_two_looks(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is put in place after the token was compared, and before the roots are resolved, is seen."""
    request = asked(place)
    text = token(request, PATH, str(place / "w/file"))
    decide = filesystem.decide

    def late(*given: Any, **more: Any) -> Any:
        (place / "other").touch()
        (place / "other").rename(place / "w/file")
        return decide(*given, **more)

    monkeypatch.setattr(filesystem, "decide", late)
    assert refused(request.replace(grant=(text,))) == ["target-changed"]


def test_variables_that_change_between_two_looks(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of variables that is written after the grant was compared with it is no way around that."""
    (place / "env").write_text("FILE=1\n")
    request = asked(place, env_file=(str(place / "env"),))
    request = request.replace(grant=(token(request, PATH, str(place / "w/file")),))
    real = opening.take

    def then_written(*words: Any, **options: Any) -> Any:
        found = real(*words, **options)
        (place / "env").write_text("FILE=1\nLD_PRELOAD=/w/x.so\n")
        return found

    monkeypatch.setattr(opening, "take", then_written)
    assert refused(request) == ["wrong-command"]


def test_swapped_is_told_by_its_name(place: Path) -> None:
    """What stage 2 finds mounted in place of a granted target is `target-changed`; another root stays what it was."""
    request = asked(place)
    found = judged(request.replace(grant=(token(request, PATH, str(place / "w/file")),)))
    assert found.asked.opened
    seen = [Refusal("path-swapped", f"{place / name} is not what was judged") for name in ("w/file", "w")]
    told = opening.swapped(seen, found.asked.opened.grants)
    assert [one.reason for one in told] == ["target-changed", "path-swapped"]


def test_no_root_holds_the_keys(place: Path) -> None:
    """A worker that could read the keys could open itself anything: such a root is refused, one beside it is not."""
    request = asked(place)
    token(request, PATH, str(place / "w/file"))
    for inside in ("state", "state/card-run", "state/card-run/grants", "state/card-run/grants/spent", ""):
        found = launch.judge(Request(command=("true",), read=(str(place / inside),)))[1]
        assert "grants-exposed" in [one.reason for one in found], inside
    (place / "state2").mkdir()
    found = launch.judge(Request(command=("true",), read=(str(place / "state2"),)))[1]
    assert "grants-exposed" not in [one.reason for one in found]


def test_how_a_token_arrives(place: Path) -> None:
    """From a file and a descriptor nothing is noted; from the command line it is."""
    request = asked(place)
    text = token(request, PATH, str(place / "w/file"))
    (place / "token").write_text(f"{text}\n")
    assert words.read(f"@{place}/token") == (text, "")
    with (place / "token").open() as file:
        assert words.read(f"fd:{os.dup(file.fileno())}") == (text, "")
    assert words.read(text) == (text, words.NOTE)
    assert words.NOTE in judged(request.replace(grant=(text,))).notes
    assert words.NOTE not in judged(request.replace(grant=(f"@{place}/token",))).notes


@pytest.mark.parametrize("word", ["", "@", "@/nowhere", "@/dev/zero", "fd:", "fd:0", "fd:999", "fd:-1", "fd:x", "x"])
def test_a_word_that_is_no_token(place: Path, word: str) -> None:
    """What cannot be read is malformed, and holds nobody up."""
    assert refused(asked(place, grant=(word,))) == ["malformed"]


def test_a_receipt_gives_nothing_away(place: Path) -> None:
    """What is told of a grant is no token, no MAC and no whole nonce."""
    request = asked(place)
    text, grant = approval.approve(request, cls=PATH, target=str(place / "w/file"))
    shown = str(opening.shown(grant))
    assert grant.nonce not in shown
    assert all(part not in shown for part in text.split("."))
    assert grant.id in shown
