"""A name to a payload match and back: the two readings of RFC 1035 agree on every name and on nothing else."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hooks import dnsname, question
from tests.unit.walls import names


@given(names)
def test_a_match_decodes_to_its_name(name: str) -> None:
    """Both forms of the match decode to exactly the name, one with an EDNS record and one without."""
    found = [question.decode(match.split()) for match in dnsname.matches(name)]
    assert [(one.name, one.edns) for one in found] == [(name, False), (name, True)]


@given(names)
def test_only_the_case_of_letters_is_free(name: str) -> None:
    """The free bits of a QNAME are 0x20 of its letters: not of digits, hyphens or length bytes."""
    value, free = dnsname.encode(name)
    assert len(value) == len(free) == len(name) + 2
    for byte, bits in zip(value, free, strict=True):
        assert bits == (0x20 if chr(byte) in "abcdefghijklmnopqrstuvwxyz" and byte > 63 else 0)


@given(names)
def test_no_comparison_is_longer_than_nft_allows(name: str) -> None:
    """Every raw comparison is whole bytes and at most 128 bits."""
    for match in dnsname.matches(name):
        places = [word.split(",") for word in match.split() if word.startswith("@th,")]
        assert all(int(place[1]) % 8 == 0 and int(place[2]) % 8 == 0 for place in places)
        assert all(0 < int(place[2]) <= 128 for place in places)


@given(names, st.data())
def test_any_changed_word_changes_the_meaning(name: str, data: st.DataObject) -> None:
    """A match with one hex digit changed decodes to another name, or not at all."""
    words = dnsname.matches(name)[data.draw(st.integers(0, 1))].split()
    number = data.draw(st.sampled_from([at for at, word in enumerate(words) if word.startswith("0x")]))
    digit = data.draw(st.integers(2, len(words[number].rstrip(",")) - 1))
    new = data.draw(st.sampled_from([one for one in "0123456789abcdef" if one != words[number][digit]]))
    changed = [*words]
    changed[number] = words[number][:digit] + new + words[number][digit + 1 :]
    with contextlib.suppress(ValueError):
        assert question.decode(changed).name != name


@given(names)
def test_every_word_is_needed(name: str) -> None:
    """A match with one word left out is not a question any more."""
    for match in dnsname.matches(name):
        words = match.split()
        for at in range(len(words)):
            with pytest.raises(ValueError, match=r"."):
                question.decode([*words[:at], *words[at + 1 :]])


@pytest.mark.parametrize(
    "words",
    [
        "",
        "udp length",
        "udp length x",
        "udp length 0",
        "udp length 20",
        "udp length 999999",
        "udp length 036",
        "udp length 36 @th,0160,8 0x1",
        "udp length 36 @th,160,8 0x01",
        "udp length 36 @th,160,8 0x0G",
        "udp length 36 @th,160",
        "udp length 36 @th,160,0 0x0",
        "udp length 36 @th,160,8",
        "udp length 36 @th,160,8 7",
        "udp length 36 @th,160,8 0x",
        "udp length 36 @th,160,8 0x100",
        "udp length 36 @th,160,8 | 0x20 == 0x40",
        "udp length 36 @th,161,8 0x1",
        "udp length 36 @th,0,8 0x1",
        "udp length 36 @th,-8,8 0x1",
        "udp length 36 @th,160,9999 0x1",
        "udp length 36 @th,280,16 0x1",
        "udp length 36 @nh,160,8 0x1",
        "udp length 36 @th,160,8 { 0x1",
        "udp length 36 @th,160,8 { 0x1, 0x2 }",
        "udp length 36 @th,160,8 0x1 @th,160,8 0x1",
    ],
)
def test_what_is_not_a_question_says_so(words: str) -> None:
    """A malformed match raises ValueError with a reason, never anything else."""
    with pytest.raises(ValueError, match=r"."):
        question.decode(words.split())


@given(st.text(alphabet="@th,|&={}0x123456789abcdef udplength", max_size=80))
def test_any_text_is_decoded_or_refused(text: str) -> None:
    """No text makes the decoder fail in another way than by ValueError."""
    with contextlib.suppress(ValueError):
        question.decode(text.split())
