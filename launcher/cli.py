"""`card-run`: read the command line, judge it, and either print the plan, refuse, or perform it.

The hot path: nothing slow is imported here before podman runs (a unit test pins the set of modules).
"""

import os
import sys

from launcher import launch, options
from launcher.run import perform
from oci.refusal import EXIT_REFUSED, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

VERSION = "0.1.0"


def main() -> "NoReturn":
    """Run card-run and end the process with its exit status."""
    try:
        status = _main(sys.argv[1:])
    except Refused as error:
        status = perform.exit_refused(error)
    except Exception:  # noqa: BLE001 - main: a defect of ours keeps its traceback, and is no status of the worker's
        import traceback

        traceback.print_exc()
        status = EXIT_REFUSED
    sys.stdout.flush()
    sys.stderr.flush()
    # Nothing is left to do, and taking the interpreter apart would cost every card 15 ms.
    os._exit(status)


def _main(arguments: list[str]) -> int:
    asked, instead = options.read(arguments)
    if instead["help"]:
        sys.stdout.write(options.help_text())
        return 0
    if instead["version"]:
        sys.stdout.write(f"card-run {VERSION}\n")
        return 0
    judged, refusals = launch.judge(asked)
    if not asked.plan:
        refusals += launch.rootless()
    if refusals or asked.plan:
        from launcher import report

        return report.plan(judged, refusals, as_json=asked.json is not None, show=asked.plan)
    return perform.perform(judged, quiet=asked.quiet, receipt=asked.json)
