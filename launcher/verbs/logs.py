"""`card logs`: what a detached card said, each stream to its own."""

import os
import sys
import time
from typing import Annotated, BinaryIO

import typer

from launcher.life import kept, runs
from launcher.life.runs import Ended, Run
from launcher.verbs import named
from oci.refusal import Refusal, Refused

_STEP = 0.1


def logs(
    run: Annotated[str, typer.Argument(help="a detached run's id", autocompletion=named.complete_any)],
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on until the run ends")] = False,
    tail: Annotated[int | None, typer.Option("--tail", "-n", help="begin with the last N lines", min=0)] = None,
    timestamps: Annotated[bool, typer.Option("--timestamps", "-t", help="begin each line with its time")] = False,
) -> None:
    """Print what a detached card's worker wrote, to stdout and stderr as it did; works after its end too.

    Example: card logs --follow --tail 20 $run 2> errors
    """
    (found,) = named.any_of([run])
    entries = _Entries(kept.log_path(run), run)
    if not entries.there:
        raise Refused([Refusal("no-log", _why_none(found))])
    over, printer = isinstance(found, Ended), _Printer(timestamps=timestamps)
    try:
        printer.write(entries.lines(tail))
        while follow and not over:
            # Asked before what is left is read, so that nothing falls between.
            over = not isinstance(runs.find(run), Run)
            if not printer.write(entries.lines(None)) and not over:
                time.sleep(_STEP)
    except KeyboardInterrupt:
        return
    except BrokenPipeError:
        os._exit(0)  # who read it has had enough; nothing is left to flush


def _why_none(run: Run | Ended) -> str:
    if isinstance(run, Ended):
        detached, none = (run.receipt() or {"detached": True})["detached"], "'s output is not there any more"
    else:
        detached, none = run.record is None or run.record.detached, " has no output yet"
    return f"{run.run}{none if detached else ' was not started with --detach: its output went to who started it'}"


class _Entries:
    """A log that may grow, and that conmon may begin anew: entries from where the last reading ended."""

    def __init__(self, path: str, run: str) -> None:
        self._path = path
        self._run = run
        self._file = _open(path)
        self._rest = b""

    @property
    def there(self) -> bool:
        """Return whether there is a log at all."""
        return self._file is not None

    def lines(self, last: int | None) -> list[bytes]:
        """Return the whole lines that came since, or the last so many of them."""
        found: list[bytes] = []
        while self._file is not None:
            found += self._read(self._file)
            anew = _open(self._path)
            if anew is None or os.path.samestat(os.fstat(anew.fileno()), os.fstat(self._file.fileno())):
                break
            found += self._read(self._file)
            self._file, self._rest = anew, b""
        return found if last is None else tail_of(found, last)

    def _read(self, file: BinaryIO) -> list[bytes]:
        *whole, self._rest = (self._rest + file.read()).split(b"\n")
        return whole


def _open(path: str) -> BinaryIO | None:
    try:
        return open(path, "rb")
    except FileNotFoundError:
        return None


def tail_of(entries: list[bytes], last: int) -> list[bytes]:
    """Return the entries of the last so many lines, in the order in which the lines ended."""
    lines: list[list[bytes]] = []
    begun: dict[bytes, list[bytes]] = {}
    for entry in entries:
        _, stream, whole, _ = _parsed(entry)
        begun.setdefault(stream, []).append(entry)
        if whole:
            lines.append(begun.pop(stream))
    lines += begun.values()
    return [entry for line in lines[len(lines) - last :] for entry in line] if last < len(lines) else entries


def _parsed(entry: bytes) -> tuple[bytes, bytes, bool, bytes]:
    """Return time, stream, whether the line ends here, and text (conmon's k8s-file: `TIME STREAM F|P TEXT`)."""
    when, _, rest = entry.partition(b" ")
    stream, _, rest = rest.partition(b" ")
    kind, _, text = rest.partition(b" ")
    return when, stream, kind == b"F", text


class _Printer:
    """Where entries go: each to its stream, with its time at the beginning of a line if that is asked for."""

    def __init__(self, *, timestamps: bool) -> None:
        self._timestamps = timestamps
        self._within: set[bytes] = set()

    def write(self, entries: list[bytes]) -> bool:
        """Write the entries; return whether there was any."""
        for entry in entries:
            when, stream, whole, text = _parsed(entry)
            out = sys.stderr.buffer if stream == b"stderr" else sys.stdout.buffer
            front = when + b" " if self._timestamps and stream not in self._within else b""
            out.write(front + text + (b"\n" if whole else b""))
            out.flush()
            (self._within.discard if whole else self._within.add)(stream)
        return bool(entries)
