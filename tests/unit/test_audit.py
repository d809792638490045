"""The auditor against hand-written text, and against text that is nobody's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hooks import audit, listing, ranges, ruleset
from hooks.egress import Egress, Selector
from oci.refusal import Refused
from tests.unit.walls import wall, walls

# As `nft list table` prints it, written by hand: one name with one v4 address, DNS by question, no v6.
BY_HAND = """table inet nova_egress_hand {
	set allow4 {
		typeof ip daddr . tcp dport
		counter
		elements = { 203.0.113.10 . 443 counter packets 12 bytes 3456 comment "a.io" }
	}

	set never4 {
		typeof ip daddr
		flags interval
		elements = { 100.100.100.200 comment "metadata", 127.0.0.0/8 comment "loopback",
 168.63.129.16 comment "metadata", 169.254.169.254 comment "metadata" }
	}

	set denied4 {
		typeof ip daddr . meta l4proto . th dport
		size 4096
		flags dynamic
		counter
		elements = { 198.51.100.7 . tcp . 80 counter packets 1 bytes 60 }
	}

	set never6 {
		typeof ip6 daddr
		flags interval
		elements = { ::1 comment "loopback", fd00:ec2::254 comment "metadata" }
	}

	set denied6 {
		typeof ip6 daddr . meta l4proto . th dport
		size 4096
		flags dynamic
		counter
	}

	chain denied {
		oifname != "lo" meta l4proto { tcp, udp } add @denied4 { ip daddr . meta l4proto . th dport }
		oifname != "lo" meta l4proto { tcp, udp } add @denied6 { ip6 daddr . meta l4proto . th dport }
		oifname != "lo" ip daddr != 224.0.0.0/24 meta l4proto != { tcp, udp } counter packets 3 bytes 9 comment "other"
		oifname != "lo" ip6 daddr != ff02::/16 meta l4proto != { tcp, udp } counter packets 0 bytes 0 comment "other"
		oifname != "lo" meta l4proto tcp reject with tcp reset
		oifname != "lo" reject with icmpx admin-prohibited
		oifname != "lo" drop
	}

	chain output {
		type filter hook output priority filter; policy accept;
		oifname != "lo" ip daddr @never4 jump denied
		oifname != "lo" ip6 daddr @never6 jump denied
		oifname != "lo" ip hdrlength 5 ip daddr . tcp dport @allow4 accept
		oifname != "lo" ip daddr 10.0.0.1 ip hdrlength 5 udp dport 53 udp length 30 \
@th,80,80 | 0x300000000000000000 == 0x1300001000000000000 @th,160,48 | 0x2000202000 == 0x16102696f00 \
@th,208,32 { 0x10001, 0x1c0001 } accept comment "a.io"
		oifname != "lo" ip daddr 10.0.0.1 ip hdrlength 5 udp dport 53 udp length 41 \
@th,80,80 | 0x300000000000000000 == 0x1300001000000000001 @th,160,48 | 0x2000202000 == 0x16102696f00 \
@th,208,32 { 0x10001, 0x1c0001 } @th,240,88 | 0xffff000080000000 == 0x29ffff000080000000 accept comment "a.io"
		oifname != "lo" jump denied
		oifname != "lo" drop
	}
}
"""
HAND = Egress(run="hand", selector=Selector("netns"), pins={"a.io": ("203.0.113.10",)}, dns="10.0.0.1")


def test_a_listing_written_by_hand_is_clean() -> None:
    """A table that nobody rendered, with counters that have run, keeps every promise."""
    assert audit.audit(BY_HAND, HAND).to_json() == {
        "table": "nova_egress_hand",
        "allow": 1,
        "deny": 6,
        "names": 1,
        "rules": 14,
        "dns": "10.0.0.1",
    }


def test_the_renderer_writes_what_was_written_by_hand() -> None:
    """The renderer's rules for that wall are the hand-written ones, counters apart."""
    rendered = [line.strip() for line in ruleset.render(HAND).splitlines() if "oifname" in line]
    by_hand = [line.strip() for line in BY_HAND.splitlines() if "oifname" in line]
    assert rendered == [line.replace(" packets 3 bytes 9", "").replace(" packets 0 bytes 0", "") for line in by_hand]


@given(walls, walls)
def test_a_table_is_only_its_own_walls(one: Egress, other: Egress) -> None:
    """The text of one wall is refused for another that differs in anything that the table says."""
    text = ruleset.render(one)
    if ruleset.render(other) == text:
        audit.audit(text, other)
    else:
        with pytest.raises(Refused):
            audit.audit(text, other)


@pytest.mark.parametrize("character", '019af"{;#/.,@x')
def test_no_character_can_be_added_anywhere(character: str) -> None:
    """At every single place of a text one more character is refused."""
    text = ruleset.render(HAND)
    for at in range(len(text)):
        with pytest.raises(Refused):
            audit.audit(text[:at] + character + text[at:], HAND)


