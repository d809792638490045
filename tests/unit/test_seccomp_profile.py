"""podman's profile with the deny list on top, judged by the rules that libseccomp applies to a profile."""

import errno
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.seccomp import profile, table
from launcher.seccomp.table import X86_64, Deny
from oci.refusal import Refused
from tests.unit.bpf_machine import ALLOW, ERRNO, Call, verdict

RULES = table.rules()
CONDITIONAL = sorted({rule.call for rule in RULES if rule.tests})
BASE: dict[str, Any] = {
    "defaultAction": "SCMP_ACT_ERRNO",
    "defaultErrnoRet": 38,
    "defaultErrno": "ENOSYS",
    "archMap": [{"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86", "SCMP_ARCH_X32"]}],
    "syscalls": [
        {"names": ["read", *profile.NEEDED, "seccomp", "unshare", "mount"],
         "action": "SCMP_ACT_ALLOW", "args": [], "includes": {}, "excludes": {}},
        {"names": ["clone", "ioctl", "socketpair", "ptrace"], "action": "SCMP_ACT_ALLOW", "args": []},
        {"names": ["chmod", "fchmod", "fchmodat", "fchmodat2"], "action": "SCMP_ACT_ALLOW", "args": []},
        {"names": ["bpf"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_SYS_ADMIN"]}},
        {"names": ["socket"], "action": "SCMP_ACT_ALLOW",
         "args": [{"index": 0, "value": 16, "valueTwo": 0, "op": "SCMP_CMP_NE"}]},
    ],
}  # fmt: skip
PROFILE = profile.apply(BASE, RULES)
VALUES = sorted({value for rule in RULES for test in rule.tests for value in test.values})
LOW = st.sampled_from([*VALUES, 3, 5, 9, 17, 38, 40, 132, 262, 0x5413, 0x10000000]) | st.integers(0, 0xFFFFFFFF)


def holds(condition: dict[str, Any], args: tuple[int, ...]) -> bool:
    """Return whether libseccomp's comparison of a 64-bit argument holds."""
    value, arg = condition["value"], args[condition["index"]]
    if condition["op"] == "SCMP_CMP_MASKED_EQ":
        return bool(arg & value == condition["valueTwo"])
    assert condition["op"] == "SCMP_CMP_GT"
    return bool(arg > value)


def verdicts(call: str, args: tuple[int, ...]) -> set[int]:
    """Return every verdict that the profile's rules reach for a call, the default when there is none."""
    rules = [entry for entry in PROFILE["syscalls"] if call in entry["names"]]
    hits = [entry for entry in rules if all(holds(condition, args) for condition in entry.get("args") or ())]
    return {ALLOW if hit["action"] == "SCMP_ACT_ALLOW" else ERRNO | hit["errnoRet"] for hit in hits} or {
        ERRNO | errno.ENOSYS
    }


def rule_of(call: str) -> Deny:
    """Return the first rule of a call."""
    return next(rule for rule in RULES if rule.call == call)


@settings(max_examples=500)
@given(call=st.sampled_from(CONDITIONAL), args=st.tuples(*[LOW] * 6))
def test_what_the_list_denies_the_profile_denies_and_no_more(call: str, args: tuple[int, ...]) -> None:
    """The profile allows exactly what the list allows; the errno is the list's, or the default's in wide gaps."""
    expected = verdict(X86_64, RULES, Call(rule_of(call).x86_64 or 0, X86_64.audit, args))
    found = verdicts(call, args)
    assert len(found) == 1, "no two patterns may overlap with different verdicts"
    assert found <= ({ALLOW} if expected == ALLOW else {expected, ERRNO | errno.ENOSYS})


@given(call=st.sampled_from(CONDITIONAL), args=st.tuples(*[LOW] * 6), high=st.integers(1, 0xFFFFFFFF))
def test_an_upper_half_never_opens(call: str, args: tuple[int, ...], high: int) -> None:
    """Rubbish in a register's upper half may cost an errno, and never allows what the list denies."""
    above = tuple(arg | high << 32 for arg in args)
    expected = verdict(X86_64, RULES, Call(rule_of(call).x86_64 or 0, X86_64.audit, above))
    assert expected == ALLOW or ALLOW not in verdicts(call, above)


@pytest.mark.parametrize("rule", [rule for rule in RULES if not rule.tests], ids=lambda rule: rule.call)
def test_a_call_that_is_always_denied(rule: Deny) -> None:
    """It has one entry, with the list's errno in both of podman's spellings."""
    entries = [entry for entry in PROFILE["syscalls"] if rule.call in entry["names"]]
    (entry,) = entries
    assert (entry["action"], entry["errnoRet"], entry["errno"], entry["args"]) == (
        "SCMP_ACT_ERRNO", rule.errno, errno.errorcode[rule.errno], [],
    )  # fmt: skip


def test_conditions_are_ones_that_libseccomp_keeps() -> None:
    """No call has a rule without conditions beside rules with them, and no rule tests an argument twice."""
    for call in CONDITIONAL:
        entries = [entry for entry in PROFILE["syscalls"] if call in entry["names"]]
        assert len(entries) > 1
        for entry in entries:
            indexes = [condition["index"] for condition in entry["args"]]
            assert indexes
            assert len(set(indexes)) == len(indexes)


def test_what_podman_does_not_know_stays_closed() -> None:
    """A call that came after podman's own profile is not opened by ours."""
    older = [{**entry, "names": [name for name in entry["names"] if name != "fchmodat2"]} for entry in BASE["syscalls"]]
    entries = profile.apply({**BASE, "syscalls": older}, RULES)["syscalls"]
    assert {entry["action"] for entry in entries if "fchmodat2" in entry["names"]} == {"SCMP_ACT_ERRNO"}


def test_the_rest_of_podman_s_profile_stays() -> None:
    """What the list does not name is as podman has it; entries that lost every name are gone."""
    assert PROFILE["syscalls"][0]["names"] == ["read", *profile.NEEDED, "seccomp"]
    assert (PROFILE["defaultAction"], PROFILE["defaultErrno"]) == ("SCMP_ACT_ERRNO", "ENOSYS")
    assert all(entry["names"] for entry in PROFILE["syscalls"])
    assert BASE["syscalls"][0]["names"][-1] == "mount", "the base is not changed"


def test_foreign_entry_is_left_out() -> None:
    """Without i386 and x32 in the profile libseccomp kills their calls."""
    assert PROFILE["archMap"] == [{"architecture": "SCMP_ARCH_X86_64", "subArchitectures": []}]


@pytest.mark.parametrize("action", ["SCMP_ACT_ALLOW", "SCMP_ACT_LOG", None])
def test_a_base_that_allows_by_default_is_refused(action: str | None) -> None:
    """The patterns only deny because the default does."""
    with pytest.raises(Refused, match="podman-profile-open"):
        profile.apply({**BASE, "defaultAction": action}, RULES)


@pytest.mark.parametrize("call", profile.NEEDED)
@pytest.mark.parametrize("how", ["gone", "denied as well", "with a condition", "for a capability"])
def test_a_base_that_blocks_what_stage_2_needs_is_refused(call: str, how: str) -> None:
    """Landlock's calls and the few others must be allowed without conditions; the refusal names the call."""
    others = [name for name in profile.NEEDED if name != call]
    entry: dict[str, Any] = {"names": [call], "action": "SCMP_ACT_ALLOW", "args": []}
    more = {
        "gone": [],
        "denied as well": [entry, {**entry, "action": "SCMP_ACT_ERRNO"}],
        "with a condition": [{**entry, "args": [{"index": 0, "value": 1, "op": "SCMP_CMP_EQ"}]}],
        "for a capability": [{**entry, "includes": {"caps": ["CAP_SYS_ADMIN"]}}],
    }
    base = {**BASE, "syscalls": [{"names": others, "action": "SCMP_ACT_ALLOW", "args": []}]}
    assert profile.apply({**base, "syscalls": [*base["syscalls"], entry]}, RULES)
    with pytest.raises(Refused, match=f"podman-profile-blocks .*{call}"):
        profile.apply({**base, "syscalls": [*base["syscalls"], *more[how]]}, RULES)


@given(
    mask=st.integers(1, 0xFFFFFFFF),
    seeds=st.lists(st.integers(0, 0xFFFFFFFF), min_size=1, max_size=4),
    probe=st.integers(0, 0xFFFFFFFF),
)
def test_a_complement_is_exact(mask: int, seeds: list[int], probe: int) -> None:
    """Exactly one pattern holds for a number that is none of the values, and none for one that is."""
    values = sorted({seed & mask for seed in seeds})
    patterns = profile.complement(mask, values)
    for number in (probe, *seeds):
        hits = sum(number & fixed == value for fixed, value in patterns)
        assert hits == (0 if number & mask in values else 1)
