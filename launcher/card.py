"""`card`: all about cards that is not the hot path.

The rule: exit 0 is done, or yes; 1 the answer is no; 2 it was not done, and then, but for a command line that cannot be
read, each reason is a SANDBOX REFUSED line. `wait`, `attach` and `exec` give the worker's status.
"""

import contextlib
import io
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from launcher import launch, options, report
from launcher.check import facts
from launcher.run import output
from launcher.verbs import (
    attach,
    cards,
    denials,
    egress,
    gc,
    grant,
    hooks,
    logs,
    mistaken,
    pool,
    prepare,
    probe,
    ps,
    runtime,
    takes,
)
from launcher.verbs import exec as enter
from launcher.verbs import show as shown
from launcher.verbs import stop as ended
from launcher.verbs import wait as awaited
from oci.refusal import Refusal, Refused

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

app = typer.Typer(
    cls=mistaken.Verbs,
    help="Look at cards and at what this bench can enforce. card-run starts them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(runtime.app, name="runtime")
app.add_typer(egress.app, name="egress")
app.add_typer(hooks.app, name="hooks")
app.add_typer(grant.app, name="grant")
app.add_typer(pool.app, name="pool")


def _version(wanted: bool) -> None:  # noqa: FBT001 - click gives an option's callback its value like this
    if wanted:
        sys.stdout.write(f"card {options.VERSION}\n")
        raise typer.Exit


@app.callback()
def _root(
    *, _: Annotated[bool, typer.Option("--version", help="print the version", callback=_version, is_eager=True)] = False
) -> None:
    pass


@app.command(**takes.A_RUN)
def plan(_: typer.Context) -> None:
    """Print what a run would be made of, and start nothing. Takes card-run's options.

    Example: card plan --write ~/work -- make test
    """
    # click drops the first `--`; card-run's own parser needs to see where the worker begins.
    words = sys.argv[2:]
    asked = options.read(words)[0]
    judged, refusals = launch.judge(asked)
    status = report.plan(judged, refusals, as_json=asked.json is not None, show=True)
    raise typer.Exit(2 if status else 0)


@app.command()
def check(*, as_json: Annotated[bool, typer.Option("--json", help="print the findings as JSON")] = False) -> None:
    """Say what this bench can enforce, every missing piece in one pass.

    Example: card check --json
    """
    findings = [look() for look in facts.CHECKS]
    if as_json:
        sys.stdout.write(json.dumps([finding.as_dict() for finding in findings], indent=2) + "\n")
    else:
        for finding in findings:
            hint = f"  ({finding.hint})" if not finding.good and finding.hint else ""
            sys.stdout.write(f"{'ok' if finding.good else 'NO':3} {finding.name:18} {finding.found}{hint}\n")
    raise typer.Exit(0 if all(finding.good for finding in findings) else 1)


app.command(**takes.A_RUN)(prepare.prepare)
app.command("new")(cards.new)
app.command("set", cls=mistaken.Valued)(cards.set_)
app.command("get")(cards.get)
app.command("lint")(cards.lint_)
app.command("schema")(cards.schema_)
app.command()(probe.probe)
app.command()(ps.ps)
app.command()(shown.show)
app.command()(logs.logs)
app.command()(attach.attach)
app.command("exec", cls=enter.Separated)(enter.execute)
app.command()(awaited.wait)
app.command()(ended.stop)
app.command()(denials.denials)
app.command()(gc.gc)


def run() -> None:
    """Run a verb; what it refuses is told as card-run tells it, and means that the verb could not run."""
    try:
        app()
    except Refused as error:
        output.refusals(error.refusals)
        sys.exit(2)


def main() -> None:
    """Run card as a process of its own, whose standard output and SIGCHLD it has to itself."""
    # Where our caller ignores it, the kernel keeps no child's status for us, nor for a pool (waitpid(2)).
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    raw = _Out(sys.stdout.fileno(), "wb", closefd=False)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(raw), sys.stdout.encoding, sys.stdout.errors, line_buffering=sys.stdout.isatty()
    )
    try:
        run()
    finally:
        _finish(sys.stdout, raw)


class _Out(io.FileIO):
    """Standard output that remembers why it could not be written: click and rich keep that to themselves."""

    why: OSError | None = None

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write as any file."""
        try:
            return super().write(data)
        except OSError as error:
            self.why = error
            raise


def _finish(out: TextIO, raw: _Out) -> None:
    """Write what is still to be written; where it could not be, end refused, and as by SIGPIPE if nobody reads.

    Python would tell either by a traceback, or by a status of its own at the very end.
    """
    if out.closed:  # by the verb, which has told why
        return
    with contextlib.suppress(OSError):
        out.flush()
    if raw.why is None:
        return
    if isinstance(raw.why, BrokenPipeError):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGPIPE)
    os.dup2(os.open(os.devnull, os.O_WRONLY), raw.fileno())  # what is left in it goes there
    output.refusals((Refusal("output-unwritable", f"standard output cannot be written: {raw.why.strerror}"),))
    sys.exit(2)