@given(walls, st.data())
def test_any_single_character_more_is_refused(any_wall: Egress, data: st.DataObject) -> None:
    """No printable character can be put into the text, but for the white space that nft does not read either."""
    text = ruleset.render(any_wall)
    at = data.draw(st.integers(0, len(text)))
    character = data.draw(st.characters(min_codepoint=0x21, max_codepoint=0x7E))
    with pytest.raises(Refused):
        audit.audit(text[:at] + character + text[at:], any_wall)


@given(walls, st.data())
def test_any_cut_is_refused(any_wall: Egress, data: st.DataObject) -> None:
    """No prefix of a text passes."""
    text = ruleset.render(any_wall)
    with pytest.raises(Refused):
        audit.audit(text[: data.draw(st.integers(0, len(text) - 1))], any_wall)


@given(st.text(max_size=200))
def test_any_text_is_refused(text: str) -> None:
    """Text that is nobody's is refused, and nothing else is raised."""
    with pytest.raises(Refused):
        audit.audit(text, wall())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("table ip nova_egress_hand {\n}\n", "unknown-statement"),
        ("table inet {\n}\n", "unknown-statement"),
        ("create table inet a\ntable inet b {\n}\n", "unknown-statement"),
        ("table inet a\ndelete table inet b\ntable inet a {\n}\n", "unknown-statement"),
        ("table inet a {\n\tmap m {\n\t}\n}\n", "unknown-statement"),
        ("table inet a {\n\tset s {\n\t}\n\tset s {\n\t}\n}\n", "unknown-statement"),
        ("table inet a {\n\tset s {\n\t\telements = { 1.2.3.4 frob }\n\t}\n}\n", "unknown-statement"),
        ("table inet a {\n\tset s {\n\t\telements = { 1.2.3.4 . }\n\t}\n}\n", "unknown-statement"),
        (
            "table inet a {\n\tset s {\n\t\telements = { 1.2.3.4 counter packets x bytes 0 }\n\t}\n}\n",
            "unknown-statement",
        ),
        ('table inet a {\n\tset s {\n\t\telements = { 1.2.3.4 comment "a"b" }\n\t}\n}\n', "unknown-statement"),
        ("table inet a {\n\tset s {\n\t\telements = { 1.2.3.4,\n", "truncated"),
        ("table inet a {\n}\ntable inet b {\n}\n", "second-table"),
        ("table inet a {\n}\ncreate table inet b\n", "second-table"),
        ("table inet a {\n}\nfrob\n", "unknown-statement"),
        ("table inet a {\n}", "truncated"),
        ("table inet a {\n", "truncated"),
        ("\n\n", "truncated"),
    ],
)
def test_the_reader_refuses_what_it_does_not_know(text: str, reason: str) -> None:
    """A line that is not understood is refused by the reader itself, with its number."""
    with pytest.raises(Refused) as refused:
        listing.parse(text)
    assert [refusal.reason for refusal in refused.value.refusals] == [reason]


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("10.0.0.1", (4, 0x0A000001, 0x0A000001)),
        ("10.0.0.0/8", (4, 0x0A000000, 0x0AFFFFFF)),
        ("10.0.0.1-10.0.0.9", (4, 0x0A000001, 0x0A000009)),
        ("0.0.0.0/0", (4, 0, 0xFFFFFFFF)),
        ("::/0", (6, 0, (1 << 128) - 1)),
        ("::1", (6, 1, 1)),
    ],
)
def test_ranges_are_read(text: str, span: "tuple[int, int, int]") -> None:
    """An address, a prefix and a range of addresses are read as what they span."""
    assert ranges.span(text) == span


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "10.0.0",
        "10.0.0.0/33",
        "10.0.0.0/x",
        "10.0.0.1/8",
        "10.0.0.0/08",
        "10.0.0.0/",
        "::/129",
        "10.0.0.9-10.0.0.1",
        "10.0.0.1-::1",
        "1-2",
    ],
)
def test_what_is_no_range_is_none(text: str) -> None:
    """Anything else is not a range."""
    assert ranges.span(text) is None


def test_coverage_counts_touching_spans() -> None:
    """Two halves cover a whole; a gap of one address does not."""
    halves = [ranges.span("10.0.0.0/9"), ranges.span("10.128.0.0/9")]
    assert ranges.covered("10.0.0.0/8", [half for half in halves if half])
    gap = [ranges.span("10.0.0.0-10.0.0.4"), ranges.span("10.0.0.6-10.0.0.255")]
    assert not ranges.covered("10.0.0.0/24", [half for half in gap if half])


def test_protocols_by_number_are_the_same_rules() -> None:
    """Without /etc/protocols nft lists protocols by number: the same table is clean, another protocol is not."""
    one = wall()
    text = ruleset.render(one)
    numbered = text.replace("{ tcp, udp }", "{ 6, 17 }").replace("l4proto tcp", "l4proto 6")
    numbered = numbered.replace("nexthdr tcp", "nexthdr 6").replace("nexthdr udp", "nexthdr 17")
    assert numbered != text
    assert audit.audit(numbered, one).to_json() == audit.audit(text, one).to_json()
    for wrong in (numbered.replace("{ 6, 17 }", "{ 6, 1 }"), numbered.replace("l4proto 6 reject", "l4proto 17 reject")):
        with pytest.raises(Refused, match="unknown-statement"):
            audit.audit(wrong, one)
