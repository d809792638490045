"""How typer is told that a verb takes card-run's own options beside its own; `launcher.options` reads them."""

from typing import Any

_SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}
_OPTIONS = "[OPTIONS] [CARD-RUN'S OPTIONS]"

A_CARD: dict[str, Any] = {"context_settings": _SETTINGS, "options_metavar": _OPTIONS}
A_RUN: dict[str, Any] = {"context_settings": _SETTINGS, "options_metavar": f"{_OPTIONS} [-- COMMAND [ARG]...]"}
