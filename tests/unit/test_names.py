"""Hostnames have one form, and everything else has a reason."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.egress.names import BadNameError, normalise

LABEL = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True).filter(lambda text: text[2:4] != "--")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("github.com", "github.com"),
        ("GitHub.COM.", "github.com"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("a-b.c1.example", "a-b.c1.example"),
        (".".join(["a" * 49] * 5) + ".eee", ".".join(["a" * 49] * 5) + ".eee"),
    ],
)
def test_one_form(text: str, name: str) -> None:
    """Case, the trailing dot and U-labels do not make another name."""
    assert normalise(text) == name


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("*.github.com", "wildcard"),
        ("github.com:443", "port"),
        ("https://github.com", "scheme"),
        ("github.com/owner", "path"),
        ("192.0.2.1", "number"),
        ("127.1", "number"),
        ("a.0x7f", "number"),
        ("2001:db8::1", "address"),
        ("[::1]", "address"),
        ("localhost", "localhost"),
        ("a.localhost", "localhost"),
        ("github", "single label"),
        ("_dmarc.example.com", "underscore"),
        ("a..example", "empty label"),
        (".example", "empty label"),
        ("", "empty"),
        (".", "empty"),
        ("-a.example", "hyphen"),
        ("a-.example", "hyphen"),
        ("a" * 64 + ".example", "63"),
        (".".join(["a" * 49] * 5) + ".eeee", "253"),
        ("a\x00.example", "control"),
        ("a\n.example", "control"),
        ("a b.example", "character"),
        ("xn--a.example", "internationalised"),
        ("a\u3002\u3002example", "internationalised"),
    ],
)
def test_reason(text: str, why: str) -> None:
    """What is not a hostname is refused in words that say why."""
    with pytest.raises(BadNameError, match=why):
        normalise(text)


@given(st.lists(LABEL, min_size=2, max_size=6).filter(lambda labels: not labels[-1].isdigit()))
def test_normal_form_is_stable(labels: list[str]) -> None:
    """A normal form is its own normal form, in any case and with the root's dot."""
    name = ".".join(labels)
    if labels[-1].startswith("0x") or labels[-1] == "localhost":
        return
    assert normalise(name) == name
    assert normalise(name.upper() + ".") == name
