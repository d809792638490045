"""`card exec`: one more command in a running card, behind the worker's own walls."""

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from hooks import rundir
from launcher import environment, launch
from launcher.life.runs import Run
from launcher.request import Request
from launcher.run import output
from launcher.run.perform import find_podman
from launcher.verbs import named
from oci.refusal import EXIT_REFUSED, Refusal, Refused

_VALUED = frozenset(("--env", "-e", "--cwd", "-w"))
_USAGE = "card exec [-i] [-t] [--env NAME[=VALUE]] [--cwd DIR] RUN -- COMMAND [ARG...]"


class Separated(TyperCommand):
    """The command begins after `--`, or as in `docker exec` with the first word after the run that is no option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options that stand before the command, and leave its words as they are."""
        return super().parse_args(ctx, separated(args))


def separated(words: list[str]) -> list[str]:
    """Return the words with a `--` before the command, where they had none."""
    seen, rest = False, iter(enumerate(words))
    for place, word in rest:
        if word == "--":
            break
        if word in _VALUED:
            next(rest, None)
        elif not word.startswith("-"):
            if seen:
                return [*words[:place], "--", *words[place:]]
            seen = True
    return words


def execute(  # noqa: PLR0913 - one parameter an option
    run: Annotated[str, typer.Argument(help="a running run's id", autocompletion=named.complete_living)],
    command: Annotated[list[str] | None, typer.Argument(help="the command, after --")] = None,
    *,
    interactive: Annotated[bool, typer.Option("--interactive", "-i", help="pass standard input")] = False,
    tty: Annotated[bool, typer.Option("--tty", "-t", help="give it a terminal")] = False,
    env: Annotated[list[str] | None, typer.Option("--env", "-e", help="NAME[=VALUE]: pass a variable")] = None,
    cwd: Annotated[str | None, typer.Option("--cwd", "-w", help="where it starts (the worker's directory)")] = None,
) -> None:
    """Run a command in a running card, behind the same walls and with the same proof as its worker.

    It has the image's variables, the card's HOME, and those given here; the worker's own do not cross.
    Neither can trace or signal the other. Exits with the command's status, 125 when it was refused.

    Example: card exec -it $run -- bash
    """
    request = Request(command=tuple(command or ()), cwd=cwd, env=tuple(env or ()), interactive=interactive, tty=tty)
    try:
        status = _enter(run, request)
    except Refused as error:
        output.refusals(error.refusals)
        status = EXIT_REFUSED
    raise typer.Exit(status)


def _enter(run: str, asked: Request) -> int:
    words, cwd = asked.command, asked.cwd
    wrong = launch.remote()
    wrong += [] if words and words[0] else [Refusal("no-command", "there is no command to run", _USAGE)]
    wrong += [] if cwd is None or cwd.startswith("/") else [Refusal("bad-cwd", f"--cwd {cwd!r} is not absolute")]
    if wrong:
        raise Refused(wrong)
    found = named.running(run)
    from launcher.run import entry  # plan and receipt, which a wrong command line does not pay for

    known = entry.card(found)
    _refuse_granted(found, known.start)
    variables, notes, refusals = environment.decide(home=known.home, asked=asked.env, files=(), host=False)
    if refusals:
        raise Refused(refusals)
    for note in notes:
        output.say(f"NOTE {note}")
    return entry.enter(found, known, asked, env=variables, podman=find_podman())


def _refuse_granted(run: Run, start: str) -> None:
    """Raise Refused (`required`) for a card in which a grant opened anything: it is bound to the command it was for."""
    text = f"{run.run} runs with a grant, which opens what it opens for its own command alone"
    if start != "allow":
        text = f"{run.run}'s access profile gates commands, and its grant was for its own"
    elif (run.read(rundir.PLAN) or {}).get("granted") is False:
        return
    raise Refused([Refusal("required", text, "start a card with a grant for this command")])
