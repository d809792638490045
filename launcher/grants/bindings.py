"""What a grant is tied to: everything of a run that decides what the granted thing would mean.

Computed the same way when a grant is issued and when a run starts, from the same request. The rule: whatever could make
the run another one than was approved is in here, as a digest where it may hold secrets.
"""

import hmac
import os

from hooks.plan import sha256
from launcher import environment
from launcher.access.judge import REAL
from launcher.access.profile import Profile, fingerprint, pack
from launcher.egress.policy import SIZE_LIMIT
from launcher.fs.paths import promptly
from launcher.fs.policy import HOME
from launcher.request import Request
from launcher.value import Value
from oci.refusal import Refusal, Refused

_ROUTE, _START, _VARIABLES = "card-run/route", "card-run/start", "card-run/variables"
# Bound by a field of their own; where the rest came from; how a run is told and watched, not what it does.
_NOT_OF_THE_START = frozenset({
    "command", "run", "executor", "cwd", "profile", "egress", "resolver", "net", "dns", "env", "env_file", "env_host",
    "grant", "opened", "merged", "card_name",
    "resolve_timeout", "json", "events", "lifeline", "plan", "quiet", "detach", "interactive", "tty",
})  # fmt: skip


class Binding(Value):
    """A run as a grant sees it; `promised` are the guarantees that it will not be released without.

    `variables` is a bare digest of what may be secrets: it is `sealed` before it leaves this process.
    """

    executor: str
    run: str
    command: str
    variables: str
    cwd: str
    profile: str
    route: str
    promised: tuple[str, ...]


def of(request: Request, left: Request, profile: Profile, *, policy: str, promised: tuple[str, ...]) -> Binding:
    """Return the binding of a request under the profile it is held to.

    `left` is what that profile leaves of it without any grant, and `policy` the policy file's path. Raises Refused
    where that file cannot be read.
    """
    return Binding(
        executor=request.executor,
        run=request.run or "",
        command=start_digest(request),
        variables=variables(request, home=left.home),
        cwd=os.path.realpath(left.cwd or next(iter(left.write), HOME)),
        profile=fingerprint(profile),
        route=route(request, policy),
        promised=promised,
    )


def command_digest(command: tuple[str, ...]) -> str:
    """Return the digest of a command, word by word: `a b` and `a  b` are two, and so are one word and two."""
    words = [word.encode("utf-8", "surrogatepass") for word in command]
    return sha256(b"".join(len(word).to_bytes(4, "big") + word for word in words))


def start_digest(request: Request) -> str:
    """Return the digest of a start: the command word by word, and every option but those that say nothing of it."""
    items = [("domain", _START), ("command", command_digest(request.command))]
    for name, value in request.as_dict().items():
        if name in _NOT_OF_THE_START:
            continue
        values: list[object] = [*value] if isinstance(value, tuple) else [value]
        items += [(name, str(one)) for one in values]
    return sha256(pack(items))


def variables(request: Request, *, home: str) -> str:
    """Return the digest of the worker's variables as they come out, whichever options, files or caller they are from.

    What cannot be read is left out: a run with that is refused for it.
    """
    place = os.environ.get("HOME", "") if home == REAL else HOME
    found, _, _ = environment.decide(home=place, asked=request.env, files=request.env_file, host=request.env_host)
    return variables_digest(found)


def variables_digest(variables: tuple[tuple[str, str], ...]) -> str:
    """Return the digest of variables, names and values, in whatever order they came."""
    return sha256(pack(sorted(variables)))


def sealed(digest: str, secret: bytes, *, nonce: str) -> str:
    """Return what a grant has of its run's variables: HMAC-SHA256, so that nobody without the key can try values."""
    items = [("domain", _VARIABLES), ("nonce", nonce), ("variables", digest)]
    return hmac.digest(secret, pack(items), "sha256").hex()


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
