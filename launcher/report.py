"""Telling a plan without running it, and telling every refusal of one at once.

When flags are refused, the names that could be chosen are still resolved where there is somebody to ask, so that one
run tells all there is to mend; nothing is built or made for it.
"""

import json
import shlex
import sys
from collections.abc import Callable
from typing import Any

from hooks.egress import NETNS, Selector
from launcher import bench, pins, runtime
from launcher.launch import Launch
from launcher.plan import Plan, hosts, resolv_conf, stage2_conf
from launcher.run import command, directory, output, site
from launcher.seccomp import text as seccomp_text
from launcher.stage2 import conf, landlock
from launcher.stage2.syscalls import Kernel
from oci import records
from oci.refusal import EXIT_REFUSED, Refusal, Refused


def plan(launch: Launch, refusals: list[Refusal], *, show: bool, as_json: bool) -> int:
    """Print the plan on stdout, or every refusal on stderr; returns the exit status."""
    settings, wrong = bench.read()
    whole, refusals = None, [*refusals, *wrong]
    if not refusals:
        whole, refusals = _finish(launch, settings)
    elif not wrong:  # without the bench's own word on ranges its names would be judged by what it did not say
        refusals += _further(launch, settings)
    if whole is None:
        _refused(launch, list(dict.fromkeys(refusals)))
        return EXIT_REFUSED
    if show:
        sys.stdout.write(json.dumps(as_data(whole), indent=2) + "\n" if as_json else as_text(whole))
    return 0


def _refused(launch: Launch, refusals: list[Refusal]) -> None:
    """Tell what a card file or a ceiling left out, which may be why, and then every refusal with its line."""
    from launcher.cardfile import origin

    for line in () if launch.asked.quiet else origin.notes(launch):
        output.say(f"NOTE {line}")
    output.refusals(tuple(origin.explained(refusals, launch.asked)))


def _finish(launch: Launch, settings: bench.Bench) -> tuple[Plan | None, list[Refusal]]:
    try:
        bundle = command.expectation(launch, runtime.ensure(), _directory(launch))
        return pins.finish(launch, settings, bundle=bundle), []
    except Refused as error:
        return None, list(error.refusals)


def _further(launch: Launch, settings: bench.Bench) -> list[Refusal]:
    """Return what else keeps a refused launch from running, found without making anything."""
    looks: list[Callable[[], object]] = [runtime.default_cache, directory.parent]
    if launch.nameservers.servers:
        looks.append(lambda: pins.wall(launch, settings, Selector(NETNS)))
    found: list[Refusal] = []
    for look in looks:
        try:
            look()
        except Refused as error:
            found += error.refusals
    return found


def _directory(launch: Launch) -> str:
    return f"{directory.parent()}/{launch.run}"


def as_data(whole: Plan) -> dict[str, Any]:
    """Return the plan for machines. Environment values are left out: a plan is for showing."""
    from launcher.cardfile import origin

    return {
        "values": [row.as_dict() for row in origin.rows(whole.launch)],
        "access": [dict(zip(("feature", "state", "wall"), row, strict=True)) for row in _access(whole.launch)],
        "digest": whole.digest,
        "plan": json.loads(whole.json),
        "podman": podman_argv(whole),
        "environment": [name for name, _ in whole.launch.env],
        "table": whole.table,
        "stage2": records.load(stage2_conf(whole)),
        "hosts": hosts(whole),
        "resolv_conf": resolv_conf(whole),
        "notes": list(whole.launch.notes),
    }


def podman_argv(whole: Plan) -> list[str]:
    """Return the podman command as this bench would run it."""
    from launcher.run.perform import find_podman

    return command.argv(
        whole.launch,
        runtime.ensure(),
        podman=find_podman(whole.launch.programs),
        directory=_directory(whole.launch),
        hooks_dirs=site.hooks_dirs(),
    )


def as_text(whole: Plan) -> str:
    """Return the plan for a person: every text that the run would be made of, in the order it takes effect."""
    from launcher.cardfile import origin

    parts = [
        ("values", _table([(row.key, row.value, row.origin) for row in origin.rows(whole.launch)])),
        ("access", _table(_access(whole.launch))),
        ("podman", shlex.join(podman_argv(whole))),
        ("environment", " ".join(name for name, _ in whole.launch.env)),
        ("hosts", hosts(whole)),
        ("resolv.conf", resolv_conf(whole)),
        ("egress", whole.table),
        ("landlock", landlock_text(whole)),
        ("seccomp", seccomp_text.text()),
        ("notes", "\n".join(whole.launch.notes)),
    ]
    return "".join(f"# {title}\n{_lines(body)}\n\n" for title, body in parts if body.strip())


def _access(launch: Launch) -> list[tuple[str, str, str]]:
    """Return what the walls make of the profile: each feature as it is asked, its state, and how; then the grants."""
    if launch.bounds is None:
        return []
    from launcher.access import compiled

    rows = [
        (f"{one.feature} = {one.asked}", one.state, f"{one.wall}: {one.text}")
        for one in compiled.compiled(launch.bounds.profile)
    ]
    grants = launch.asked.opened.grants if launch.asked.opened else ()
    return [*rows, *((f"grant {one.id}", "enforced", f"{one.cls} {one.target}") for one in grants)]


def _table(rows: list[tuple[str, str, str]]) -> str:
    widths = [min(max((len(row[column]) for row in rows), default=0), 48) for column in range(2)]
    return "\n".join(f"{key:{widths[0]}}  {value:{widths[1]}}  {origin}" for key, value, origin in rows)


def _lines(body: str) -> str:
    """Return a part's lines without what could drive a terminal: paths and names come from elsewhere."""
    return "\n".join(output.printable(line) for line in body.rstrip().split("\n"))


def landlock_text(whole: Plan) -> str:
    """Return the ruleset that stage 2 will build on this kernel, one line per rule, in that order."""
    policy = conf.parse(stage2_conf(whole)).policy
    return "\n".join(landlock.build(landlock.query_abi(Kernel()), policy).lines())
