"""The access profile: what a card may do, as a value that is well formed or does not exist.

Three levels, closed first: deny cannot be opened, gated opens by a grant for one run, allow needs none. A profile is
immutable, and its fingerprint covers everything that carries authority and nothing else. There are no presets.
Importing this has no effect and costs next to nothing; making a profile looks at no file.
"""

from hooks.plan import sha256
from launcher.access import judge
from launcher.access.judge import ALLOW, DENY, GATED, ISOLATED, LEVELS, REAL, SANDBOXED, UNCONFINED, Problem
from launcher.value import Value
from oci.refusal import Refusal, Refused

__all__ = ("ALLOW", "DENY", "GATED", "ISOLATED", "LEVELS", "REAL", "SANDBOXED", "UNCONFINED", "Profile", "Root")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

REASON = "access-profile"
# Changes whenever a profile comes to mean something else, so that no fingerprint speaks for two meanings.
VERSION = 1
_DOMAIN = "card-run/access"


class Root(Value):
    """A further place with its own answers; the deepest root that holds a path decides about it."""

    path: str
    read: str = DENY
    write: str = DENY


class Answers(Value):
    """The fields that a profile and a ceiling are made of, in the order that they are told in."""

    workspace: str
    workspace_read: str = DENY
    workspace_write: str = DENY
    host_read: str = DENY
    host_write: str = DENY
    network: str = DENY
    command: str = DENY
    home: str = ISOLATED
    isolation: str = SANDBOXED
    ack_unconfined: bool = False
    roots: tuple[Root, ...] = ()


class Profile(Answers):
    """What a card may do. `workspace` is its own tree, `host_*` is every other path of the bench, `roots` are between.

    Paths are absolute and in normal form, taken as they are: `launcher.access.table.parse` resolves links first. Roots
    are kept in the order of their paths. Raises Refused (`access-profile`) with every problem at once.
    """

    if not TYPE_CHECKING:  # checkers see the fields, as for any Value

        def __init__(self, **given: "Any") -> None:
            super().__init__(**given)
            _settle(self)


def _settle(profile: Profile) -> None:
    fields = {name: value for name, value in profile.as_dict().items() if name != "roots"}
    refuse(judge.problems(fields, [root.as_dict() for root in profile.roots]))
    profile.__dict__["roots"] = tuple(sorted(profile.roots, key=lambda root: root.path))


def refuse(problems: list[Problem], *, table: str = "access") -> None:
    """Raise Refused with every problem, each named by the table and key it stands at; nothing when there is none."""
    if problems:
        raise Refused([Refusal(REASON, f"{table}.{one.key}: {one.text}", one.hint) for one in problems])


def pack(items: "list[tuple[str, str]]") -> bytes:
    """Return bytes that no other list of items gives: name and value each behind its length (4 bytes, big-endian).

    What is not UTF-8 on a command line is surrogates here (PEP 383), and a list with them has bytes of its own too.
    """
    out: list[bytes] = []
    for text in (text for item in items for text in item):
        data = text.encode("utf-8", "surrogatepass")
        out += [len(data).to_bytes(4, "big"), data]
    return b"".join(out)


def canonical(profile: Profile) -> bytes:
    """Return the bytes that the fingerprint is taken of.

    `pack` of, in this order: `domain` and `version`; `workspace`; the six levels in the order they are declared;
    `home`; `isolation`; then `root`, `read`, `write` of each root in the order of the paths. `ack_unconfined` is not in
    it: it is true exactly when the isolation is unconfined.
    """
    items = [("domain", _DOMAIN), ("version", str(VERSION)), ("workspace", profile.workspace)]
    items += [(name, str(getattr(profile, name))) for name in (*judge.LEVELLED, "home", "isolation")]
    for root in profile.roots:
        items += [("root", root.path), ("read", root.read), ("write", root.write)]
    return pack(items)


def fingerprint(profile: Profile) -> str:
    """Return the sha256 of the canonical bytes in hex: equal for equal authority, and only then."""
    return sha256(canonical(profile))
