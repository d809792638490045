"""Tokens: one spelling each, and any byte or binding that is another one is refused by its name."""

import os
import string
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from launcher.access.guarantees import ALWAYS
from launcher.access.profile import Profile, fingerprint
from launcher.grants import desk, keys, records, spent, state, token
from launcher.grants.bindings import Binding, command_digest
from launcher.grants.state import State
from launcher.grants.token import Grant
from oci.refusal import Refused

PROFILE = Profile(
    workspace="/nowhere/w", workspace_read="allow", workspace_write="gated", network="gated", command="gated"
)
BINDING = Binding(
    executor="",
    run="r1",
    command=command_digest(("make", "test")),
    variables="2" * 64,
    cwd="/nowhere/w",
    profile=fingerprint(PROFILE),
    route="0" * 64,
    promised=ALWAYS,
)
HOST = "network.proxy-target.v1"


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[State]:
    """Return a grant state of this test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with state.opened() as opened:
        yield opened


def issue(held: State, *, binding: Binding = BINDING, profile: Profile = PROFILE, **given: Any) -> tuple[str, Grant]:
    """Return a token for a host, unless something else is asked for."""
    return desk.issue(held, profile, binding, **{"cls": HOST, "target": "tcp:api.example.com:443", **given})


def reasons(held: State, text: str, *, binding: Binding = BINDING, profile: Profile = PROFILE) -> list[str]:
    """Return the reasons that a token is refused for; none when it holds."""
    try:
        desk.take(held, text, profile, binding)
    except Refused as error:
        return [one.reason for one in error.refusals if one.text and one.hint]
    return []


def test_a_token_opens_what_it_says(held: State) -> None:
    """The control of every refusal below: unchanged, the token is taken, and used once."""
    text, grant = issue(held)
    assert set(text) <= set(string.ascii_letters + string.digits + "-_.")
    assert text.startswith("crg1.")
    assert desk.take(held, text, PROFILE, BINDING) == grant
    assert token.decode(text)[0] == grant
    assert (grant.cls, grant.target, grant.run, grant.nonce[:12]) == (HOST, "tcp:api.example.com:443", "r1", grant.id)
    desk.use(held, grant)
    assert reasons(held, text) == ["replay"]
    with pytest.raises(Refused, match="replay"):
        desk.use(held, grant)


def test_any_byte_changed(held: State) -> None:
    """No byte can be another one: the token is malformed then, or its MAC is another grant's."""
    text, _ = issue(held)
    for place in range(len(text)):
        for other in ("A", "-", ".", "9"):
            if text[place] != other:
                changed = f"{text[:place]}{other}{text[place + 1 :]}"
                assert reasons(held, changed) in (["malformed"], ["bad-mac"]), (place, other)


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda data: f"crg1.{data.hex()}.{data.hex()}"))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_anything_else_is_malformed(text: str) -> None:
    """Whatever is no token says so, and raises nothing else."""
    with pytest.raises(Refused) as caught:
        token.decode(text)
    assert [one.reason for one in caught.value.refusals] == ["malformed"]


@pytest.mark.parametrize("change", ["cut", "longer", "padded", "spaced", "twice", "prefix", "upper", "huge"])
def test_other_spellings_are_malformed(held: State, change: str) -> None:
    """A token has one spelling; padding, white space, more parts and a later version are not it."""
    text, _ = issue(held)
    changed = {
        "cut": text[:-4],
        "longer": f"{text}AAAA",
        "padded": f"{text}=",
        "spaced": f"{text[:40]} {text[40:]}",
        "twice": f"{text}.{text}",
        "prefix": text.replace("crg1", "crg2"),
        "upper": text.replace("crg1", "CRG1"),
        "huge": f"crg1.{'A' * token.MOST}.AAAA",
    }[change]
    assert reasons(held, changed)[0] in {"malformed", "bad-mac"}
    assert change in {"cut", "longer"} or reasons(held, changed) == ["malformed"]


