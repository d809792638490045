"""The nft program as the hooks call it: absolute, with our own environment, an empty signal mask, and whole output."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hooks import nft
from oci.refusal import Refused
from tests.kernel.wire import Namespace


@pytest.fixture
def space() -> Iterator[Namespace]:
    """Yield a namespace."""
    made = Namespace()
    yield made
    made.close()


def fake(monkeypatch: pytest.MonkeyPatch, path: Path, body: str) -> None:
    """Make nft a script."""
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    monkeypatch.setattr(nft, "PROGRAMS", (str(path),))


def test_a_table_is_loaded_listed_and_deleted(space: Namespace) -> None:
    """The three calls act on the namespace of the caller, and deleting twice is deleting once."""
    space.call(lambda: nft.load("table inet t {\n\tchain c {\n\t}\n}\n"))
    assert space.call(lambda: nft.list_table("inet", "t")) == "table inet t {\n\tchain c {\n\t}\n}\n"
    for _ in range(2):
        space.call(lambda: nft.delete_table("inet", "t"))
    with pytest.raises(Refused, match=r"nft-list.*No such file"):
        space.call(lambda: nft.list_table("inet", "t"))


def test_tables_are_listed(space: Namespace) -> None:
    """Every table of the namespace is named with its family; a new namespace has none."""
    assert space.call(nft.list_tables) == []
    space.call(lambda: nft.load("table inet a {\n}\ntable netdev b {\n}\n"))
    assert space.call(nft.list_tables) == [("inet", "a"), ("netdev", "b")]


def test_a_text_that_fails_is_not_applied_at_all(space: Namespace) -> None:
    """One bad line and nothing of the text is there; the reason is nft's own first line."""
    with pytest.raises(Refused, match=r"nft-load.*syntax error"):
        space.call(lambda: nft.load("table inet t {\n}\nfrobnicate\n"))
    with pytest.raises(Refused, match="nft-list"):
        space.call(lambda: nft.list_table("inet", "t"))


def test_the_environment_is_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the caller's environment reaches nft."""
    monkeypatch.setenv("SECRET", "s3cret")
    monkeypatch.setenv("LD_PRELOAD_X", "x")
    fake(monkeypatch, tmp_path / "nft", "env")
    listing = nft.list_table("inet", "t").splitlines()
    names = {line.split("=")[0] for line in listing} - {"PWD", "SHLVL", "_", "OLDPWD"}
    assert names == {"PATH", "LC_ALL"}
    assert "PATH=/usr/sbin:/usr/bin:/sbin:/bin" in listing


def test_no_signal_is_blocked_in_nft(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A caller with every signal blocked, as crun leaves its hooks, starts an nft that can be ended."""
    fake(monkeypatch, tmp_path / "nft", "grep SigBlk /proc/self/status")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        control = Path("/proc/self/status").read_text()
        found = nft.list_table("inet", "t")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert "SigBlk:\t0000000000000000" not in control
    assert found == "SigBlk:\t0000000000000000\n"


def test_its_arguments_and_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The text is its standard input, byte for byte, and no file of its own is opened for it."""
    fake(monkeypatch, tmp_path / "nft", f'printf "%s\\n" "$0" "$@" >{tmp_path}/argv; cat >{tmp_path}/input')
    nft.load("table inet t {\n}\n")
    assert (tmp_path / "argv").read_text() == f"{tmp_path}/nft\n-f\n-\n"
    assert (tmp_path / "input").read_text() == "table inet t {\n}\n"


def test_long_output_does_not_block(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Output and errors longer than any pipe's buffer are read whole."""
    fake(monkeypatch, tmp_path / "nft", "head -c 3000000 /dev/zero | tr '\\0' x; head -c 3000000 /dev/zero >&2")
    assert nft.list_table("inet", "t") == "x" * 3000000


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("echo; echo first >&2; echo second >&2; exit 1", "first"),
        ("exit 3", "no reason given"),
        ("kill -9 $$", "no reason given"),
    ],
)
def test_a_failure_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str, told: str) -> None:
    """Every way in which nft can fail is a refusal of the call that failed."""
    fake(monkeypatch, tmp_path / "nft", body)
    for call, reason in (
        (lambda: nft.load("x"), "nft-load"),
        (lambda: nft.list_table("inet", "t"), "nft-list"),
        (nft.list_tables, "nft-list"),
        (lambda: nft.delete_table("inet", "t"), "nft-delete"),
    ):
        with pytest.raises(Refused, match=told) as refused:
            call()
        assert refused.value.refusals[0].reason == reason


def test_without_nft(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No program at any of its places is a refusal that says where it was looked for; PATH is not searched."""
    (tmp_path / "nft").write_text("not executable")
    monkeypatch.setattr(nft, "PROGRAMS", (str(tmp_path / "nft"), str(tmp_path / "missing")))
    with pytest.raises(Refused, match=r"nft-missing.*missing.*nftables"):
        nft.load("x")


def test_no_descriptor_is_left(space: Namespace) -> None:
    """The anonymous files are closed after every call, failed ones included."""
    before = os.listdir("/proc/self/fd")
    space.call(lambda: nft.load("table inet t\n"))
    with pytest.raises(Refused):
        space.call(lambda: nft.load("x"))
    assert os.listdir("/proc/self/fd") == before
