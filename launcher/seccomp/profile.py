"""The deny list as podman's seccomp profile: podman's own, with our rules on top of it.

`podman exec` and health checks apply this one and not stage 2's filter. In libseccomp's language a call that has an
unconditional rule loses every conditional one without a word, and a rule may test an argument once. So every call of
our list is taken out of podman's own entries, and one that depends on its arguments comes back as the exact set of
argument patterns that may pass; whatever no pattern names meets the profile's default, which is to deny.
See seccomp_rule_add(3), containers-common's seccomp.json and the OCI runtime-spec's config-linux.md.
"""

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from launcher.seccomp.table import Deny
from oci.refusal import Refusal, Refused

# What stage 2 calls and nothing else does: a profile without them would end in a refusal that cannot tell why.
NEEDED = ("close_range", "landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self", "prctl")
ALLOW = 0  # the verdict of no rule, beside the rules' errno values
FULL = 0xFFFFFFFF
MOST_GAPS = 16
# podman's own order: the administrator's file, then the package's.
BASES = ("/etc/containers/seccomp.json", "/usr/share/containers/seccomp.json")


def base_path() -> str:
    """Return the profile that podman would use by itself; raises Refused when this bench has none."""
    for path in BASES:
        if os.path.exists(path):
            return path
    hint = "install containers-common (Debian: golang-github-containers-common)"
    raise Refused([Refusal("no-podman-profile", f"podman's seccomp profile is in none of {', '.join(BASES)}", hint)])


def apply(base: dict[str, Any], deny: tuple[Deny, ...]) -> dict[str, Any]:
    """Return a profile (parsed JSON) with the deny list on top.

    Raises Refused for one that allows by default or that blocks what stage 2 needs. Only the machine's own architecture
    stays: i386 and x32 calls cannot be judged by their arguments.
    """
    if base.get("defaultAction") not in {"SCMP_ACT_ERRNO", "SCMP_ACT_KILL", "SCMP_ACT_KILL_PROCESS"}:
        text = f"podman's seccomp profile has the default action {base.get('defaultAction')!r}, which allows"
        raise Refused([Refusal("podman-profile-open", text, "restore the distribution's seccomp.json")])
    blocked = [call for call in NEEDED if not _allowed(base, call)]
    if blocked:
        text = f"podman's seccomp profile blocks {', '.join(blocked)}"
        raise Refused([Refusal("podman-profile-blocks", text, "restore the distribution's seccomp.json")])
    denied = {rule.call for rule in deny}
    entries = [
        {**entry, "names": [name for name in entry["names"] if name not in denied]} for entry in base["syscalls"]
    ]
    machines: list[dict[str, Any]] = [{**machine, "subArchitectures": []} for machine in base.get("archMap", ())]
    # A call that podman's own profile does not know is not opened by ours.
    known = {name for entry in base["syscalls"] if entry["action"] == "SCMP_ACT_ALLOW" for name in entry["names"]}
    ours = [*_unconditional(deny), *_conditional(deny)]
    ours = [entry for entry in ours if entry["action"] != "SCMP_ACT_ALLOW" or entry["names"][0] in known]
    return {**base, "archMap": machines, "syscalls": [entry for entry in entries if entry["names"]] + ours}


def _allowed(base: dict[str, Any], call: str) -> bool:
    """Return whether a profile allows a call whatever its arguments and the container's capabilities."""
    entries = [entry for entry in base["syscalls"] if call in entry["names"]]
    plain = [entry for entry in entries if not (entry.get("args") or entry.get("includes") or entry.get("excludes"))]
    return any(entry["action"] == "SCMP_ACT_ALLOW" for entry in plain) and all(
        entry["action"] == "SCMP_ACT_ALLOW" for entry in entries
    )


def _unconditional(deny: tuple[Deny, ...]) -> list[dict[str, Any]]:
    plain = [rule for rule in deny if not rule.tests]
    errors = sorted({rule.errno for rule in plain})
    return [_entry([rule.call for rule in plain if rule.errno == error], error, []) for error in errors]


