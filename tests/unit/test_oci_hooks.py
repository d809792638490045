"""What the OCI specifications give a hook, as values: the state, hooks.d files, annotations, and JSON itself."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hooks import plan
from oci import annotations, hooksd, state, strictjson
from oci.refusal import Refused

STATE: "dict[str, Any]" = {
    "ociVersion": "1.0",
    "id": "c0ffee",
    "pid": 4242,
    "root": "/x/merged",
    "bundle": "/x/userdata",
    "status": "created",
    "annotations": {annotations.RUN: "r1", "other": ""},
}


def parsed(change: "dict[str, Any]") -> state.State:
    """Return the state with some members changed; None leaves one out."""
    members = {key: value for key, value in {**STATE, **change}.items() if value is not None}
    return state.parse(json.dumps(members).encode())


def test_a_state_is_read() -> None:
    """What a hook needs of crun's state is read, and what runtimes add is passed over."""
    found = parsed({})
    assert (found.id, found.pid, found.bundle, found.status) == ("c0ffee", 4242, "/x/userdata", "created")
    assert found.annotations == STATE["annotations"]


def test_a_poststop_state_has_no_pid() -> None:
    """Podman's poststop state has no pid and may have no annotations."""
    found = parsed({"pid": None, "annotations": None, "status": "stopped"})
    assert (found.pid, found.annotations, found.status) == (0, {}, "stopped")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"id": None}, "has no id"),
        ({"id": ""}, "has no id"),
        ({"id": 7}, "has no id"),
        ({"bundle": None}, "has no bundle"),
        ({"bundle": "x"}, "not an absolute path"),
        ({"bundle": "/x\0y"}, "has no bundle"),
        ({"status": None}, "has no status"),
        ({"status": "paused"}, "'paused'"),
        ({"pid": -1}, "pid"),
        ({"pid": "7"}, "pid"),
        ({"pid": True}, "pid"),
        ({"pid": 1.5}, "pid"),
        ({"annotations": []}, "annotations"),
        ({"annotations": {"a": 1}}, "annotations"),
        ({"annotations": "a"}, "annotations"),
    ],
)
def test_a_malformed_state_is_refused(change: "dict[str, Any]", told: str) -> None:
    """Each member that a hook relies on must be what the specification says."""
    with pytest.raises(Refused, match="state-malformed") as refused:
        parsed(change)
    assert told in str(refused.value)


def test_all_that_is_wrong_is_told_at_once() -> None:
    """Independent problems are collected."""
    with pytest.raises(Refused) as refused:
        parsed({"id": None, "bundle": None, "pid": -1, "annotations": 3})
    assert len(refused.value.refusals) == 4


@pytest.mark.parametrize("data", [b"", b" ", b"[]", b"null", b"{", b'{"id":"a","id":"b"}', b"\xff{}", b"{}x"])
def test_what_is_no_object_is_refused(data: bytes) -> None:
    """Anything but one JSON object is refused."""
    with pytest.raises(Refused, match="state-malformed"):
        state.parse(data)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """No input makes the reader fail in another way."""
    with pytest.raises(Refused, match="state-malformed"):
        state.parse(data)


ARGV = ("/usr/bin/python3", "-I", "-S", "-B", "/opt/card-run/hooks/__main__.py")


def test_the_pair_of_hook_files() -> None:
    """One file per stage, one stage per file, by our annotation, with an environment of their own."""
    files = hooksd.pair(path=ARGV[0], args=ARGV)
    values = [json.loads(hooksd.render(file)) for file in files]
    assert [file.name for file in files] == ["50-card-run-prestart.json", "50-card-run-poststop.json"]
    assert [value["stages"] for value in values] == [["createRuntime"], ["poststop"]]
    assert [value["hook"]["args"][-1] for value in values] == ["prestart", "poststop"]
    assert [value["hook"]["timeout"] for value in values] == [hooksd.PRESTART_TIMEOUT, hooksd.POSTSTOP_TIMEOUT]
    for value in values:
        assert value["version"] == "1.0.0"
        assert value["when"] == {"annotations": {"^org\\.card-run\\.run$": ".*"}}
        assert value["hook"]["path"] == ARGV[0] == value["hook"]["args"][0]
        assert value["hook"]["env"] == ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"]


def test_a_hook_file_reads_back() -> None:
    """Parse is render's inverse."""
    for file in hooksd.pair(path=ARGV[0], args=ARGV):
        assert hooksd.parse(file.name, hooksd.render(file).encode()) == file


