"""`card hooks`: register the hooks with podman, for plain `podman run` of a prepared card, and prove that they fire."""

import json
import os
import sys
from typing import Annotated, Any

import typer

from launcher.registration import install as installing
from launcher.registration import scope, status
from launcher.registration.install import Plan
from launcher.registration.scope import Scope
from launcher.registration.status import Finding
from launcher.run import output, site
from oci.refusal import Refusal, Refused

app = typer.Typer(
    help="The hooks' registration with podman: hooks.d files, and a containers.conf drop-in where podman needs one.",
    no_args_is_help=True,
)
AsUser = Annotated[bool, typer.Option("--user", help="for you alone (the default for an ordinary user)")]
AsSystem = Annotated[bool, typer.Option("--system", help="for every user of this bench (the default for root)")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="say what would be done, and do nothing")]
Force = Annotated[bool, typer.Option("--force", help="also where somebody changed a file of ours")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]
Prefix = Annotated[str, typer.Option("--prefix", metavar="DIR", help="with --system: where the program goes")]
HooksDir = Annotated[str, typer.Option("--hooks-dir", metavar="DIR", help="with --system: where the pair goes")]
DestDir = Annotated[str, typer.Option("--destdir", metavar="DIR", help="with --system: write below this, for packages")]


@app.command()
def install(  # noqa: PLR0913 - one option each
    *,
    user: AsUser = False,
    system: AsSystem = False,
    prefix: Prefix = scope.SYSTEM_PREFIX,
    hooks_dir: HooksDir = site.DEFAULT,
    destdir: DestDir = "",
    dry_run: DryRun = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Register the hooks: a copy of their program, the hooks.d pair, and a drop-in where podman needs one.

    Exit status 1 when podman would not use them all the same.

    Example: card hooks install --user --dry-run
    """
    where = _scope(user=user, system=system, prefix=prefix, hooks_dir=hooks_dir, destdir=destdir)
    plan = installing.installation(where, force=force)
    _carry_out(plan, dry_run=dry_run, as_json=as_json)
    unused = [] if where.root else status.unused(where, plan.writes if dry_run else {})
    for finding in unused:
        sys.stderr.write(_line(finding))
    raise typer.Exit(1 if unused else 0)


@app.command()
def uninstall(  # noqa: PLR0913 - one option each
    *,
    user: AsUser = False,
    system: AsSystem = False,
    prefix: Prefix = scope.SYSTEM_PREFIX,
    hooks_dir: HooksDir = site.DEFAULT,
    destdir: DestDir = "",
    dry_run: DryRun = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Take the registration away: exactly what was installed, and nothing else.

    Example: card hooks uninstall --system
    """
    where = _scope(user=user, system=system, prefix=prefix, hooks_dir=hooks_dir, destdir=destdir)
    _carry_out(installing.removal(where, force=force), dry_run=dry_run, as_json=as_json)


@app.command(name="status")
def show(
    *,
    user: AsUser = False,
    system: AsSystem = False,
    prefix: Prefix = scope.SYSTEM_PREFIX,
    hooks_dir: HooksDir = site.DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Look at the registration, and prove it on throw-away containers; exit status 1 when something is wrong.

    Example: card hooks status
    """
    where = _scope(user=user, system=system, prefix=prefix, hooks_dir=hooks_dir, destdir="")
    if not user and not system:
        where = _found(where)
    looked = status.look(where)
    tried, facts = status.proof()
    findings = [*looked, *tried]
    _tell(findings, {"scope": where.name, **facts}, as_json=as_json)
    raise typer.Exit(0 if all(one.good for one in findings) else 1)


def _scope(*, user: bool, system: bool, prefix: str, hooks_dir: str, destdir: str) -> Scope:
    """Return the scope that is asked for; raises Refused for options that contradict each other."""
    if user and system:
        raise Refused([Refusal("bad-command-line", "--user and --system are one or the other")])
    elsewhere = (prefix, hooks_dir, destdir) != (scope.SYSTEM_PREFIX, site.DEFAULT, "")
    if system or (os.getuid() == 0 and not user):
        return scope.system(prefix=prefix, hooks_d=hooks_dir, root=destdir)
    if elsewhere:
        raise Refused([Refusal("bad-command-line", "--prefix, --hooks-dir and --destdir go with --system")])
    return scope.user()


def _found(first: Scope) -> Scope:
    """Return the bench's registration when the user has none of their own and it is there."""
    bench = scope.system()
    there = [one for one in (first, bench) if os.path.isdir(one.hooks_d) and status.registered(one)]
    return there[0] if there else first


def _carry_out(plan: Plan, *, dry_run: bool, as_json: bool) -> None:
    if not dry_run:
        installing.perform(plan)
    told = [change.told() for change in plan.changes]
    if as_json:
        content: dict[str, Any] = {"scope": plan.scope.name, "changed": plan.changed, "done": not dry_run}
        sys.stdout.write(json.dumps({**content, "changes": told}, indent=2) + "\n")
        return
    would = "would " if dry_run else ""
    for one in told:
        action = one["action"] if one["action"] == "unchanged" else would + one["action"]
        sys.stdout.write(f"{action:9} {output.printable(one['path'])}\n")
    if not told:
        sys.stdout.write("nothing is registered\n")


def _tell(findings: list[Finding], facts: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        rows = [finding.as_dict() for finding in findings]
        sys.stdout.write(json.dumps({**facts, "findings": rows}, indent=2) + "\n")
        return
    sys.stdout.write("".join(map(_line, findings)))


def _line(finding: Finding) -> str:
    hint = f"  ({finding.hint})" if not finding.good and finding.hint else ""
    return output.printable(f"{'ok' if finding.good else 'NO':3} {finding.name:16} {finding.found}{hint}") + "\n"
