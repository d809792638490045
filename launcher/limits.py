"""Resource limits: what was asked for, as podman options, and as what stage 2 must read back from inside.

A limit is claimed only when it was read back (`resource_limits`). Sizes are bytes with an optional k, m or g, powers
of 1024, as podman's own (podman-run(1)). The kernel counts memory in pages, so a size is whole pages of what was asked.
"""

import os

from launcher.value import Value
from oci.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_MOST = 1_000_000_000  # 31 years, for a timeout: what a timer can wait for is bounded
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MICROSECONDS = 100_000  # the period of cpu.max (cgroup-v2, "CPU Interface Files")


class Limits(Value):
    """Limits: sizes in bytes, `cpus` in processors, times in seconds, the rest counted; None is no limit."""

    memory: int | None = None
    cpus: float | None = None
    pids: int | None = None
    timeout: float | None = None
    stop_timeout: float = 10
    shm_size: int | None = None
    nofile: int | None = None
    tmp_size: int | None = None

    @property
    def controllers(self) -> tuple[str, ...]:
        """Return the cgroup controllers that the limits need."""
        wanted = (("memory", self.memory), ("cpu", self.cpus), ("pids", self.pids))
        return tuple(name for name, value in wanted if value is not None)

    def podman(self) -> list[str]:
        """Return podman's options; descriptors are stage 2's to set, time is card-run's to keep."""
        words = [f"--memory={self.memory}b", f"--memory-swap={self.memory}b"] if self.memory is not None else []
        words += [f"--cpus={self.cpus}"] if self.cpus is not None else []
        words += [f"--pids-limit={self.pids}"] if self.pids is not None else []
        return words

    def expected(self) -> dict[str, str]:
        """Return what stage 2 must read back, by the name it reports it under."""
        quota = None if self.cpus is None else f"{int(self.cpus * _MICROSECONDS)} {_MICROSECONDS}"
        found = {"memory": self.memory, "cpus": quota, "pids": self.pids, "nofile": self.nofile}
        found |= {"shm": self.shm_size, "tmp": self.tmp_size}
        return {f"limit_{name}": str(value) for name, value in found.items() if value is not None}


def size(text: str) -> int:
    """Return a size in bytes; raises ValueError."""
    number = text.rstrip("bkmgBKMG")
    unit = text[len(number) :].lower()
    if not number.isascii() or not number.isdigit() or unit not in _UNITS or int(number) == 0:
        raise ValueError("takes a size: a number, and k, m or g")
    return int(number) * _UNITS[unit]


def _pages(text: str) -> int:
    """Return a size in bytes, rounded down to whole pages; raises ValueError, for less than one too.

    The kernel would round by itself: memory.max down, a tmpfs up, and one of no page at all is no limit (tmpfs(5)).
    """
    found = size(text) // _PAGE * _PAGE
    if not found:
        raise ValueError(f"is less than a page of memory, {_PAGE} bytes")
    return found


def count(text: str) -> int:
    """Return a number above zero; raises ValueError."""
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise ValueError("takes a number above zero")
    return int(text)


def amount(text: str) -> float:
    """Return a number above zero and below a thousand million that may have a fraction; raises ValueError."""
    if not text.isascii() or not text.replace(".", "", 1).isdigit() or not 0 < float(text) < _MOST:
        raise ValueError("takes a number above zero")
    return float(text)


def wait(text: str) -> float:
    """Return a number from zero to a thousand million that may have a fraction; raises ValueError."""
    return 0.0 if text in {"0", "0.0"} else amount(text)


_READERS = {
    "memory": _pages,
    "cpus": amount,
    "pids": count,
    "timeout": amount,
    "stop_timeout": wait,
    "shm_size": _pages,
    "nofile": count,
    "tmp_size": _pages,
}


NAMES = tuple(_READERS)


def decide(given: dict[str, str | None]) -> tuple[Limits, list[Refusal]]:
    """Return the limits that the flags ask for (by field name), and a refusal for each that is none."""
    values: dict[str, Any] = {}
    refusals: list[Refusal] = []
    for name, text in given.items():
        if text is None:
            continue
        try:
            values[name] = _READERS[name](text)
        except ValueError as error:
            refusals.append(Refusal("bad-limit", f"--{name.replace('_', '-')} {text!r} {error}"))
    return Limits(**values), refusals
