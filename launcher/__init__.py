"""card-run: one untrusted command in a rootless podman container behind three walls that it can prove.

The Python interface, imported when it is first asked for: card-run's own hot path imports this package too. The same
for asyncio is in `launcher.aio`.

    from launcher import ExecutorSet, Profile

    profile = Profile(workspace="/srv/work", workspace_read="allow", workspace_write="allow", command="allow")
    with ExecutorSet(profile, scratch_root="/var/tmp/product") as executors:
        result = executors.executor("alice").run_command(["git", "status"])

What a profile says of a thing is `access_for`'s to answer; of a path, once its links are `resolved`:

    from launcher import access_for, resolved

    level = access_for(profile, "filesystem.write", resolved("/srv/work/notes"))  # 2: open
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from launcher.access.ceiling import restrict
    from launcher.access.profile import Profile, Root, fingerprint
    from launcher.access.scope import access_for, access_version, resolved
    from launcher.executor.blocking import Executor, ExecutorSet, Prepared, Process
    from launcher.executor.prepared import IssuedGrant
    from launcher.executor.result import CardLostError, ClosedError, Result, TooManyExecutorsError
    from launcher.executor.settings import CommandOptions, Settings
    from oci.refusal import Refusal, Refused

__all__ = [
    "CardLostError",
    "ClosedError",
    "CommandOptions",
    "Executor",
    "ExecutorSet",
    "IssuedGrant",
    "Prepared",
    "Process",
    "Profile",
    "Refusal",
    "Refused",
    "Result",
    "Root",
    "Settings",
    "TooManyExecutorsError",
    "access_for",
    "access_version",
    "fingerprint",
    "resolved",
    "restrict",
]

_HOMES = {
    "launcher.access.ceiling": ("restrict",),
    "launcher.access.profile": ("Profile", "Root", "fingerprint"),
    "launcher.access.scope": ("access_for", "access_version", "resolved"),
    "launcher.executor.blocking": ("Executor", "ExecutorSet", "Prepared", "Process"),
    "launcher.executor.prepared": ("IssuedGrant",),
    "launcher.executor.result": ("CardLostError", "ClosedError", "Result", "TooManyExecutorsError"),
    "launcher.executor.settings": ("CommandOptions", "Settings"),
    "oci.refusal": ("Refusal", "Refused"),
}


if not TYPE_CHECKING:  # checkers have the imports above, and tell a name that is none

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used (PEP 562)."""
        for home, names in _HOMES.items():
            if name in names:
                import importlib

                value: object = getattr(importlib.import_module(home), name)
                globals()[name] = value
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> "list[str]":
    return sorted({*globals(), *__all__})
