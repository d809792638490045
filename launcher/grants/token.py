"""A grant as a value, its canonical bytes, and the token that carries both across: `crg1.PAYLOAD.MAC`, URL-safe.

The payload is the canonical bytes themselves, so that a refusal can say which binding is another one. The rule: every
token has one spelling; whatever is not it is malformed, and nothing of it is believed before its MAC is.
"""

import binascii
import hmac

from launcher.access.profile import pack
from launcher.value import Value
from oci.refusal import Refusal, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

PREFIX = "crg1"
VERSION = "1"
DOMAIN = "card-run/grant"
# Three paths of at most 4,096 bytes (PATH_MAX), in base64, and the rest.
MOST = 24576
_NONCE_DIGITS = 32
_HEX = frozenset("0123456789abcdef")
_NUMBERS = ("device", "inode", "issued", "expires")
_URL = str.maketrans("+/", "-_")
_PLAIN = str.maketrans("-_", "+/")


class Grant(Value):
    """One thing opened for one run; every field is bound by the MAC.

    `key` is the bench's key id and `executor` who runs cards on it ("" for card-run itself); `command`, `profile` and
    `route` are digests, `variables` is one under the bench's key; `guarantees` is their one spelling. A file-system
    grant binds the deepest existing ancestor of its target (`anchor`, `device`, `inode`); others leave those empty.
    Times are seconds since the epoch.
    """

    key: str
    executor: str
    run: str
    command: str
    variables: str
    cwd: str
    profile: str
    route: str
    guarantees: str
    cls: str
    target: str
    anchor: str
    device: int
    inode: int
    issued: int
    expires: int
    nonce: str

    @property
    def id(self) -> str:
        """Return what the grant is called where it is shown: it opens nothing."""
        return self.nonce[:12]

    def canonical(self) -> bytes:
        """Return the bytes that the MAC is taken of: `pack` of domain, version, then every field in its order."""
        items = [("domain", DOMAIN), ("version", VERSION)]
        return pack([*items, *((name, str(value)) for name, value in self.as_dict().items())])


_FIELDS = tuple(Grant.__annotations__)


def mac(grant: Grant, secret: bytes) -> bytes:
    """Return the HMAC-SHA256 (RFC 2104) of the canonical bytes."""
    return hmac.digest(secret, grant.canonical(), "sha256")


def encode(grant: Grant, secret: bytes) -> str:
    """Return the token of a grant, signed; raises Refused (`unsupported`) when it would be longer than any is."""
    token = f"{PREFIX}.{_text(grant.canonical())}.{_text(mac(grant, secret))}"
    if len(token) > MOST:
        text = f"the token would have {len(token)} characters, and none has more than {MOST}"
        raise Refused([Refusal("unsupported", text, "shorten the paths and names of the run")])
    return token


def decode(token: str) -> tuple[Grant, bytes]:
    """Return the grant that a token carries and its MAC, neither of them believed yet; raises Refused (`malformed`)."""
    if len(token) > MOST or not token.isascii():
        _malformed("it is too long, or not of a token's letters")
    prefix, *parts = token.split(".")
    if prefix != PREFIX or len(parts) != 2:
        _malformed(f"it is not {PREFIX}.PAYLOAD.MAC")
    payload, signature = (_bytes(part) for part in parts)
    return _grant(_unpack(payload)), signature


def genuine(grant: Grant, signature: bytes, secret: bytes) -> bool:
    """Return whether the MAC is the grant's under a key, in a time that tells nothing of where it differs."""
    return hmac.compare_digest(mac(grant, secret), signature)


def _text(data: bytes) -> str:
    """Return base64url without padding (RFC 4648, section 5)."""
    return binascii.b2a_base64(data, newline=False).decode("ascii").rstrip("=").translate(_URL)


def _bytes(text: str) -> bytes:
    """Return what base64url without padding stands for; only the one spelling of each is taken."""
    padded = text.translate(_PLAIN) + "=" * (-len(text) % 4)
    try:
        data = binascii.a2b_base64(padded, strict_mode=True)
    except binascii.Error:
        data = b""
    if not data or _text(data) != text:
        _malformed("it is not base64url")
    return data


def _unpack(data: bytes) -> list[str]:
    """Return the texts that `pack` put behind their lengths."""
    words: list[str] = []
    while data:
        size = int.from_bytes(data[:4], "big")
        if len(data) < 4 + size:
            _malformed("it is cut short")
        try:
            words.append(data[4 : 4 + size].decode("utf-8", "surrogatepass"))
        except UnicodeDecodeError:
            _malformed("it is not UTF-8")
        data = data[4 + size :]
    return words


def _grant(words: list[str]) -> Grant:
    names, values = words[::2], words[1::2]
    if names != ["domain", "version", *_FIELDS] or len(values) != len(names):
        _malformed("it does not have a grant's fields")
    if values[:2] != [DOMAIN, VERSION]:
        _malformed(f"it is {values[0]!r} of version {values[1]!r}, and this card-run knows version {VERSION}")
    fields: dict[str, Any] = dict(zip(names[2:], values[2:], strict=True))
    for name in _NUMBERS:
        fields[name] = _number(fields[name])
    nonce = fields["nonce"]
    if len(nonce) != _NONCE_DIGITS or not _HEX.issuperset(nonce):
        _malformed("its nonce is not 128 bits in hex")
    return Grant(**fields)


def _number(text: str) -> int:
    """Return the number that a decimal text says in its only spelling."""
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and str(int(text)) == text):
        _malformed("it has a number that is none")
    return int(text)


def _malformed(why: str) -> "NoReturn":
    text = f"this is no grant token: {why}"
    raise Refused([Refusal("malformed", text, "pass the token as `card grant issue` printed it")])