OTHERS = {
    "run": ("r2", "wrong-execution"),
    "executor": ("agent-2", "wrong-execution"),
    "command": (command_digest(("make  test",)), "wrong-command"),
    "variables": ("1" * 64, "wrong-command"),
    "cwd": ("/nowhere/w/src", "wrong-working-directory"),
    "profile": ("1" * 64, "profile-mismatch"),
    "route": ("1" * 64, "route-mismatch"),
    "promised": (ALWAYS[1:], "guarantee-mismatch"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_each_binding_by_its_name(held: State, name: str) -> None:
    """A run that differs in one binding is refused for that, and for nothing else."""
    text, _ = issue(held)
    value, reason = OTHERS[name]
    assert reasons(held, text, binding=BINDING.replace(**{name: value})) == [reason]


def test_all_that_differs_at_once(held: State) -> None:
    """What is wrong is told in one pass."""
    text, grant = issue(held)
    desk.use(held, grant)
    other = BINDING.replace(**{name: value for name, (value, _) in OTHERS.items()})
    found = reasons(held, text, binding=other, profile=PROFILE.replace(network="deny"))
    assert sorted(found) == sorted([*(reason for _, reason in OTHERS.values()), "denied", "replay"])


def test_a_grant_of_other_fields_has_another_mac(held: State) -> None:
    """Whoever writes a payload of their own has no MAC for it, whichever field they change."""
    text, grant = issue(held)
    _, signature = token.decode(text)
    key = keys.current(held, now=0)
    assert token.genuine(grant, signature, key.secret)
    for name, value in grant.as_dict().items():
        changed = grant.replace(**{name: value + 1 if isinstance(value, int) else f"{value}x"})
        assert not token.genuine(changed, signature, key.secret), name


def test_a_token_has_room_for_every_path(held: State) -> None:
    """The longest paths there can be make a token that is taken; more is refused, and nothing is recorded of it."""
    text, grant = issue(held)
    long = grant.replace(**dict.fromkeys(("cwd", "target", "anchor"), "/" + "é" * 2047), executor="x" * 200)
    key = keys.current(held, now=0)
    assert token.decode(token.encode(long, key.secret))[0] == long
    with pytest.raises(Refused, match="unsupported"):
        issue(held, binding=BINDING.replace(executor="x" * token.MOST))
    assert [one.id for one in records.listed(held, now=0)] == [grant.id]
    odd = BINDING.replace(cwd="/nowhere/\udcff", executor="\udc80")
    text, grant = issue(held, binding=odd)
    assert token.decode(text)[0] == grant
    assert reasons(held, text, binding=odd) == []
    assert reasons(held, text, binding=odd.replace(cwd="/nowhere/\udcfe")) == ["wrong-working-directory"]


def test_fields_cannot_run_into_each_other(held: State) -> None:
    """Lengths stand before the fields, so that moving a byte from one to the next is another grant."""
    _, grant = issue(held)
    moved = grant.replace(run=f"{grant.run}{grant.command[0]}", command=grant.command[1:])
    assert moved.canonical() != grant.canonical()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "b"), ("a", "", "b")),
        (("a b",), ("a  b",)),
        (("a b",), ("a", "b")),
        (("sh", "-c", "a b"), ("sh", "-c", "a  b")),
        (("a",), ("a", "")),
        (("é",), ("e\u0301",)),
        (("\udc80",), ("\udc81",)),
        (("\udcc3\udca9",), ("é",)),
        (("\ud800",), ("",)),
    ],
)
def test_commands_are_compared_word_by_word(held: State, one: tuple[str, ...], other: tuple[str, ...]) -> None:
    """A grant for `a b` starts `a b`, and neither `a  b` nor one word where there were two."""
    text, _ = issue(held, binding=BINDING.replace(command=command_digest(one)), cls="command.start.v1", target="")
    assert reasons(held, text, binding=BINDING.replace(command=command_digest(one))) == []
    assert reasons(held, text, binding=BINDING.replace(command=command_digest(other))) == ["wrong-command"]


