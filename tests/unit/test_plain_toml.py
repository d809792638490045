"""What is read without tomllib is read as tomllib reads it, and everything else is left to it."""

import tomllib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from launcher import plaintoml
from launcher.cardfile import template

PIECES = st.sampled_from(
    [
        *(
            "[a]",
            "[b]",
            "[[a.r]]",
            "[[a.b]]",
            "[a.b]",
            "[[r]]",
            "[ a ]",
            "['a']",
            "[a] # x",
            "[a]]",
            "[[a.r] ]",
            "a.b = 1",
        ),
        *(
            "a = 1",
            "b = 2",
            "a = 01",
            "a = -1",
            "a = 1_0",
            "a = 1.5",
            "a = 0x1",
            "a = 1e3",
            "a = 999999999999999",
            "a=0",
        ),
        *("a = 1979-05-27", "a = 07:32:00", "a = true", "a = tru", "b = false # c", "a = inf", "a = ٣", "r = 1"),
        *('a = "x"', 'a = "x\\n"', 'a = ""', 'a = """"', 'a = """x"""', 'a = "x" y', 'a = "#"', 'a = "ü"', 'a = "x'),
        *("a = 'x'", "a = ''", "a = '''x'''", "a = 'x\\'", "a = 'x' # '", "a = ''''", 'a = "\t"', "'a' = 1", '"a" = 1'),
        *(
            "a = []",
            "a = [1]",
            "a = [1,",
            "2]",
            "]",
            "a = [1, 2,]",
            "a = [,]",
            "a = [1 2]",
            'a = ["x", # c',
            "'y']",
            "a = [[1]]",
        ),
        *(
            "a = [ # c ]",
            "a = {}",
            "a = {b = 1}",
            "a =",
            "= 1",
            "a",
            "a 1",
            "a = 1 b = 2",
            "# c",
            "",
            " ",
            "\t",
            "a = x",
            "a== 1",
        ),
        *(
            "a-b_1 = 1",
            "é = 1",
            "1 = 1",
            "a\t=\t1",
            "a = [1]]",
            'a = ["]"]',
            "a = [true, false]",
            'a = ["x" "y"]',
            "a = [a]",
        ),
    ]
)
TEXTS = st.builds("\n".join, st.lists(PIECES, max_size=7))
CHARACTERS = st.text(st.sampled_from("ab=[]\"'#,.1 \t\n\r\x00\x7f\\é"), max_size=20)


@settings(max_examples=1500)
@given(st.one_of(TEXTS, CHARACTERS, st.builds("{}{}".format, TEXTS, CHARACTERS)))
@example("[a]\n[[a.r]]\nx = 1\n[[a.r]]\n[a]\n")
@example("[a]\nr = []\n[[a.r]]")
@example("[[a.r]]\n[a]\nb = 1")
@example('a = [\n  "x", # y\n]\n')
def test_the_same_as_tomllib_or_nothing(text: str) -> None:
    """Never another value, and never a value where tomllib finds a mistake."""
    found = plaintoml.read(text)
    if found is not None:
        assert tomllib.loads(text) == found


PLAIN = [
    "",
    'documentation_ranges = true\nbenches = ["10.0.0.0/8", "2001:db8::/32"]\n',
    '[ceiling]\nnetwork = "deny" # none\n\n[[ceiling.roots]]\npath = \'/srv\'\n[[ceiling.roots]]\npath = "/opt"\n',
    template.card("card.toml", schema="file:///x", inside=True).replace('\\"', ""),
    'a = [\n  "x",  # first\n  "y",\n]\nn = 12\n',
]


@pytest.mark.parametrize("text", PLAIN)
def test_plain_settings_are_read(text: str) -> None:
    """What people write is read here: else this module would be for nothing."""
    assert plaintoml.read(text) == tomllib.loads(text)


def test_types_are_told_apart() -> None:
    """True is not 1: equality alone would not see it."""
    assert plaintoml.read("a = true\nb = 1") == {"a": True, "b": 1}
    found = plaintoml.read("a = true\nb = 1") or {}
    assert [type(value) for value in found.values()] == [bool, int]
