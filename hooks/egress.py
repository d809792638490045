"""The egress wall as a value: what one card may reach, and where the rules stand.

Owns the one value that the renderer and the auditor both take, and nothing of nft's language. An `Egress` that exists
is well formed: every address is canonical text, every name a normalised hostname, so neither reader has to wonder.
Imports only `_socket` (inet_pton(3)) beside the refusal; `ipaddress` would cost the hook 4 ms.
"""

import _socket

from oci.refusal import Refusal, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

TABLE_PREFIX = "nova_egress_"
PORT = 443
LEDGER_SIZE = 4096
LEDGER_LIMIT = 65535
NETNS = "netns"
NETDEV = "netdev"
UID = "uid"
VETH = "veth"
KINDS = (NETNS, NETDEV, UID, VETH)

_LOWER = frozenset("abcdefghijklmnopqrstuvwxyz")
_DIGITS = frozenset("0123456789")
_WORD = _LOWER | _DIGITS
_DEVICE = _WORD | frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ._-")
_REASON = _DEVICE | frozenset(":/")
_COMMENT_LIMIT = 100
_MAX_UID = 0xFFFFFFFE


class Selector:
    """Which packets a table judges: `netns` (all that leave by another interface than lo), or a device, uid or veth."""

    __slots__ = ("kind", "value")

    def __init__(self, kind: str, value: str = "") -> None:
        self.kind = kind
        self.value = value
        if kind not in KINDS:
            raise Refused([Refusal("no-selector", f"the table has no selector that is known: {kind!r}")])
        if not _selector_value(kind, value):
            raise Refused([Refusal("bad-selector", f"{value!r} is not a value for the selector {kind}")])


def _selector_value(kind: str, value: str) -> bool:
    if kind == NETNS:
        return value == ""
    if kind == UID:
        return _is_number(value, digits=10) and 0 < int(value) <= _MAX_UID
    # IFNAMSIZ is 16 with the final NUL (linux/if.h); "lo" would judge the bench's own loopback.
    return 0 < len(value) < 16 and set(value) <= _DEVICE and value not in (".", "..", "lo")


def _is_number(text: str, *, digits: int) -> bool:
    return 0 < len(text) <= digits and set(text) <= _DIGITS and str(int(text)) == text


class Egress:
    """What a card may reach: TCP 443 to the pins, DNS for their names at `dns` (None closes it), never `denied`.

    `pins` maps each name to its addresses, v4 and v6; `denied` maps further ranges (CIDR) to a one-word reason;
    `addresses` is each pinned address with the first name, in order, that has it. Not to be changed once made. Raises
    Refused with everything that is malformed; a value that exists can be rendered.
    """

    __slots__ = ("addresses", "denied", "dns", "ledger_size", "pins", "run", "selector")

    def __init__(  # noqa: PLR0913 - the members of the plan's egress object
        self,
        *,
        run: str,
        selector: Selector,
        pins: "dict[str, tuple[str, ...]]",
        dns: "str | None" = None,
        denied: "dict[str, str] | None" = None,
        ledger_size: int = LEDGER_SIZE,
    ) -> None:
        self.run = run
        self.selector = selector
        self.pins = {name: tuple(addresses) for name, addresses in pins.items()}
        self.dns = dns
        self.denied = dict(denied or {})
        self.ledger_size = ledger_size
        refusals = list(_refusals(self))
        if refusals:
            raise Refused(refusals)
        self.addresses: "dict[str, str]" = {}
        for name in self.names:
            for address in self.pins[name]:
                self.addresses.setdefault(address, name)

    @property
    def table(self) -> str:
        """The table's name."""
        return TABLE_PREFIX + self.run

    @property
    def names(self) -> "tuple[str, ...]":
        """The allowed names, sorted."""
        return tuple(sorted(self.pins))

    @property
    def v6(self) -> bool:
        """Whether the card sends any IPv6 packet off its loopback, so that neighbour discovery has to work."""
        return any(":" in address for address in self.addresses) or ":" in (self.dns or "")

    def names_of(self, address: str) -> str:
        """Return every name that has the address, in order, with spaces between; "" for an address of none."""
        return " ".join(name for name, pins in self.pins.items() if address in pins)

    def to_json(self) -> "dict[str, object]":
        """Return the value as the plan's `egress` object."""
        return {
            "run": self.run,
            "selector": {"kind": self.selector.kind, "value": self.selector.value},
            "pins": {name: list(addresses) for name, addresses in self.pins.items()},
            "dns": self.dns,
            "denied": dict(self.denied),
            "ledger_size": self.ledger_size,
        }


