"""The bench's resolv.conf is read as it is in the wild, and there is never a public default."""

from pathlib import Path

import pytest

from launcher.egress import nameservers


def read(tmp_path: Path, text: bytes) -> tuple[nameservers.Nameservers, list[str]]:
    """Return what a file of these bytes gives, and the refusals' reasons."""
    path = tmp_path / "resolv.conf"
    path.write_bytes(text)
    found, refusals = nameservers.from_file(str(path))
    return found, [refusal.reason for refusal in refusals]


def test_in_the_wild(tmp_path: Path) -> None:
    """Comments, CRLF, tabs and a v6 address with a zone are read; a fourth server and junk are noted."""
    text = (
        b"# made by a tool\r\n; old style\nsearch example.org\nnameserver\t192.0.2.53 # first\r\n"
        b"nameserver fe80::1%eth0\nnameserver dns.example.org\nnameserver 2001:db8::53\nnameserver 198.51.100.53\n"
        b"options edns0\nNAMESERVER 10.0.0.1\n"
    )
    found, reasons = read(tmp_path, text)
    assert reasons == []
    assert found.servers == ("192.0.2.53", "fe80::1%eth0", "2001:db8::53")
    assert ["dns.example.org" in note or "198.51.100.53" in note for note in found.notes] == [True, True]


@pytest.mark.parametrize("text", [b"", b"search x.org\n", b"nameserver nonsense\n", b"\xff\xfe\n"])
def test_none_left_is_refused(tmp_path: Path, text: bytes) -> None:
    """With no usable server the run is refused, not sent to a public one."""
    found, reasons = read(tmp_path, text)
    assert (found.servers, reasons) == ((), ["no-resolver"])


def test_dangling_link(tmp_path: Path) -> None:
    """A link to nowhere, as a stopped resolver leaves it, is refused with that reason."""
    (tmp_path / "resolv.conf").symlink_to("gone")
    found, refusals = nameservers.from_file(str(tmp_path / "resolv.conf"))
    assert found.servers == ()
    assert "No such file" in refusals[0].text


@pytest.mark.parametrize("text", ["dns.example.org", "192.0.2.53:53", "", "192.0.2"])
def test_flag_takes_an_address(text: str) -> None:
    """`--resolver` takes an address and nothing else."""
    found, refusals = nameservers.from_flag(text)
    assert (found.servers, [one.reason for one in refusals]) == ((), ["bad-resolver"])


def test_flag_wins() -> None:
    """A good `--resolver` is the one server."""
    assert nameservers.from_flag("2001:DB8::53")[0].servers == ("2001:db8::53",)
