"""`card-run`: read the command line, judge it, and either print the plan, refuse, or perform it.

The hot path: nothing slow is imported here before podman runs (a unit test pins the set of modules).
"""

import gc
import os
import sys
import time

# A run makes little garbage and ends: looking for it while modules are imported costs its start 2 ms.
gc.disable()

from launcher import launch, options  # noqa: E402 - after the above
from launcher.run import perform  # noqa: E402 - after the above
from oci.refusal import EXIT_REFUSED, Refused  # noqa: E402 - after the above

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from typing import NoReturn
else:
    import _signal


def main() -> "NoReturn":
    """Run card-run and end the process with its exit status."""
    _stand()
    try:
        status = _main(sys.argv[1:])
    except Refused as error:
        status = perform.exit_refused(error)
    except KeyboardInterrupt:
        from launcher.run import ending

        status = perform.exit_refused(ending.interrupted(_signal.SIGINT))
    except Exception:  # noqa: BLE001 - main: a defect of ours keeps its traceback, and is no status of the worker's
        import traceback

        traceback.print_exc()
        status = EXIT_REFUSED
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            continue  # a full disk or a closed pipe; the status is still worth returning
    # Nothing is left to do, and taking the interpreter apart would cost every card 15 ms.
    os._exit(status)


def _stand() -> None:
    """Put right what the caller may have left out: standard descriptors, our own access to what we make, SIGCHLD.

    A closed descriptor would be taken by a file of ours, and what podman or the worker says on it would end up there.
    Where SIGCHLD is ignored, the kernel keeps no child's status for us (waitpid(2)).
    """
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one (open(2))
            os.set_inheritable(fd, True)
            setattr(sys, name, os.fdopen(fd, "r" if fd == 0 else "w", closefd=False))
    os.umask(os.umask(0o077) & ~0o700)
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)


def _main(arguments: list[str]) -> int:
    started = time.monotonic()
    asked, instead = options.read(arguments)
    if instead["help"]:
        sys.stdout.write(options.help_text())
        return 0
    if instead["version"]:
        sys.stdout.write(f"card-run {options.VERSION}\n")
        return 0
    judged, refusals = launch.judge(asked)
    if not asked.plan:
        refusals += launch.rootless()
    refusals += launch.installed(judged, refusals)
    if refusals or asked.plan:
        from launcher import report

        return report.plan(judged, refusals, as_json=asked.json is not None, show=asked.plan)
    return perform.perform(judged, quiet=asked.quiet, receipt=asked.json, started=started)
