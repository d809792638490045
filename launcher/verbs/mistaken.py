"""Command lines of `card` that are nearly right, told with the one that was meant."""

import shlex
from typing import Any

from typer.core import TyperCommand, TyperGroup

from launcher import options


class Verbs(TyperGroup):
    """The verbs of `card`, of which none starts a card."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the verb that the words begin with; there is no `run`."""
        if args[:1] == ["run"]:
            meant = shlex.join(["card-run", *args[1:]]) if "--" in args else options.USAGE
            ctx.fail(f"card starts no cards; that is: {meant}")
        return super().resolve_command(ctx, args)


class Valued(TyperCommand):
    """`card set`, whose values may begin with `-`: those stand after `--`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options; a word that is none of them is a value, and is told where it belongs."""
        own = {*ctx.help_option_names, *(word for one in self.params for word in one.opts)}
        ours = args[: args.index("--")] if "--" in args else args
        strange = next((word for word in ours if word[:1] == "-" and word not in own), None)
        if strange is not None:
            ctx.fail(f"no such option: {strange}; as a value: {shlex.join(_meant(args, own))}")
        return super().parse_args(ctx, args)


def names_file(words: list[str]) -> bool:
    """Return whether the first of `[FILE] KEY [VALUE]...` is a file: it looks like one, and more follows."""
    return len(words) > 1 and (words[0].endswith(".toml") or "/" in words[0])


def _meant(args: list[str], own: set[str]) -> list[str]:
    """Return the command line with the values after `--`."""
    words = [word for word in args if word not in own and word != "--"]
    values = 1 + names_file(words)
    return ["card", "set", *(word for word in args if word in own), *words[:values], "--", *words[values:]]
