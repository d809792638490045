"""A product that asks a person before an agent's command runs, in small. It uses card-run's public interface only.

    approval_product.py WORKSPACE SCRATCH -- COMMAND [ARG...]

The agent may read its workspace; starting a command and writing there are gated. Each is asked about on standard
output and answered on standard input, y or n. What was approved runs once; then the same grants are tried again.
"""
# ruff: noqa: T201 - it talks to a person

import sys

from launcher import ExecutorSet, IssuedGrant, Prepared, Profile, Refused, Result

CLASSES = {"command": "command.start.v1", "workspace_write": "filesystem.tree.write.v1"}


def main() -> int:
    """Ask, run once, show the receipt, and try again."""
    workspace, scratch, _, *command = sys.argv[1:]
    profile = Profile(workspace=workspace, workspace_read="allow", workspace_write="gated", command="gated")
    with ExecutorSet(profile, scratch_root=scratch, max_executors=1) as executors:
        prepared = executors.executor("agent").prepare(command, timeout=30)
        grants = ask(prepared, workspace)
        for attempt in ("first", "second"):
            try:
                show(attempt, prepared.run(grants=grants))
            except Refused as error:
                print(f"{attempt}: refused: {', '.join(sorted({one.reason for one in error.refusals}))}")
    return 0


def ask(prepared: Prepared, workspace: str) -> list[IssuedGrant]:
    """Ask about each gated thing, and return the grants for what was answered with yes."""
    grants: list[IssuedGrant] = []
    for row in prepared.report:
        if row.asked != "gated":
            continue
        print(f"may it have {row.feature} for {' '.join(prepared.argv)}?", flush=True)
        if sys.stdin.readline().strip() == "y":
            target = "" if row.feature == "command" else workspace
            grants.append(prepared.issue_grant(CLASSES[row.feature], target, seconds=60))
    return grants


def show(attempt: str, result: Result) -> None:
    """Print how it went, by what, and behind which walls."""
    receipt = result.receipt or {}
    used = [one["cls"] for one in receipt["access"]["grants"]]
    held = sorted(name for name, true in result.guarantees.items() if true)
    print(f"{attempt}: status {result.status} ({result.how}), grants {', '.join(used)}, walls {', '.join(held)}")
    print(result.stdout.decode(), end="")


if __name__ == "__main__":
    sys.exit(main())