def _refusals(egress: Egress) -> "Iterator[Refusal]":
    if not is_run_id(egress.run):
        yield Refusal("bad-run-id", f"{egress.run!r} is not a run id", "a run id is a-z, 0-9 and _, at most 48")
    yield from _bad_pins(egress.pins)
    if egress.dns is not None and not is_address(egress.dns):
        yield Refusal("bad-address", f"{egress.dns!r}, the card's DNS, is not a canonical address")
    for cidr, reason in egress.denied.items():
        if not is_range(cidr):
            yield Refusal("bad-range", f"{cidr!r} is not a canonical range (CIDR)")
        if not is_comment(reason):
            yield Refusal(
                "bad-range", f"{reason!r} cannot be the reason for {cidr}", "one word of at most 100 characters"
            )
    if not 1 <= egress.ledger_size <= LEDGER_LIMIT:
        yield Refusal("bad-ledger-size", f"{egress.ledger_size} is not a size for the ledger")


def _bad_pins(pins: "dict[str, tuple[str, ...]]") -> "Iterator[Refusal]":
    for name, addresses in pins.items():
        if not is_name(name):
            yield Refusal("bad-name", f"{name!r} is not a normalised hostname")
        for address in addresses:
            if not is_address(address):
                yield Refusal("bad-address", f"{address!r}, pinned for {name}, is not a canonical address")


def is_run_id(text: str) -> bool:
    """Whether the text matches `^[a-z0-9][a-z0-9_]{0,47}$`: it becomes part of an nft identifier."""
    return 0 < len(text) <= 48 and set(text) <= _WORD | {"_"} and text[0] != "_"


def is_name(text: str) -> bool:
    """Whether the text is a hostname of two labels or more in lower-case A-label form, without the final dot."""
    labels = text.split(".")
    if not 1 <= len(text) <= 253 or len(labels) < 2 or set(labels[-1]) <= _DIGITS:
        return False
    return all(_is_label(label) for label in labels)


def _is_label(label: str) -> bool:
    return 0 < len(label) <= 63 and set(label) <= _WORD | {"-"} and label[0] != "-" and label[-1] != "-"


def is_address(text: str) -> bool:
    """Whether the text is an IPv4 or IPv6 address exactly as inet_ntop(3), and so nft, prints it.

    An IPv4 address in an IPv6 form (mapped or compatible, printed with dots) is not: it is to be given as IPv4.
    """
    family = _socket.AF_INET6 if ":" in text else _socket.AF_INET
    if family == _socket.AF_INET6 and "." in text:
        return False
    try:
        return _socket.inet_ntop(family, _socket.inet_pton(family, text)) == text
    except (OSError, ValueError):
        return False


def is_range(text: str) -> bool:
    """Whether the text is ADDRESS/PREFIX with a canonical address whose host bits are zero."""
    address, slash, prefix = text.partition("/")
    if not slash or not is_address(address) or not _is_number(prefix, digits=3):
        return False
    packed = _socket.inet_pton(_socket.AF_INET6 if ":" in address else _socket.AF_INET, address)
    host_bits = len(packed) * 8 - int(prefix)
    return host_bits >= 0 and int.from_bytes(packed, "big") % (1 << host_bits) == 0


def is_comment(text: str) -> bool:
    """Whether the text can stand as an nft comment without quoting anything: one word of a safe alphabet."""
    return 0 < len(text) <= _COMMENT_LIMIT and set(text) <= _REASON


_KEYS = {"run", "selector", "pins", "dns", "denied", "ledger_size"}


def from_json(value: object) -> Egress:
    """Return the value that `to_json` gave; raises Refused (`plan-malformed`) for a missing, unknown or mistyped key.

    Raises Refused for a malformed value as well, by the reasons of `Egress`.
    """
    members = _object(value, _KEYS, "egress")
    selector = _object(members["selector"], {"kind", "value"}, "selector")
    dns = members["dns"]
    size = members["ledger_size"]
    if not isinstance(size, int) or isinstance(size, bool):
        raise _malformed("egress.ledger_size is not a number")
    return Egress(
        run=_text(members["run"], "run"),
        selector=Selector(_text(selector["kind"], "selector.kind"), _text(selector["value"], "selector.value")),
        pins={name: _texts(addresses, "pins") for name, addresses in _object(members["pins"], None, "pins").items()},
        dns=None if dns is None else _text(dns, "dns"),
        denied={cidr: _text(why, "denied") for cidr, why in _object(members["denied"], None, "denied").items()},
        ledger_size=size,
    )


def _malformed(text: str) -> Refused:
    return Refused([Refusal("plan-malformed", text)])


def _object(value: object, keys: "set[str] | None", where: str) -> "dict[str, object]":
    if not isinstance(value, dict):
        raise _malformed(f"{where} is not an object")
    members: "dict[str, object]" = value  # pyright: ignore[reportUnknownVariableType]
    if keys is not None and set(members) != keys:
        raise _malformed(f"{where} has missing or unknown keys: {', '.join(sorted(set(members) ^ keys))}")
    return members


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise _malformed(f"egress.{where} is not a string")
    return value


def _texts(value: object, where: str) -> "tuple[str, ...]":
    if not isinstance(value, list):
        raise _malformed(f"egress.{where} is not a list")
    return tuple(_text(item, where) for item in value)  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