@pytest.mark.parametrize(
    ("skew", "reason"), [(-1, "expired"), (-86400, "expired"), (60, "expired"), (86400, "expired")]
)
def test_clock_skew(held: State, monkeypatch: pytest.MonkeyPatch, skew: int, reason: str) -> None:
    """A clock that is before the issue or after the end refuses; within, the token holds."""
    text, grant = issue(held, seconds=60)
    now = grant.issued
    for good in (0, 59):
        monkeypatch.setattr(time, "time", lambda: float(now + good))  # noqa: B023 - used within this turn
        assert reasons(held, text) == []
    monkeypatch.setattr(time, "time", lambda: float(now + skew))
    assert reasons(held, text) == [reason]


def test_a_clock_set_back_gives_no_grant_back(held: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the use of an expired grant is forgotten, no clock makes that grant good again, and none is issued."""
    text, grant = issue(held, seconds=60)
    desk.use(held, grant)
    spent.prune(held, now=grant.expires)
    assert spent.what(held, grant.nonce, expires=grant.expires) == ""
    monkeypatch.setattr(time, "time", lambda: float(grant.issued))
    assert reasons(held, text) == ["expired"]
    with pytest.raises(Refused, match="expired"):
        desk.use(held, grant)
    with pytest.raises(Refused, match="clock was set back"):
        issue(held)


def test_what_is_not_expired_is_not_forgotten(held: State) -> None:
    """Pruning leaves every nonce that could still be shown again."""
    text, grant = issue(held, seconds=60)
    desk.use(held, grant)
    spent.prune(held, now=grant.expires - 1)
    assert reasons(held, text) == ["replay"]


@pytest.mark.parametrize("seconds", [0, -1, 901, 1 << 40, 60.0, True])
def test_expiry_is_bounded(held: State, seconds: int) -> None:
    """A grant is good for a number of seconds, at most fifteen minutes of them unless the bench says otherwise."""
    with pytest.raises(Refused, match="bad-expiry"):
        issue(held, seconds=seconds)
    assert issue(held, seconds=3600, most=3600)[1].expires


def test_revoked_is_denied(held: State) -> None:
    """A revoked grant opens nothing; one that was used cannot be revoked any more, and that is said."""
    text, grant = issue(held)
    spent.revoke(held, grant.nonce, expires=grant.expires)
    assert reasons(held, text) == ["denied"]
    with pytest.raises(Refused, match="was revoked"):
        desk.use(held, grant)
    _, other = issue(held)
    desk.use(held, other)
    with pytest.raises(Refused, match="was used already") as used:
        spent.revoke(held, other.nonce, expires=other.expires)
    with pytest.raises(Refused, match="was revoked already") as revoked:
        spent.revoke(held, grant.nonce, expires=grant.expires)
    # It is no new grant that whoever takes one back is after.
    assert [one.hint for error in (used, revoked) for one in error.value.refusals] == ["", ""]


def test_minting_asks_the_profile(held: State) -> None:
    """Only what is gated can be granted, whatever the caller believes; a denied target is also refused later."""
    text, _ = issue(held)
    for level, reason in (("deny", "denied"), ("allow", "not-gated")):
        with pytest.raises(Refused, match=reason):
            issue(held, profile=PROFILE.replace(network=level))
    assert reasons(held, text, profile=PROFILE.replace(network="deny")) == ["denied"]
    with pytest.raises(Refused, match="wrong-execution"):
        issue(held, binding=BINDING.replace(run=""))


@pytest.mark.parametrize(
    ("cls", "target", "reason"),
    [
        ("network.proxy-target.v2", "tcp:a.example.com:443", "unsupported"),
        ("network.broad.v1", "tcp:*:443", "unsupported"),
        ("network.broad.v1", "tcp:a.example.com:443", "malformed"),
        (HOST, "tcp:*:443", "malformed"),
        (HOST, "tcp:a.example.com:8443", "unsupported"),
        (HOST, "a.example.com", "malformed"),
        (HOST, "tcp:192.0.2.1:443", "malformed"),
        ("filesystem.path.write.v1", "nowhere/w/x", "malformed"),
        ("filesystem.path.write.v1", "tree:/nowhere/w", "malformed"),
        ("filesystem.path.write.v1", "/nowhere/w/x", "unsupported"),
        ("filesystem.tree.write.v1", "/nowhere/w", "unsupported"),
        ("filesystem.host.write.v1", "host:*", "denied"),
        ("filesystem.host.write.v1", "/", "malformed"),
        ("filesystem.tree.write.v1", "/etc", "denied"),
    ],
)
def test_what_no_wall_holds_is_not_granted(held: State, cls: str, target: str, reason: str) -> None:
    """A target that no wall can hold to the letter is unsupported, one that is none malformed, a denied one denied."""
    with pytest.raises(Refused) as caught:
        issue(held, cls=cls, target=target)
    assert reason in [one.reason for one in caught.value.refusals]
    assert records.listed(held, now=0) == []


def test_host_wide_grants_are_unsupported(held: State) -> None:
    """Where the whole bench is gated, no grant for all of it is made: no mount is that."""
    profile = Profile(workspace="/nowhere/w", host_read="gated", workspace_read="gated")
    with pytest.raises(Refused, match="unsupported"):
        issue(held, profile=profile, cls="filesystem.host.read.v1", target="host:*")


def test_required_guarantees_are_bound(held: State) -> None:
    """A grant may want more of a run than the profile does, but nothing that no run of it promises."""
    with pytest.raises(Refused, match="target_network, which this run does not promise"):
        issue(held, required=("target_network",))
    limited = BINDING.replace(promised=(*ALWAYS, "resource_limits"))
    text, _ = issue(held, binding=limited, required=("resource_limits",))
    assert reasons(held, text, binding=limited) == []
    assert reasons(held, text) == ["guarantee-mismatch"]


def test_rotation_and_its_grace(held: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token outlives its key's rotation by the grace period, and not by a second more."""
    text, grant = issue(held)
    new = keys.rotate(held, now=grant.issued, grace=60)
    assert new.id != grant.key
    assert issue(held)[1].key == new.id
    assert reasons(held, text) == []
    monkeypatch.setattr(time, "time", lambda: float(grant.issued + 60))
    assert reasons(held, text) == ["bad-mac"]
    second, _ = issue(held)
    keys.rotate(held, now=grant.issued + 60, grace=0)
    assert reasons(held, second) == ["bad-mac"]


def test_another_bench_knows_no_token_of_ours(held: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's or bench's key makes nothing of it."""
    text, _ = issue(held)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    with state.opened() as other:
        assert reasons(other, text) == ["bad-mac"]


def test_keys_are_nobody_elses(held: State) -> None:
    """The key file and all directories are owner-only; one that others could read is not used."""
    text, _ = issue(held)
    path = Path(held.path)
    assert {entry.stat().st_mode & 0o077 for entry in [path, *path.rglob("*")]} == {0}
    (path / keys.FILE).chmod(0o640)
    with pytest.raises(Refused, match="not yours alone"):
        desk.take(held, text, PROFILE, BINDING)
    (path / keys.FILE).chmod(0o600)
    path.chmod(0o750)
    with pytest.raises(Refused, match="not yours alone"), state.opened():
        pass


def test_a_linked_key_file_is_not_followed(held: State, tmp_path: Path) -> None:
    """A link in place of the key is refused, whatever it leads to."""
    text, _ = issue(held)
    own = Path(held.path) / keys.FILE
    own.rename(tmp_path / "moved")
    own.symlink_to(tmp_path / "moved")
    with pytest.raises(Refused, match="grant-state"):
        desk.take(held, text, PROFILE, BINDING)


@pytest.mark.parametrize("data", [b"", b"{}", b'{"keys":[{"secret":"00","made":0,"until":null}]}', b"\xff"])
def test_an_odd_key_file_is_refused(held: State, data: bytes) -> None:
    """No key is made of what is none."""
    held.write(keys.FILE, data)
    with pytest.raises(Refused, match="grant-state"):
        keys.current(held, now=0)


def test_secrets_are_in_no_text(held: State) -> None:
    """Neither a key's own text nor what is recorded of a grant gives a secret or a MAC away."""
    text, grant = issue(held, summary="make test")
    key = keys.current(held, now=0)
    assert key.secret.hex() not in repr(key)
    assert str(key.secret) not in f"{key}{key!r}"
    kept = b"".join(path.read_bytes() for path in Path(held.path, "issued").iterdir())
    assert text.rsplit(".", maxsplit=1)[1].encode() not in kept
    assert key.secret.hex().encode() not in kept
    (listed,) = records.listed(held, now=grant.issued)
    assert (listed.id, listed.state, listed.summary) == (grant.id, "open", "make test")


def test_variables_are_sealed(held: State) -> None:
    """Neither token nor record has the digest of variables, by which values could be tried, nor the same twice."""
    (one, first), (_, second) = issue(held, summary="make test"), issue(held)
    kept = b"".join(path.read_bytes() for path in Path(held.path, "issued").iterdir())
    assert BINDING.variables not in one + str(token.decode(one)) + kept.decode()
    assert first.variables != second.variables
    assert {len(first.variables), len(second.variables)} == {64}


def test_listed_by_what_became_of_them(held: State) -> None:
    """Open, used, revoked, expired: each is told, and an id's beginning finds its grant."""
    grants = [issue(held)[1] for _ in range(3)]
    desk.use(held, grants[0])
    spent.revoke(held, grants[1].nonce, expires=grants[1].expires)
    now = grants[0].issued
    assert sorted(one.state for one in records.listed(held, now=now)) == ["open", "revoked", "used"]
    assert records.find(held, grants[2].id, now=now).grant["nonce"] == grants[2].nonce
    assert records.find(held, grants[2].id, now=grants[2].expires).state == "expired"
    with pytest.raises(Refused, match="unknown-grant"):
        records.find(held, "", now=now)
    with pytest.raises(Refused, match="unknown-grant"):
        records.find(held, "zz", now=now)


def test_one_of_fifty_wins(held: State) -> None:
    """Of fifty processes that use one grant at the same moment, exactly one may."""
    _, grant = issue(held)
    start, begin = os.pipe()
    children: list[int] = []
    for _ in range(50):
        child = os.fork()
        if child == 0:
            os.close(begin)
            os.read(start, 1)  # returns for all of them once the other end is closed
            status = 2
            try:
                desk.use(held, grant)
                status = 0
            except Refused as error:
                status = 1 if [one.reason for one in error.refusals] == ["replay"] else 3
            finally:
                os._exit(status)
        children.append(child)
    os.close(begin)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    os.close(start)
    assert sorted(statuses) == [0, *[1] * 49]


def test_issuing_at_the_same_moment(held: State) -> None:
    """Processes that issue at once do not take each other's unfinished records away; what is long abandoned goes."""
    fd = held.sub(records.DIRECTORY)
    for name, age in ((".old", 61), (".new", 0)):
        held.create(name, b"", at=fd)
        os.utime(name, (time.time() - age,) * 2, dir_fd=fd)
    children: list[int] = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                for _ in range(25):
                    issue(held)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4
    assert len(records.listed(held, now=0)) == 100
    assert [name for name in os.listdir(fd) if name.startswith(".")] == [".new"]
    os.close(fd)


def test_a_mark_that_moves_on_meanwhile(held: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process that removes what has expired, a second later, does not make this one's clock look set back."""
    now = int(time.time())
    read, prune = spent.mark, spent.forget

    def later() -> float:
        prune(held, now=now + 1)
        return float(now)

    monkeypatch.setattr(time, "time", later)
    assert issue(held)[1].issued == now
    assert read(held) == now + 1


def test_one_of_two_keys_is_the_first(held: State) -> None:
    """Of those who need the first key at the same moment, all get one and the same."""
    start, begin = os.pipe()
    out, told = os.pipe()
    for _ in range(8):
        if os.fork() == 0:
            os.close(begin)
            os.read(start, 1)
            os.write(told, f"{keys.current(held, now=1).id}\n".encode())
            os._exit(0)
    os.close(begin)
    os.close(told)
    with os.fdopen(out) as file:
        assert len(set(file.read().split())) == 1
    for _ in range(8):
        os.wait()
    os.close(start)
