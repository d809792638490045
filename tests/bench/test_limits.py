"""Limits: asked for, read back from inside, claimed only then; what the bench cannot enforce is refused."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.bench.cards import card


def controllers() -> list[str]:
    """Return the cgroup controllers that podman has on this bench."""
    words = ["podman", "info", "--format={{range .Host.CgroupControllers}}{{.}} {{end}}"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()


def test_what_every_bench_can_enforce(tmp_path: Path) -> None:
    """Descriptors and the sizes of the card's own file systems hold, are read back, and are claimed."""
    words = ["--nofile", "64", "--tmp-size", "1m", "--shm-size", "2m"]
    script = (
        "ulimit -n; dd if=/dev/zero of=/tmp/x bs=64k count=64 2>/dev/null || echo full;"
        " dd if=/dev/zero of=/dev/shm/x bs=64k count=64 2>/dev/null || echo full"
    )
    done = card(*words, "--", "sh", "-c", script, receipt=tmp_path / "receipt.json")
    assert done.out == "64\nfull\nfull\n"
    assert done.receipt["guarantees"]["resource_limits"] is True
    inside = done.receipt["stage2"]
    assert (inside["limit_nofile"], inside["limit_tmp"], inside["limit_shm"]) == ("64", "1048576", "2097152")
    assert Path("/tmp/x").exists() is False


def test_a_size_between_pages(tmp_path: Path) -> None:
    """It is rounded down to whole pages, and what is in force is what the receipt says."""
    words = ["--tmp-size", "10000000", "--shm-size", "1001k", "--", "sh", "-c", "df -B1 --output=size /tmp /dev/shm"]
    done = card(*words, receipt=tmp_path / "receipt.json")
    assert done.status == 0, done.err
    page = os.sysconf("SC_PAGE_SIZE")
    sizes = [str(size // page * page) for size in (10_000_000, 1001 << 10)]
    assert done.out.split()[1:] == sizes
    assert [done.receipt["stage2"][name] for name in ("limit_tmp", "limit_shm")] == sizes
    assert done.receipt["guarantees"]["resource_limits"] is True


def test_no_limit_is_not_claimed(tmp_path: Path) -> None:
    """Without a limit nothing is claimed, and the control is not held by one."""
    done = card("--", "sh", "-c", "dd if=/dev/zero of=/tmp/x bs=64k count=64 2>&1", receipt=tmp_path / "receipt.json")
    assert done.status == 0
    assert done.receipt["guarantees"]["resource_limits"] is False


LIMITS = {"memory": ["--memory", "256m"], "cpu": ["--cpus", "1"], "pids": ["--pids", "64"]}


@pytest.mark.parametrize("controller", LIMITS)
def test_cgroup_limit(controller: str, tmp_path: Path) -> None:
    """A limit that needs a controller is enforced and read back where there is one, and refused where there is none."""
    done = card(*LIMITS[controller], "--", "echo", "ran", receipt=tmp_path / "receipt.json")
    if controller in controllers():
        assert (done.out, done.receipt["guarantees"]["resource_limits"]) == ("ran\n", True)
    else:
        assert (done.status, done.out, done.reasons) == (125, "", ["limit-unenforceable"])


def test_best_effort_runs_and_says_so() -> None:
    """With best effort a limit that cannot be enforced is left out, named, and not claimed."""
    done = card("--pids", "64", "--limits", "best-effort", "--", "echo", "ran")
    assert done.out == "ran\n"
    if "pids" not in controllers():
        assert "NOTE this bench cannot enforce --pids" in done.err


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("trap", ["", "trap '' TERM; "])
def test_timeout(trap: str) -> None:
    """A worker that is past its time is asked to end, and made to when it does not listen; the status is 124."""
    start = time.monotonic()
    done = card("--timeout", "1", "--", "sh", "-c", f"{trap}sleep 40 & wait; wait")
    assert done.status == 124
    assert "NOTE the worker was ended after --timeout 1 seconds" in done.err
    assert time.monotonic() - start < 25


def test_within_its_time() -> None:
    """A worker that ends in time keeps its own status."""
    assert card("--timeout", "20", "--", "sh", "-c", "exit 7").status == 7


def test_bad_limits_at_once() -> None:
    """Every flag that is no limit is named."""
    done = card("--memory", "lots", "--cpus", "-1", "--pids", "0", "--nofile", "x", "--timeout", "soon", "--", "true")
    assert (done.status, done.reasons) == (125, ["bad-limit"] * 5)
