"""What a registration is worth: every piece looked at, every problem told in one pass.

Findings come in the order in which podman would need the pieces. Looking changes nothing; trying is `trial`'s.
"""

import os
import subprocess
from collections.abc import Mapping
from typing import Any

from launcher.fs import searched
from launcher.registration import change, conf, program, trial, trust
from launcher.registration.scope import Scope
from launcher.run import site
from launcher.run.perform import find_podman
from launcher.value import Value
from oci import hooksd
from oci.hooksd import HookFile
from oci.refusal import Refused


class Finding(Value):
    """One thing that was looked at: its name, whether a card can rest on it, what was found, what to do if not."""

    name: str
    good: bool
    found: str
    hint: str = ""


def look(scope: Scope) -> list[Finding]:
    """Return what is found of one scope's registration, and of what podman makes of it."""
    if not registered(scope):
        text = f"nothing is registered in {scope.hooks_d}"
        return [Finding(name="files", good=False, found=text, hint=f"card hooks install --{scope.name}")]
    try:
        pair = _pair(scope.hooks_d)
    except Refused as error:
        hint = f"card hooks install --{scope.name} --force"
        return [Finding(name="files", good=False, found=one.text, hint=hint) for one in error.refusals]
    found = [Finding(name="files", good=True, found=f"{len(pair)} files in {scope.hooks_d}"), *_record(scope)]
    found += [_program(scope, pair), *_trusted(scope, pair)]
    return [*found, *_read_by_podman(scope, {})]


def registered(scope: Scope) -> bool:
    """Return whether a scope holds any file of the pair."""
    names = (hooksd.PRESTART_FILE, hooksd.POSTSTOP_FILE)
    return any(os.path.lexists(f"{scope.hooks_d}/{name}") for name in names)


def _pair(folder: str) -> list[HookFile]:
    """Return the pair that a folder holds; raises Refused when it is not whole, or not ours."""
    data = {name: change.current(f"{folder}/{name}") for name in (hooksd.PRESTART_FILE, hooksd.POSTSTOP_FILE)}
    return [hooksd.parse(name, text or b"") for name, text in data.items()]


def _record(scope: Scope) -> list[Finding]:
    """Look for files that somebody changed since they were installed."""
    try:
        record = change.load(scope)
    except Refused as error:
        return [Finding(name="record", good=False, found=one.text, hint=one.hint) for one in error.refusals]
    hint = f"card hooks install --{scope.name} --force"
    changed = [path for path, known in (record.files if record else {}).items() if _mark(path) != known]
    return [Finding(name="changed", good=False, found=f"{path} is not as it was left", hint=hint) for path in changed]


def _mark(path: str) -> str:
    data = change.current(path)
    return "" if data is None else change.mark(data)


def _program(scope: Scope, pair: list[HookFile]) -> Finding:
    """Look whether what is registered is this card-run's own."""
    entries = dict.fromkeys(program.entry_of(file) for file in pair)
    hint = f"card hooks install --{scope.name}"
    for entry in entries:
        if not entry or not os.path.isfile(entry):
            text = f"{entry or 'no program of card-run'} is not there: podman drops such a hook without a word"
            return Finding(name="program", good=False, found=text, hint=hint)
    if not all(program.is_this_version(file) for file in pair):
        text = f"{', '.join(entries)} is of another version than this card-run"
        return Finding(name="program", good=False, found=text, hint=hint)
    return Finding(name="program", good=True, found=", ".join(entries))


def _trusted(scope: Scope, pair: list[HookFile]) -> list[Finding]:
    """Look at who could change what the hooks run, or what registers them."""
    owner = os.geteuid()
    places = [f"{scope.hooks_d}/{file.name}" for file in pair]
    for file in pair:
        places += [file.path, program.entry_of(file)]
    problems = dict.fromkeys(text for path in places if path for text in trust.problems(path, owner=owner))
    hint = "only you and root may be able to change it"
    found = [Finding(name="ownership", good=False, found=text, hint=hint) for text in problems]
    return found or [Finding(name="ownership", good=True, found="only you and root can change what is registered")]


def unused(scope: Scope, instead: Mapping[str, bytes]) -> list[Finding]:
    """Return why podman does not use the registration; `instead` gives other bytes for a path, as once written."""
    return [one for one in _read_by_podman(scope, instead) if not one.good]


