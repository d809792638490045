"""Limits are read strictly, told to podman, and expected back in the kernel's own units."""

import os

import pytest

from launcher import limits


@pytest.mark.parametrize(("text", "size"), [("1", 1), ("10b", 10), ("2k", 2048), ("512M", 512 << 20), ("1g", 1 << 30)])
def test_size(text: str, size: int) -> None:
    """Sizes are powers of 1024."""
    assert limits.size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5g", "1t", "k", "1kk", "1 g", "\u0661"])
def test_bad_size(text: str) -> None:
    """Anything else is refused, also digits of another script."""
    _, refusals = limits.decide({"memory": text})
    assert [refusal.reason for refusal in refusals] == ["bad-limit"]


def test_every_bad_limit_at_once() -> None:
    """Each refusal names its flag."""
    given: dict[str, str | None] = dict.fromkeys(limits.NAMES, "none")
    _, refusals = limits.decide(given)
    assert [refusal.text.split(" ")[0] for refusal in refusals] == [
        f"--{name.replace('_', '-')}" for name in limits.NAMES
    ]


def test_told_and_expected() -> None:
    """What podman is told is what stage 2 must read back."""
    bounds, refusals = limits.decide(
        {"memory": "64m", "cpus": "1.5", "pids": "50", "nofile": "256", "shm_size": "1m", "tmp_size": "2m"}
    )
    assert refusals == []
    assert bounds.controllers == ("memory", "cpu", "pids")
    assert bounds.podman() == ["--memory=67108864b", "--memory-swap=67108864b", "--cpus=1.5", "--pids-limit=50"]
    assert bounds.expected() == {
        "limit_memory": "67108864",
        "limit_cpus": "150000 100000",
        "limit_pids": "50",
        "limit_nofile": "256",
        "limit_shm": "1048576",
        "limit_tmp": "2097152",
    }


@pytest.mark.parametrize("name", ["memory", "shm_size", "tmp_size"])
def test_whole_pages(name: str) -> None:
    """The kernel counts in pages: a size is rounded down to them, and podman and stage 2 are told the same."""
    page = os.sysconf("SC_PAGE_SIZE")
    for text in (str(3 * page), str(3 * page + 1), f"{4 * page - 1}b"):
        bounds, refusals = limits.decide({name: text})
        assert (refusals, getattr(bounds, name)) == ([], 3 * page)
    assert list(bounds.expected().values()) == [str(3 * page)]


@pytest.mark.parametrize("name", ["memory", "shm_size", "tmp_size"])
def test_less_than_a_page_is_refused(name: str) -> None:
    """A tmpfs of size zero has no limit at all."""
    _, refusals = limits.decide({name: str(os.sysconf("SC_PAGE_SIZE") - 1)})
    assert [(one.reason, "less than a page" in one.text) for one in refusals] == [("bad-limit", True)]


def test_no_limit_is_none() -> None:
    """Without flags nothing is told and nothing expected."""
    bounds, _ = limits.decide(dict.fromkeys(limits.NAMES))
    assert (bounds.podman(), bounds.expected(), bounds.controllers) == ([], {}, ())


def test_a_timeout_that_no_timer_can_wait_for_is_refused() -> None:
    """A thread's timer overflows far above it, and a limit that is silently none is worse than a refusal."""
    assert [one.reason for one in limits.decide({"timeout": "99999999999999"})[1]] == ["bad-limit"]
    assert limits.decide({"timeout": "99999999"})[1] == []
