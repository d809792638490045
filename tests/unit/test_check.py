"""`card check` blames what is at fault: each part in its own words, and what depends on another as unknown."""

import os
from pathlib import Path

import pytest

from launcher.check import facts
from launcher.request import DEFAULT_IMAGE
from launcher.run import why

STACK = """fatal error: failed to reserve page summary memory

runtime stack:
runtime.throw({0x1d9b490?, 0x7f1677688008?})
gs     0x0
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the one directory in which programs are looked for."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def program(folder: Path, name: str, text: str) -> None:
    """Make a program of a shell's lines."""
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_a_podman_that_fails(programs: Path) -> None:
    """Its own word is told, once, and nothing is called missing for it."""
    program(programs, "podman", "echo 'Failed to obtain podman configuration: lstat /nope' >&2; exit 1")
    found = facts.podman()
    assert (found.good, found.hint) == (False, "")
    assert found.found == "fails: Failed to obtain podman configuration: lstat /nope"
    image = facts.image()
    assert (image.good, image.found, image.hint) == (False, "unknown without a podman that works", "")


@pytest.mark.parametrize(
    ("exists", "good", "found"),
    [
        ("exit 0", True, DEFAULT_IMAGE),
        ("exit 1", False, f"{DEFAULT_IMAGE} is not in podman's storage"),
        ("echo 'Error: no room' >&2; exit 125", False, "unknown: podman fails: no room"),
    ],
)
def test_an_image_is_there_or_not_or_unknown(programs: Path, exists: str, *, good: bool, found: str) -> None:
    """Only podman's word for it makes an image missing."""
    program(programs, "podman", f'[ "$1" = --version ] && echo podman version 5.4.2 && exit 0; {exists}')
    assert facts.podman().good
    assert (facts.image().good, facts.image().found) == (good, found)


def test_a_podman_that_is_missing_or_old(programs: Path) -> None:
    """What to install is said where that helps."""
    assert (facts.podman().found, facts.podman().hint) == ("missing", "install podman 5.0 or newer")
    program(programs, "podman", "echo podman version 3.4.1")
    assert (facts.podman().good, facts.podman().hint) == (False, "install podman 5.0 or newer")


def test_a_missing_directory_is_no_fault_of_podmans(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part is looked at from a directory that exists."""
    program(programs, "podman", "/bin/pwd")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert facts.podman().found == "/"


def test_the_cache_that_a_run_would_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there and ours, or can be made; nothing is made for the look."""
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.delenv("HOME")
    assert (facts.cache().good, "HOME" in facts.cache().found) == (False, True)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert facts.cache().good
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".cache/card-run").mkdir(parents=True, mode=0o755)
    assert "yours alone" in facts.cache().found
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file/below"))
    assert (facts.cache().good, "cannot be made" in facts.cache().found) == (False, True)
    assert facts.cache in facts.CHECKS


@pytest.mark.parametrize(
    ("said", "word"),
    [
        (STACK, "fatal error: failed to reserve page summary memory"),
        ("Error: first\nError: second", "first"),
        ("time=x level=warning\nError: it\n", "it"),
        ("one\ntwo\n", "two"),
        (f"exit status {os.EX_OK}, and no word why", "exit status 0, and no word why"),
        ("", "no word why"),
    ],
)
def test_the_word_that_counts(said: str, word: str) -> None:
    """Of all that podman says, what went wrong: not the last line of a stack."""
    assert why.word(said) == word