def _read_by_podman(scope: Scope, instead: Mapping[str, bytes]) -> list[Finding]:
    """Look whether podman's configuration leads to the registration, and what it lost on the way."""
    try:
        chain = conf.chain(instead, everyone=scope.everyone)
    except Refused as error:
        return [Finding(name="containers.conf", good=False, found=one.text) for one in error.refusals]
    directories = chain[-1].directories if chain else (site.DEFAULT,)
    if scope.hooks_d not in directories:
        last = chain[-1].path if chain else ""
        where = f"{last} names {', '.join(directories)}" if last else f"podman looks into {site.DEFAULT} alone"
        text = f"{where}: the hooks in {scope.hooks_d} are silently not used"
        return [Finding(name="containers.conf", good=False, found=text, hint=_mend(scope, last))]
    found = [Finding(name="containers.conf", good=True, found=f"podman looks into {', '.join(directories)}")]
    return found + _lost(scope, chain) + _shadowed(scope, directories)


def _mend(scope: Scope, last: str) -> str:
    """Return what makes podman look there: the drop-in, where no later file would take its word back."""
    ours = conf.with_directories(scope.drop_in, None, (scope.hooks_d,))
    if scope.hooks_d in conf.effective({scope.drop_in: ours}, everyone=scope.everyone):
        return f"card hooks install --{scope.name}"
    return f"add {scope.hooks_d} to hooks_dir in {last}"


def _lost(scope: Scope, chain: list[conf.Named]) -> list[Finding]:
    """Look for directories that earlier files name and our drop-in, which replaces them, does not."""
    at = next((at for at, one in enumerate(chain) if one.path == scope.drop_in), None)
    if at is None:
        return []
    before = chain[at - 1].directories if at else (site.DEFAULT,)
    lost = [path for path in before if path not in chain[-1].directories]
    hint = f"card hooks install --{scope.name}"
    text = "is named by an earlier containers.conf, and our drop-in takes it away"
    return [Finding(name="site's hooks", good=False, found=f"{path} {text}", hint=hint) for path in lost]


def _shadowed(scope: Scope, directories: tuple[str, ...]) -> list[Finding]:
    """Look for files of our names further along: podman takes the last of a name."""
    later = directories[directories.index(scope.hooks_d) + 1 :]
    names = (hooksd.PRESTART_FILE, hooksd.POSTSTOP_FILE)
    others = [f"{folder}/{name}" for folder in later for name in names if os.path.lexists(f"{folder}/{name}")]
    hint = "uninstall one of the two"
    return [Finding(name="shadowed", good=False, found=f"{path} is used instead of ours", hint=hint) for path in others]


def proof() -> tuple[list[Finding], dict[str, Any]]:
    """Try the registration on throw-away containers; return the findings, and what they came to, for machines."""
    try:
        version = _podman_version()
        fired, control = trial.run(annotated=True), trial.run(annotated=False)
    except Refused as error:
        return [Finding(name="trial", good=False, found=one.text, hint=one.hint) for one in error.refusals], {}
    facts = {"podman": version, "runtime": fired.runtime, "stages": list(fired.stages), "said": fired.said}
    found = [_prestart(fired, version)]
    if fired.prestart is not None and fired.prestart.get("status") == "ok":
        text = "the ledger was written when it was removed" if fired.poststop else "it did not fire at removal"
        found.append(Finding(name="poststop", good=fired.poststop, found=text))
    silent = control.prestart is None and not control.said
    text = "without the annotation nothing fires" if silent else f"without the annotation: {control.said or 'it fired'}"
    return [*found, Finding(name="control", good=silent, found=text)], facts


def _prestart(fired: trial.Fired, version: str) -> Finding:
    if fired.prestart is None:
        said = f" ({fired.said})" if fired.said else ""
        text = f"the hook did not fire under {version}{said}: a container of a card would start without its table"
        return Finding(name="prestart", good=False, found=text)
    if fired.prestart.get("status") != "ok":
        reasons = "; ".join(f"{one['reason']}: {one['text']}" for one in fired.prestart["refusals"])
        return Finding(name="prestart", good=False, found=f"it fired under {version}, and refuses here: {reasons}")
    place = f"{version}, {fired.runtime}, stage {' and '.join(fired.stages)}"
    good = len(fired.stages) == 1
    return Finding(name="prestart", good=good, found=f"it fired and built its table under {place}")


def _podman_version() -> str:
    done = subprocess.run(
        [find_podman(), "--version"],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        env=searched.environment(),
    )
    return done.stdout.strip() or "podman"
