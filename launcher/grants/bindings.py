"""What a grant is tied to: everything of a run that decides what the granted thing would mean.

Computed the same way when a grant is issued and when a run starts, from the same request. The rule: whatever could make
the run another one than was approved is in here, as a digest where it may hold secrets.
"""

import os

from hooks.plan import sha256
from launcher.access.profile import Profile, fingerprint, pack
from launcher.egress.policy import SIZE_LIMIT
from launcher.fs.paths import promptly
from launcher.request import Request
from launcher.value import Value
from oci.refusal import Refusal, Refused

_ROUTE, _START = "card-run/route", "card-run/start"
# Bound by a field of their own; where the rest came from; how a run is told and watched, not what it does.
_NOT_OF_THE_START = frozenset({
    "command", "run", "executor", "cwd", "profile", "egress", "resolver", "net", "dns",
    "grant", "opened", "merged", "card_name",
    "resolve_timeout", "json", "events", "lifeline", "plan", "quiet", "detach", "interactive", "tty",
})  # fmt: skip


class Binding(Value):
    """A run as a grant sees it; `promised` are the guarantees that it will not be released without."""

    executor: str
    run: str
    command: str
    cwd: str
    profile: str
    route: str
    promised: tuple[str, ...]


def of(request: Request, profile: Profile, *, policy: str, cwd: str, promised: tuple[str, ...]) -> Binding:
    """Return the binding of a request under the profile it is held to.

    `policy` is the policy file's path and `cwd` where the worker starts without any grant. Raises Refused where the
    policy file cannot be read.
    """
    return Binding(
        executor=request.executor,
        run=request.run or "",
        command=start_digest(request),
        cwd=os.path.realpath(cwd),
        profile=fingerprint(profile),
        route=route(request, policy),
        promised=promised,
    )


def command_digest(command: tuple[str, ...]) -> str:
    """Return the digest of a command, word by word: `a b` and `a  b` are two, and so are one word and two."""
    words = [word.encode("utf-8", "surrogatepass") for word in command]
    return sha256(b"".join(len(word).to_bytes(4, "big") + word for word in words))


def start_digest(request: Request) -> str:
    """Return the digest of a start: the command word by word, and every option but those that say nothing of it.

    Of variables the names are in it and not the values, which may be secrets.
    """
    items = [("domain", _START), ("command", command_digest(request.command))]
    for name, value in request.as_dict().items():
        if name in _NOT_OF_THE_START:
            continue
        values: list[object] = [*value] if isinstance(value, tuple) else [value]
        words = [str(one) for one in values]
        items += [(name, word.partition("=")[0] if name == "env" else word) for word in words]
    return sha256(pack(items))


def route(request: Request, policy: str) -> str:
    """Return the digest of how a card reaches what: the policy file's bytes, who resolves names, where rules stand."""
    try:
        with open(policy, "rb", opener=promptly) as file:
            content = file.read(SIZE_LIMIT + 1)
    except OSError as error:
        raise _unreadable(policy, error.strerror or str(error)) from None
    if len(content) > SIZE_LIMIT:
        raise _unreadable(policy, f"it is larger than {SIZE_LIMIT >> 20} MiB")
    from launcher.egress import nameservers

    servers, _ = nameservers.from_flag(request.resolver) if request.resolver else nameservers.from_file()
    items = [("domain", _ROUTE), ("policy", sha256(content)), *(("resolver", one) for one in servers.servers)]
    return sha256(pack([*items, ("placement", request.net), ("dns", request.dns)]))


def _unreadable(policy: str, why: str) -> Refused:
    return Refused([Refusal("policy-unreadable", f"egress policy {policy}: {why}", "name another with --egress FILE")])