def _conditional(deny: tuple[Deny, ...]) -> list[dict[str, Any]]:
    calls = dict.fromkeys(rule.call for rule in deny if rule.tests)
    entries: list[dict[str, Any]] = []
    for call in calls:
        tree = decide([rule for rule in deny if rule.call == call], (), {})
        entries += [_entry([call], verdict, conditions) for verdict, conditions in _paths(tree, [])]
    return entries


def _entry(names: list[str], error: int, args: list[dict[str, Any]]) -> dict[str, Any]:
    entry: dict[str, Any] = {"names": names, "args": args, "comment": "card-run", "includes": {}, "excludes": {}}
    if error == ALLOW:
        return {**entry, "action": "SCMP_ACT_ALLOW"}
    return {**entry, "action": "SCMP_ACT_ERRNO", "errnoRet": error, "errno": errno.errorcode[error]}


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision on one argument's masked bits: a verdict or a further choice for each value, and for all others."""

    argument: int
    mask: int
    values: tuple[tuple[int, "Choice | int"], ...]
    other: "Choice | int"


def decide(rules: list[Deny], done: tuple[int, ...], known: dict[int, int]) -> "Choice | int":
    """Return the decision tree of one call's ordered rules: its leaves are an errno, or ALLOW.

    `known` holds a value for each argument in `done`. An argument that makes no difference is left out.
    """
    left = sorted({test.argument for rule in rules for test in rule.tests} - set(done))
    if not left:
        hit = (rule.errno for rule in rules if all(test.holds(known[test.argument]) for test in rule.tests))
        return next(hit, ALLOW)
    argument = left[0]
    tests = [test for rule in rules for test in rule.tests if test.argument == argument]
    (mask,) = {test.mask for test in tests}
    values = sorted({value for test in tests for value in test.values})
    outside = next(value for value in _candidates(mask) if value not in values)
    branches = {value: decide(rules, (*done, argument), {**known, argument: value}) for value in (*values, outside)}
    other = branches[outside]
    special = tuple((value, branches[value]) for value in values if branches[value] != other)
    return Choice(argument, mask, special, other) if special else other


def _candidates(mask: int) -> Iterator[int]:
    yield 0
    yield from (1 << bit for bit in range(32) if mask >> bit & 1)
    yield from (value for value in range(1 << 16) if value & mask == value)


def _paths(tree: "Choice | int", conditions: list[dict[str, Any]]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield (verdict, conditions) for each pattern of arguments of the tree."""
    if isinstance(tree, int):
        yield tree, conditions
        return
    for value, branch in tree.values:
        yield from _paths(branch, [*conditions, _masked(tree.argument, tree.mask, value)])
    values = [value for value, _ in tree.values]
    if isinstance(tree.other, int) and tree.other != ALLOW and tree.mask == FULL:
        others = _denied_others(tree.argument, values)
    else:
        others = [_masked(tree.argument, mask, value) for mask, value in complement(tree.mask, values)]
    for other in others:
        yield from _paths(tree.other, [*conditions, other])


def _denied_others(argument: int, values: list[int]) -> list[dict[str, Any]]:
    """Return short conditions for the errno of a whole number that is none of the values.

    Where the gaps between the values are wide they are left to the profile's default, which denies with another errno.
    """
    gaps = [value for value in range(max(values)) if value not in values]
    exact = [_masked(argument, FULL, value) for value in gaps] if len(gaps) <= MOST_GAPS else []
    return [*exact, {"index": argument, "value": max(values), "valueTwo": 0, "op": "SCMP_CMP_GT"}]


def _masked(argument: int, mask: int, value: int) -> dict[str, Any]:
    return {"index": argument, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}


def complement(mask: int, values: list[int]) -> list[tuple[int, int]]:
    """Return disjoint (mask, value) pairs that hold for exactly those bits that are none of the values."""
    bits = [1 << bit for bit in reversed(range(32)) if mask >> bit & 1]
    found: list[tuple[int, int]] = []
    blocks = [(0, 0, sorted(values))]
    for bit in bits:
        split = [
            (fixed | bit, value | side, [item for item in items if item & bit == side])
            for fixed, value, items in blocks
            for side in (0, bit)
        ]
        found += [(fixed, value) for fixed, value, items in split if not items]
        blocks = [block for block in split if block[2]]
    return found