def test_two_hook_files_differ() -> None:
    """Values compare by what they say."""
    prestart, poststop = hooksd.pair(path=ARGV[0], args=ARGV)
    assert prestart != poststop
    assert len({prestart, poststop, *hooksd.pair(path=ARGV[0], args=ARGV)}) == 2
    assert prestart != "50-card-run-prestart.json"


GOOD: "dict[str, Any]" = {"name": "50-x.json", "stage": "poststop", "path": "/x", "args": ("/x",), "timeout": 1}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"name": "50-x.conf"}, "ends in .json"),
        ({"name": "d/50-x.json"}, "ends in .json"),
        ({"stage": "prestart"}, "stage"),
        ({"stage": ""}, "stage"),
        ({"path": "x"}, "absolute"),
        ({"args": ()}, "argv"),
        ({"timeout": 0}, "timeout"),
        ({"env": ()}, "env"),
        ({"env": ("PATH",)}, "env"),
    ],
)
def test_a_hook_file_that_podman_would_skip_is_refused(change: "dict[str, Any]", told: str) -> None:
    """What podman passes over without a word is refused when the value is made."""
    hooksd.HookFile(**GOOD)
    with pytest.raises(Refused, match="hook-file-malformed") as refused:
        hooksd.HookFile(**{**GOOD, **change})
    assert told in str(refused.value)


def changed(path: str, value: object) -> bytes:
    """Return a prestart file with one member, named by its path, changed; None leaves it out."""
    file = json.loads(hooksd.render(hooksd.pair(path=ARGV[0], args=ARGV)[0]))
    *above, last = path.split("/")
    place = file
    for key in above:
        place = place[key]
    place[last] = value
    if value is None:
        del place[last]
    return json.dumps(file).encode()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("version", "2.0.0"),
        ("version", None),
        ("stages", ["createRuntime", "prestart"]),
        ("stages", []),
        ("stages", "createRuntime"),
        ("when", {"always": True}),
        ("when/annotations", {"^org\\.card-run\\.runs$": ".*"}),
        ("when/commands", ["x"]),
        ("hook/env", None),
        ("hook/timeout", "75"),
        ("hook/path", "python3"),
        ("hook/args", "x"),
        ("hook/extra", 1),
        ("hook", None),
        ("extra", 1),
    ],
)
def test_a_file_that_is_not_ours_is_refused(path: str, value: object) -> None:
    """A hooks.d file that says anything else than `render` would is refused."""
    with pytest.raises(Refused, match="hook-file-malformed"):
        hooksd.parse("50-card-run-prestart.json", changed(path, value))


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"{}", b"\xff"])
def test_a_file_that_is_no_object_is_refused(data: bytes) -> None:
    """A file that is not one JSON object is refused."""
    with pytest.raises(Refused, match="hook-file-malformed"):
        hooksd.parse("50-card-run-prestart.json", data)


def test_annotations_share_a_prefix() -> None:
    """The three annotations are distinct and all ours."""
    names = {annotations.RUN, annotations.DIRECTORY, annotations.LAUNCH}
    assert len(names) == 3
    assert all(name.startswith("org.card-run.") for name in names)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(_JSON)
def test_json_agrees_with_the_standard_library(value: Any) -> None:
    """Our text is what `json` writes for the same value, canonical, and we read back what it writes in any shape."""
    text = strictjson.dump(value)
    assert text == json.dumps(value, sort_keys=True, separators=(",", ":"))
    assert strictjson.parse(text.encode()) == value
    assert strictjson.parse(json.dumps(value, indent=2).encode()) == value


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"{",
        b"[1,]",
        b"{'a':1}",
        b'{"a":1,"a":2}',
        b'[{"a":1,"a":2}]',
        b"NaN",
        b"-Infinity",
        b"01",
        b"1 2",
        b'"\n"',
        b"\xff",
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        b"tru",
        b'"\\x"',
        b"[1}",
        b"nul",
    ],
)
def test_what_is_not_strict_json_is_a_value_error(data: bytes) -> None:
    """Bad JSON, keys given twice, NaN, a byte order mark and endless nesting are ValueError and nothing else."""
    with pytest.raises(ValueError, match=r"."):
        strictjson.parse(data)


@pytest.mark.parametrize("value", [b"x", {1: 2}, object(), {"a": {1, 2}}])
def test_what_is_not_json_is_not_written(value: object) -> None:
    """A value that JSON does not have is TypeError."""
    with pytest.raises(TypeError):
        strictjson.dump(value)


@given(st.binary())
def test_the_digest_is_sha256(data: bytes) -> None:
    """The plan's digest is SHA-256, whichever module gives it."""
    assert plan.sha256(data) == hashlib.sha256(data).hexdigest()
