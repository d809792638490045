"""What else a card costs: its hook and stage 2 alone, and many names.

Each is measured on real cards. Run inside the bench, by `speed.py`.
"""

import json
import os
import platform
import socket
import statistics
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from infra.bench import speed_tree
from infra.bench.speed_sides import PATIENT, plain_argv, runtime_of
from infra.bench.speed_tree import spread

NAMES = (1, 10, 100, 1000)
# No bar is set for these, and a thousand take a second and a half.
NAMES_ROUNDS = 7
ADDRESSES_EACH = 5
BASE = ("github.com", "api.github.com", "objects.githubusercontent.com")
# Hooks of the site's that say when they ran: two before card-run's, and one after it.
_STAMPS = ("00-a", "00-b", "90-c")
_RESOLVER = "127.0.0.77"


def machine() -> dict[str, Any]:
    """Return what the numbers depend on and a reader of them needs."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    kib = int(Path("/proc/meminfo").read_text(encoding="utf-8").split()[1])
    podman = subprocess.run(
        ["/usr/bin/podman", "--version"], check=True, capture_output=True, text=True
    ).stdout.split()[-1]
    return {
        "processor": model,
        "processors": os.cpu_count(),
        "memory_gib": round(kib / (1 << 20)),
        "kernel": platform.release().partition("-")[0],
        "podman": podman,
        "python": platform.python_version(),
    }


def alone(folder: str, rounds: int) -> dict[str, Any]:
    """Return the milliseconds of the whole hook as the runtime sees it, and of stage 2: its start and its work.

    The hook's time is between two hooks of the site's around it, less what two of those take in a row. Stage 2's start
    is that of its interpreter and its imports on the bench, from where it lies.
    """
    stamps = Path(folder) / "stamps"
    receipt = Path(folder) / "receipt.json"
    card = [*PATIENT, f"--json={receipt}", "--", "true"]
    hooks: list[float] = []
    works: list[float] = []
    with _site_hooks(stamps):
        for _ in range(rounds):
            stamps.write_text("", encoding="ascii")
            speed_tree.timed(card)
            first, second, third = (int(line) / 1e6 for line in stamps.read_text(encoding="ascii").split())
            hooks.append((third - second) - (second - first))
            laps = json.loads(receipt.read_text(encoding="utf-8"))["stage2"]["times_us"].split(",")
            works.append(sum(int(lap.partition(":")[2]) for lap in laps) / 1000)
    runtime = runtime_of(plain_argv(folder))
    starts = [_stage2_start(runtime) for _ in range(rounds)]
    both = [start + work for start, work in zip(starts, works, strict=True)]
    measures = {"hook_ms": hooks, "stage2_ms": both, "stage2_start_ms": starts, "stage2_work_ms": works}
    return {"rounds": rounds, **{name: spread(values) for name, values in measures.items()}}


@contextmanager
def _site_hooks(stamps: Path) -> Generator[None]:
    base = Path.home() / ".config/containers"
    folder, conf = base / "stamp-hooks.d", base / "containers.conf.d/stamp.conf"
    for made in (folder, conf.parent):
        made.mkdir(parents=True, exist_ok=True)
    for name in _STAMPS:
        words = ["sh", "-c", f"exec date +%s%N >>{stamps}"]
        hook = {"path": "/bin/sh", "args": words, "env": ["PATH=/usr/bin:/bin"], "timeout": 10}
        content = {"version": "1.0.0", "hook": hook, "when": {"always": True}, "stages": ["createRuntime"]}
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="ascii")
    conf.write_text(f'[engine]\nhooks_dir = ["{folder}"]\n', encoding="ascii")
    try:
        yield
    finally:
        conf.unlink()
        for name in _STAMPS:
            (folder / f"{name}.json").unlink()


def _stage2_start(runtime: str) -> float:
    """Return the milliseconds that stage 2's interpreter takes to start and to import stage 2."""
    card = f"{runtime}/card"
    words = [f"{card}/bin/ld.so", "--inhibit-cache", "--library-path", f"{card}/lib", f"{card}/bin/python3"]
    return speed_tree.timed([*words, "-I", "-S", "-B", "-X", "utf8=1", "-c", "import launcher.stage2.enter"], {})


def names(folder: str, rounds: int) -> dict[str, Any]:
    """Return, by the number of names, the whole run's and the hook's milliseconds; 1,000 have 5,000 addresses."""
    receipt, policy = Path(folder) / "receipt.json", Path(folder) / "egress.txt"
    found: dict[str, Any] = {}
    with _nameserver():
        for count in NAMES:
            wanted = [f"n{number}.example.com" for number in range(count)]
            policy.write_text("\n".join((*BASE, *wanted)) + "\n", encoding="ascii")
            words = [*PATIENT, f"--resolver={_RESOLVER}", f"--egress={policy}", f"--json={receipt}"]
            words += [*(f"--allow-host={name}" for name in wanted), "--", "true"]
            rows: list[tuple[float, float, float]] = []
            for _ in range(min(rounds, NAMES_ROUNDS)):
                took = speed_tree.timed(words)
                content = json.loads(receipt.read_text(encoding="utf-8"))
                rows.append((took, content["hook"]["times_ms"]["total"], content["times_ms"]["plan_written"]))
            middle = [round(statistics.median(column), 1) for column in zip(*rows, strict=True)]
            found[str(count)] = dict(zip(("run_ms", "hook_ms", "planned_ms"), middle, strict=True))
    return found


@contextmanager
def _nameserver() -> Generator[None]:
    """Answer every question on a loopback address: five IPv4 addresses for any name, and no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((_RESOLVER, 53))
        threading.Thread(target=_answer, args=(server,), daemon=True).start()
        yield


def _answer(server: socket.socket) -> None:
    while True:
        try:
            query, client = server.recvfrom(4096)
        except OSError:
            return
        end = query.index(b"\0", 12) + 5
        kind = query[end - 4 : end - 2]
        addresses = (
            [_address(query[12 : end - 5], number) for number in range(ADDRESSES_EACH)] if kind == b"\0\1" else []
        )
        header = query[:2] + b"\x81\x80\0\1" + len(addresses).to_bytes(2, "big") + bytes(4)
        records = b"".join(b"\xc0\x0c\0\1\0\1" + (60).to_bytes(4, "big") + b"\0\4" + address for address in addresses)
        server.sendto(header + query[12:end] + records, client)


def _address(name: bytes, number: int) -> bytes:
    """Return an address that is public and this name's own: 45.0.0.0/8 has room for them all."""
    digits = "".join(chr(byte) for byte in name if chr(byte).isdigit()) or "1200"
    place = int(digits) * ADDRESSES_EACH + number
    return bytes((45, 33, place >> 8 & 255, place & 255))
