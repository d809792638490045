"""Where a profile turns into what is mounted and reached: a request goes in, one that asks for no more comes out.

A run by flags alone has the profile that its flags imply; a card may state its own; the bench's ceiling restricts
both. The rule: never wider. What the ceiling takes away is told in a sentence each, what a profile leaves gated stays
closed unless a grant opened it for this run (`Opened`), and what no wall could hold, or makes no sense any more, is
refused. Pure but for resolving links.
"""

import os

from launcher.access.ceiling import restrict
from launcher.access.judge import ALLOW, DENY, GATED, ISOLATED, LEVELS, SANDBOXED
from launcher.access.profile import Profile, Root
from launcher.access.scope import deepest, levels
from launcher.bench import CeilingFile
from launcher.fs.paths import WRITE
from launcher.fs.policy import HOME
from launcher.request import Request
from launcher.roots import CEILING, LISTS, Judged, Opened, decide
from launcher.value import Value
from oci.refusal import Refusal

__all__ = ("CEILING", "Bounds", "Opened", "bound", "implied", "may_write")

_OPEN = LEVELS.index(ALLOW)
_NO_NETWORK = "none"


class Bounds(Value):
    """What a run was held to: its profile before and after the ceiling, and in words what that took away or gates."""

    asked: Profile
    profile: Profile
    ceiling: CeilingFile | None
    narrowed: tuple[str, ...]
    gated: tuple[str, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """Return everything there is to say about it."""
        return self.narrowed + self.gated


def implied(request: Request) -> Profile:
    """Return the profile that flags state by themselves: what they name is allowed, and everything else denied.

    The workspace is the first `--write`, else the card's own HOME: a path that is only read is the bench's, and never
    what a ceiling says of workspaces.
    """
    named: dict[str, str] = {}
    for access, name in LISTS:
        for path in getattr(request, name):
            if path.startswith("/") and "\0" not in path:
                named.setdefault(os.path.realpath(path), access)
    places = [Root(path=path, read=ALLOW, write=ALLOW if access == WRITE else DENY) for path, access in named.items()]
    # A path at HOME is refused by its own name, and one place has one answer.
    first = next((place for place in places if place.write == ALLOW or place.path == HOME), Root(path=HOME))
    return Profile(
        workspace=first.path,
        workspace_read=first.read,
        workspace_write=first.write,
        network=DENY if request.net == _NO_NETWORK else ALLOW,
        command=ALLOW,
        home=request.home,
        roots=tuple(place for place in places if place is not first),
    )


def bound(
    request: Request, ceiling: CeilingFile | None, opened: Opened | None = None
) -> tuple[Request, Bounds, list[Refusal]]:
    """Return the request with what its profile and the ceiling leave of it, what it was held to, and refusals."""
    asked = request.profile or implied(request)
    held = restrict(asked, ceiling.ceiling) if ceiling else asked
    judged = Judged(request, asked, held, opened or Opened(), top=ceiling.ceiling.workspace if ceiling else "")
    _isolation(judged)
    _command(judged)
    decide(judged)
    _network(judged)
    _home(judged)
    bounds = Bounds(
        asked=asked, profile=held, ceiling=ceiling, narrowed=tuple(judged.narrowed), gated=tuple(judged.gated)
    )
    return request.replace(**judged.changes), bounds, judged.refusals


def may_write(ceiling: CeilingFile, path: str) -> bool:
    """Return whether the ceiling, as it is for no card in particular, lets a path be written."""
    place = os.path.realpath(path)
    return deepest(levels(ceiling.ceiling.over(HOME), write=True), place) == _OPEN


def _isolation(judged: Judged) -> None:
    if judged.held.isolation != SANDBOXED:
        text = "access.isolation = unconfined: card-run starts nothing without its walls"
        judged.refuse("access-unenforceable", text)


def _command(judged: Judged) -> None:
    if judged.held.command == ALLOW or (judged.held.command == GATED and judged.opened.command):
        return
    if judged.held.command == GATED:
        whose = f"{CEILING} says command = gated" if judged.asked.command == ALLOW else "access.command is gated"
        judged.refuse("required", f"{whose}: a run needs a grant for its command", "card grant issue")
    elif judged.asked.command == ALLOW:
        judged.refuse("ceiling-command", f"{CEILING} says command = deny: nothing is started")
    else:
        judged.refuse("denied", "access.command is deny: this card starts nothing", "say command = 'allow'")


def _network(judged: Judged) -> None:
    request, level = judged.request, judged.held.network
    if request.net == _NO_NETWORK or level == ALLOW:
        return
    if level == GATED and judged.opened.hosts:
        judged.changes |= {"model_host": None, "allow_host": judged.opened.hosts}
        return
    named = [name for name in (request.model_host, *request.allow_host) if name]
    judged.changes |= {"net": _NO_NETWORK, "model_host": None, "allow_host": ()}
    without = f", without {' '.join(named)}" if named else ""
    if judged.asked.network != ALLOW:
        if level == GATED:
            judged.gated.append(f"the network is gated: closed without a grant{without}")
        for option, name in _meant(request) if judged.asked.network == DENY else ():
            text = f"{option} {name}: the card's [access] says network = deny"
            judged.refuse("access-contradiction", text, "say network = 'allow', or name no host")
    elif request.model_host:
        text = f"{CEILING} closes the network, and the worker needs its model host {request.model_host}"
        judged.refuse("ceiling-network", text, "" if level == DENY else "a grant opens it")
    else:
        judged.narrowed.append(f"{CEILING} closes the network{without}")


def _meant(request: Request) -> list[tuple[str, str]]:
    """Return the hosts that this card or its flags name; those of a user's defaults are for cards with a network."""
    merged = request.merged
    model = merged.said("model_host")[-1:] if merged else (request.model_host,)
    hosts = merged.said("allow_host") if merged else request.allow_host
    return [("--model-host", name) for name in model if name] + [("--allow-host", name) for name in hosts]


def _home(judged: Judged) -> None:
    request, merged = judged.request, judged.request.merged
    said = merged is None or merged.said("home")
    wanted = request.home if said or not judged.stated else judged.asked.home
    if wanted != ISOLATED and judged.asked.home == ISOLATED:
        judged.refuse("access-contradiction", "--home real, and the card's [access] says home = isolated")
    elif wanted != ISOLATED and judged.held.home == ISOLATED:
        judged.narrowed.append(f"{CEILING} keeps HOME isolated")
        wanted = ISOLATED
    judged.changes["home"] = wanted
