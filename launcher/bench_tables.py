"""Egress tables on the bench's own side: for a bench that gives each card a uid, or routes a veth (root only).

The text is the same renderer's with another selector, applied as one transaction that replaces only its own table,
read back, audited, and recorded: what was meant is kept in `/run/card-run/tables/`, so that `audit` can be asked later.
"""

import os

from hooks import audit, ledger, nft, ruleset
from hooks.egress import TABLE_PREFIX, Egress, from_json
from hooks.ledger import Ledger
from oci import strictjson
from oci.refusal import Refusal, Refused

RECORDS = "/run/card-run/tables"
FAMILIES = ("inet", "netdev")


def apply(egress: Egress) -> audit.Facts:
    """Load the table and return what the kernel's own listing says of it; raises Refused, and then it is not there."""
    _need_root()
    text = ruleset.render(egress)
    audit.audit(text, egress)
    nft.load(text)
    try:
        facts = audit.audit(nft.list_table(family(egress), egress.table), egress)
        _record(egress)
    except (Refused, OSError):
        nft.delete_table(family(egress), egress.table)
        raise
    return facts


def family(egress: Egress) -> str:
    """Return the nft family of the placement."""
    return "netdev" if egress.selector.kind == "netdev" else "inet"


def remove(run: str) -> None:
    """Remove a run's table and record; harmless when there is none. Raises Refused when a table is still there."""
    _need_root()
    for kind, table in nft.list_tables():
        if kind in FAMILIES and table == TABLE_PREFIX + run:
            nft.delete_table(kind, table)
    try:
        os.unlink(_path(run))
    except FileNotFoundError:
        return


def recorded() -> dict[str, Egress]:
    """Return what is meant to be in force, by run id."""
    _need_root()
    if not os.path.isdir(RECORDS):
        return {}
    names = sorted(name.removesuffix(".json") for name in os.listdir(RECORDS) if name.endswith(".json"))
    return {name: _read(name) for name in names}


def live(egress: Egress) -> tuple[audit.Facts, Ledger]:
    """Return what the kernel holds for a recorded run, audited, and its ledger; raises Refused for every difference."""
    listing = nft.list_table(family(egress), egress.table)
    return audit.audit(listing, egress), ledger.parse(listing)


def _record(egress: Egress) -> None:
    os.makedirs(RECORDS, mode=0o700, exist_ok=True)
    fd = os.open(_path(egress.run), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(strictjson.dump(egress.to_json()).encode())


def _read(run: str) -> Egress:
    with open(_path(run), "rb") as file:
        return from_json(strictjson.parse(file.read()))


def _path(run: str) -> str:
    return f"{RECORDS}/{run}.json"


def _need_root() -> None:
    if os.geteuid() != 0:
        text = "tables on the bench's own side are root's to make and read"
        raise Refused([Refusal("needs-root", text, "a card's own table is made by the hook and needs no root")])
