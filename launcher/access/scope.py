"""What a profile answers about one thing: 0 closed, 1 opened by a grant, 2 open.

The rule: the deepest root that holds a path decides, and a scope that spans several places gets the least of their
answers. Paths are compared as text, so whoever asks resolves them first (`resolved`), as minting and starting do.
"""

import os

from launcher.access.judge import LEVELS, normal
from launcher.access.profile import VERSION, Profile
from launcher.egress.names import BadNameError, normalise
from launcher.fs.paths import below, unprintable
from launcher.value import Value
from oci.refusal import Refusal, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

COMMAND, READ, WRITE, NETWORK = "command.execute", "filesystem.read", "filesystem.write", "network"
KINDS = (COMMAND, READ, WRITE, NETWORK)
HOST = "host:*"
TREE = "tree:"
ANY = "*"
_PORTS = 65535


class Place(Value):
    """A file-system scope: one path, the tree at it, or (path "/", tree) the whole bench."""

    path: str
    tree: bool


class Peer(Value):
    """A network scope: `tcp:HOST:PORT`, with "" for any host."""

    host: str
    port: int


def access_version() -> int:
    """Return the version of what profiles and scopes mean; another number means other answers."""
    return VERSION


def access_for(profile: Profile, kind: str, scope: str) -> int:
    """Return 0 (deny), 1 (gated) or 2 (allow) for a kind of access and a scope.

    Scopes: a command's text or `*` for `command.execute`; an absolute path, `tree:/path` or `host:*` for
    `filesystem.read` and `filesystem.write`; `tcp:HOST:PORT`, `tcp:*:PORT` or `*` for `network`. Raises Refused:
    `unknown-kind`, or `bad-scope` for one that is malformed or not in normal form.
    """
    if kind == COMMAND:
        _command(scope)
        return LEVELS.index(profile.command)
    if kind in {READ, WRITE}:
        return _lowest(profile, place(scope), write=kind == WRITE)
    if kind == NETWORK:
        if scope != ANY:
            peer(scope)
        return LEVELS.index(profile.network)
    raise Refused([Refusal("unknown-kind", f"{kind!r} is no kind of access", f"one of {', '.join(KINDS)}")])


def levels(profile: Profile, *, write: bool) -> "dict[str, int]":
    """Return the answer of each root by its path: "" for the bench, then the workspace, then the further roots."""
    host, workspace = (
        (profile.host_write, profile.workspace_write) if write else (profile.host_read, profile.workspace_read)
    )
    roots = {root.path: LEVELS.index(root.write if write else root.read) for root in profile.roots}
    return {"": LEVELS.index(host), profile.workspace: LEVELS.index(workspace), **roots}


def holds(top: str, path: str) -> bool:
    """Return whether a path is `top` or lies below it, both in normal form; "" and "/" hold everything."""
    return top in {"", "/", path} or below(path, top)


def deepest(levels: "dict[str, int]", path: str) -> int:
    """Return the answer of the deepest root that holds a path."""
    return levels[max((top for top in levels if holds(top, path)), key=len)]


def _lowest(profile: Profile, scope: Place, *, write: bool) -> int:
    table = levels(profile, write=write)
    inside = [level for top, level in table.items() if top and holds(scope.path, top)] if scope.tree else []
    return min([deepest(table, scope.path), *inside])


def resolved(path: str, *, tree: bool = False) -> str:
    """Return the scope of a path of this bench, resolved through its links: what `access_for` is to be asked about.

    A path that is asked about as it was given says where it seems to be, and a link leads elsewhere.
    """
    scope = f"{TREE if tree else ''}{os.path.realpath(path)}" if path.startswith("/") else path
    place(scope)
    return scope


def place(scope: str) -> Place:
    """Return a file-system scope; raises Refused (`bad-scope`) for anything that is not one in normal form."""
    if scope == HOST:
        return Place(path="/", tree=True)
    path = scope.removeprefix(TREE)
    if not normal(path) or unprintable(path):
        _bad(scope, "an absolute path in normal form, tree:/PATH or host:*")
    return Place(path=path, tree=scope.startswith(TREE))


def peer(scope: str) -> Peer:
    """Return a network scope; raises Refused (`bad-scope`) for anything else than `tcp:HOST:PORT` in normal form."""
    protocol, _, rest = scope.partition(":")
    host, _, port = rest.rpartition(":")
    try:
        good = protocol == "tcp" and (host == ANY or normalise(host) == host) and 0 < _number(port) <= _PORTS
    except BadNameError:
        good = False
    if not good:
        _bad(scope, "tcp:HOST:PORT, tcp:*:PORT or *, the host in lower case")
    return Peer(host="" if host == ANY else host, port=int(port))


def _number(text: str) -> int:
    """Return the number that a decimal text says in its only spelling, else 0."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 5 and str(int(text)) == text else 0


def _command(scope: str) -> None:
    if not scope or "\0" in scope or any(0xD800 <= ord(character) <= 0xDFFF for character in scope):
        _bad(scope, "a command's text, or *")


def _bad(scope: str, wanted: str) -> "NoReturn":
    raise Refused([Refusal("bad-scope", f"{scope!r} is no scope of this kind of access", f"write {wanted}")])
