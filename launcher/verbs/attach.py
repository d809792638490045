"""`card attach`: this terminal or these pipes on a running card, as `podman attach` has it."""

import subprocess
from typing import Annotated

import typer

from launcher.fs import searched
from launcher.life.runs import Run
from launcher.run import foreground, output
from launcher.run.perform import find_podman
from launcher.verbs import ending, named


def attach(
    run: Annotated[str, typer.Argument(help="a running run's id", autocompletion=named.complete_living)],
    *,
    no_stdin: Annotated[bool, typer.Option("--no-stdin", help="watch only")] = False,
    detach_keys: Annotated[
        str | None, typer.Option("--detach-keys", help="what leaves a card with a terminal (default: podman's)")
    ] = None,
) -> None:
    """Attach to a running card: its output from now on, and its input where it was started with -i.

    Ctrl-P Ctrl-Q leaves a card with a terminal and lets it run. Otherwise exits with the worker's status.

    Example: card attach $run
    """
    found = named.running(run)
    words = [find_podman(), "--remote=false", "attach"]
    words += ["--no-stdin"] if no_stdin else []
    words += [f"--detach-keys={detach_keys}"] if detach_keys is not None else []
    words.append(found.container or "")
    status = foreground.run(words)
    raise typer.Exit(_status(found, status))


def _status(run: Run, status: int) -> int:
    """Return the worker's status if it has ended, else podman's own, which is 0 when it was left by the keys."""
    words = [find_podman(), "--remote=false", "container", "inspect", "--format={{.State.Status}}", run.container or ""]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=searched.environment())
    if done.stdout.strip() in {"running", "paused"}:
        if status == 0:
            output.say(f"NOTE {run.run} goes on: card attach {run.run}")
        return status
    return ending.of(run).code
