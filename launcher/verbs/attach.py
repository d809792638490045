"""`card attach`: this terminal or these pipes on a running card, as `podman attach` has it.

The rule: a card needs nobody attached. The end of `card attach`, or of its terminal, is not passed on to the worker,
and neither is anything of who only watches; podman's own client would pass on all that it is sent.
"""

import contextlib
import os
import signal
import subprocess
import termios
from collections.abc import Generator
from typing import Annotated

import typer

from launcher.fs import searched
from launcher.life.runs import Run
from launcher.run import foreground, output
from launcher.run.perform import find_podman
from launcher.verbs import ending, named

_OURS = (signal.SIGTERM, signal.SIGHUP)


def attach(
    run: Annotated[str, typer.Argument(help="a running run's id", autocompletion=named.complete_living)],
    *,
    no_stdin: Annotated[bool, typer.Option("--no-stdin", help="watch only")] = False,
    detach_keys: Annotated[
        str | None, typer.Option("--detach-keys", help="what leaves a card with a terminal (default: podman's)")
    ] = None,
) -> None:
    """Attach to a running card: its output from now on, and its input where it was started with -i.

    Ctrl-P Ctrl-Q leaves a card with a terminal and lets it run; SIGTERM, SIGHUP and the end of the terminal leave any.
    Ctrl-C is passed on, but with --no-stdin, where it leaves. Otherwise exits with the worker's status.

    Example: card attach $run
    """
    found = named.running(run)
    words = ["attach", "--sig-proxy=false", *(["--no-stdin"] if no_stdin else [])]
    words += [f"--detach-keys={detach_keys}"] if detach_keys is not None else []
    raise typer.Exit(_status(found, _attached(found, words, watch=no_stdin)))


def _attached(run: Run, words: list[str], *, watch: bool) -> int:
    """Be attached until that ends; return podman's exit status, or 128 + N for the signal that it was ended for."""
    streams = _podman(run, "container", "inspect", "--format={{.Config.OpenStdin}} {{.Config.Tty}}")
    interactive, tty = (not watch and word == "true" for word in streams.split() or ("", ""))
    null = os.open(os.devnull, os.O_RDONLY)
    child = foreground.start(
        [find_podman(), "--remote=false", *words, run.container or ""],
        interactive=interactive,
        tty=tty,
        # podman reads the terminal that it finds there, or makes it raw, also where nothing of it reaches the worker.
        descriptors=() if interactive else ((null, 0),),
    )
    os.close(null)
    ended: list[int] = []

    def send(number: int) -> None:
        if watch or number in _OURS:
            ended.append(number)
            foreground.end(child)
        else:
            _podman(run, "kill", f"--signal={number}")

    with _as_it_was():
        status = foreground.wait(child, send)
    return 128 + ended[0] if ended else status


@contextlib.contextmanager
def _as_it_was() -> Generator[None]:
    """Leave the terminal as it was: a podman that is ended leaves it raw."""
    modes = termios.tcgetattr(0) if os.isatty(0) else None
    yield
    if modes is not None:
        with contextlib.suppress(termios.error):  # it is gone
            termios.tcsetattr(0, termios.TCSADRAIN, modes)


def _podman(run: Run, *words: str) -> str:
    """Have podman tell something of a run's container, or do something with it; return its word, "" when it has none.

    It has a process group of its own: what the keyboard sends meanwhile is not for it.
    """
    argv = [find_podman(), "--remote=false", *words, run.container or ""]
    given = searched.environment()
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=given, process_group=0).stdout


def _status(run: Run, status: int) -> int:
    """Return the worker's status if it has ended, else podman's own, which is 0 when it was left by the keys."""
    state = _podman(run, "container", "inspect", "--format={{.State.Status}}")
    if state.strip() in {"running", "paused"}:
        output.say(f"NOTE {run.run} goes on: card attach {run.run}")
        return status
    return ending.of(run).code
