"""Hostnames: one normal form everywhere, and a reason for everything that is not one.

The form is the one DNS compares by (RFC 4343, RFC 5890): lower case, no trailing dot, IDN labels as A-labels. Names
are compared whole, never by suffix or prefix.
"""

_LETTERS_DIGITS_HYPHEN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_NAME_LIMIT = 253
_LABEL_LIMIT = 63


class BadNameError(ValueError):
    """The text is not a hostname that a card may name; its message says why, in words for a person."""


def normalise(text: str) -> str:
    """Return the hostname in normal form; raises BadNameError for anything else, an address included."""
    _refuse_other_forms(text)
    name = _to_ascii(text).lower().removesuffix(".")
    if not name:
        raise BadNameError("is empty")
    if len(name) > _NAME_LIMIT:
        raise BadNameError(f"is longer than {_NAME_LIMIT} characters")
    labels = name.split(".")
    for label in labels:
        _check_label(label)
    if name == "localhost" or name.endswith(".localhost"):
        raise BadNameError("is localhost, which is the card itself")
    if len(labels) == 1:
        raise BadNameError("is a single label: write the full name")
    if _is_number(labels[-1]):
        raise BadNameError("is an address (or ends in a number): write a hostname")
    return name


def _refuse_other_forms(text: str) -> None:
    """Name the usual mistakes for what they are, before a label check calls them odd characters."""
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in text):
        raise BadNameError("holds a control character")
    if "*" in text:
        raise BadNameError("is a wildcard: every name is listed whole")
    if "://" in text:
        raise BadNameError("has a scheme: write the hostname alone")
    if text.startswith("[") or text.count(":") > 1:
        raise BadNameError("is an address: write a hostname")
    if ":" in text:
        raise BadNameError("has a port: only 443 is ever open, write the hostname alone")
    if "/" in text:
        raise BadNameError("has a path: write the hostname alone")


def _to_ascii(text: str) -> str:
    """Return the A-label form (RFC 5891, by the idna package, which is imported only when it is needed)."""
    if text.isascii() and "xn--" not in text.lower():
        return text
    import idna  # 10 ms that an ASCII name need not pay

    try:
        return idna.encode(text.removesuffix("."), uts46=True, std3_rules=True).decode("ascii")
    except idna.IDNAError as error:
        raise BadNameError(f"is not a valid internationalised name: {error}") from None


def _check_label(label: str) -> None:
    if not label:
        raise BadNameError("has an empty label")
    if len(label) > _LABEL_LIMIT:
        raise BadNameError(f"has a label longer than {_LABEL_LIMIT} characters")
    if "_" in label:
        raise BadNameError("has an underscore, which no hostname has")
    if not _LETTERS_DIGITS_HYPHEN.issuperset(label):
        raise BadNameError("holds a character that no hostname has")
    if label.startswith("-") or label.endswith("-"):
        raise BadNameError("has a label that starts or ends with a hyphen")


def _is_number(label: str) -> bool:
    """Return whether the last label makes inet_aton(3) read the whole as an address (WHATWG "ends in a number")."""
    hexadecimal = label.startswith("0x") and all(digit in "0123456789abcdef" for digit in label[2:])
    return label.isdigit() or hexadecimal
