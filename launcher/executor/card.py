"""The card of one command: a card file's text, and the options that only whoever runs a card can say. Pure.

No value of a variable is ever in an argv. Paths are: there one is refused that is not absolute, and a card file would
take it to start from its own directory, which this one does not have. What card-run says of the card is told as of what
the caller gave: nobody wrote a file.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from launcher.access.profile import Profile
from launcher.cardfile import kinds
from launcher.executor.settings import CommandOptions, Settings
from oci.refusal import Refusal

_LEVELS = ("workspace", "workspace_read", "workspace_write", "host_read", "host_write", "network", "command", "home")
PLACE = "/proc/self/fd/{}"
_LINE = re.compile(r"^/proc/self/fd/\d+:\d+:\d+: ")
_ORIGIN = re.compile(r"(?:; )?card file /proc/self/fd/\d+ line \d+$")


def text(profile: Profile, settings: Settings, options: CommandOptions, *, called: str) -> str:
    """Return the card file of one command of an executor (TOML), which is called so where runs are listed."""
    env = {**settings.env, **options.get("env", {})}
    top: dict[str, Any] = {
        "name": called,
        "image": settings.image,
        "user": settings.user,
        "net": settings.net,
        "dns": settings.dns,
        "hosts": (*settings.hosts, *options.get("hosts", ())),
        "env": tuple(f"{name}={value}" for name, value in env.items()),
    }
    limits = {
        "memory": settings.memory,
        "cpus": settings.cpus,
        "pids": settings.pids,
        "nofile": settings.nofile,
        "shm_size": settings.shm_size,
        "timeout": options.get("timeout"),
        "stop_timeout": settings.stop_seconds,
    }
    access = {name: getattr(profile, name) for name in _LEVELS} | {"isolation": profile.isolation}
    access |= {"ack_unconfined": True} if profile.ack_unconfined else {}
    tables = [_table("", top), _table("[worker]", {"model_host": settings.model_host})]
    tables += [_table("[limits]", limits), _table("[access]", access)]
    tables += [_table("[[access.roots]]", root.as_dict()) for root in profile.roots]
    return "\n".join(table for table in tables if table)


def name(key: str, *, otherwise: str) -> str:
    """Return what the cards of an executor are called: its key, unless that is no name for a card."""
    return key if kinds.fits(key, kinds.NAME.schema) else otherwise


def own(refusal: Refusal) -> Refusal:
    """Return a refusal of card-run's without the places in a card file that only we have seen."""
    return Refusal(refusal.reason, _LINE.sub("", refusal.text), _ORIGIN.sub("", refusal.hint))


def origin(words: str) -> str:
    """Return where a planned value came from, for who wrote no card file."""
    return _ORIGIN.sub("executor", words)


def _table(head: str, values: Mapping[str, Any]) -> str:
    lines = [f"{name} = {_value(value)}" for name, value in values.items() if value not in (None, ())]
    return "\n".join([*([head] if head and lines else []), *lines, ""]) if lines else ""


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{', '.join(_value(one) for one in value)}]"  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, int | float):
        return repr(value)
    # A JSON string is a TOML basic string, but for DEL, which TOML has escaped (toml.io, "String").
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def flags(settings: Settings, *, keep: str, executor: str, cwd: str | None, run_id: str | None) -> Sequence[str]:
    """Return the options of card-run that no card may say."""
    found = [f"--keep={keep}", f"--executor={executor}"]
    found += [f"--protect={path}" for path in settings.protect]
    found += [f"--secret={path}" for path in settings.secret]
    found += [f"--egress={settings.egress}"] if settings.egress else []
    found += [f"--resolver={settings.resolver}"] if settings.resolver else []
    found += [f"--cwd={cwd}"] if cwd is not None else []
    return [*found, f"--run={run_id}"] if run_id else found
