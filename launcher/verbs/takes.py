"""How typer is told that a verb takes card-run's own options beside its own; `launcher.options` reads them."""

from typing import Any

from typer.core import TyperCommand

from launcher.options import OPTIONS

_WORKER = "card.worker"


class _Both(TyperCommand):
    """A verb that a shell completes card-run's options of, too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the verb's own options, and see where the worker's words begin."""
        ctx.meta[_WORKER] = "--" in args
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Return the options that go on like this; none among the worker's words."""
        if ctx.meta[_WORKER]:
            return []
        own = super().shell_complete(ctx, incomplete)
        # Which class an item has, and where that is, differs by version; --help is always one.
        item = type(super().shell_complete(ctx, "--help")[0])
        names = [(f"--{option.name}", option.help) for option in OPTIONS]
        taken = {one.value for one in own}
        return [*own, *(item(n, help=h) for n, h in names if n.startswith(incomplete) and n not in taken)]


_SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}
_OPTIONS = "[OPTIONS] [CARD-RUN'S OPTIONS]"

A_CARD: dict[str, Any] = {"cls": _Both, "context_settings": _SETTINGS, "options_metavar": _OPTIONS}
A_RUN: dict[str, Any] = {**A_CARD, "options_metavar": f"{_OPTIONS} [-- COMMAND [ARG]...]"}
