"""What else a card costs: its hook and stage 2 alone, the memory of one that runs, and many names.

Each is measured on real cards. Run inside the bench, by `speed.py`.
"""

import json
import os
import platform
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROUNDS = 15
RUNNING = 8
NAMES = {1: 7, 10: 7, 100: 7, 1000: 5}
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


def alone(card: list[str], scratch: str) -> dict[str, Any]:
    """Return the milliseconds of the whole hook as the runtime sees it, and of stage 2: its start and its work.

    The hook's time is between two hooks of the site's around it, less what two of those take in a row.
    """
    stamps = Path(scratch) / "stamps"
    receipt = Path(scratch) / "receipt.json"
    hooks: list[float] = []
    works: list[float] = []
    with _site_hooks(stamps):
        for _ in range(ROUNDS):
            stamps.write_text("", encoding="ascii")
            subprocess.run([*card, f"--json={receipt}", "--", "true"], check=True, capture_output=True)
            first, second, third = (int(line) / 1e6 for line in stamps.read_text(encoding="ascii").split())
            hooks.append((third - second) - (second - first))
            laps = json.loads(receipt.read_text(encoding="utf-8"))["stage2"]["times_us"].split(",")
            works.append(sum(int(lap.partition(":")[2]) for lap in laps) / 1000)
    starts = [_stage2_start() for _ in range(ROUNDS)]
    start, work = statistics.median(starts), statistics.median(works)
    told = {
        "hook_ms": statistics.median(hooks),
        "stage2_ms": start + work,
        "stage2_start_ms": start,
        "stage2_work_ms": work,
    }
    return {name: round(value, 2) for name, value in told.items()}


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


def _stage2_start() -> float:
    """Return the milliseconds that stage 2's interpreter takes to start and to import stage 2."""
    folder = next(path for path in (Path.home() / ".cache/card-run").iterdir() if path.name.startswith("runtime-"))
    card = folder / "card"
    words = [f"{card}/bin/ld.so", "--inhibit-cache", "--library-path", f"{card}/lib", f"{card}/bin/python3"]
    words += ["-I", "-S", "-B", "-X", "utf8=1", "-c", "import launcher.stage2.enter"]
    began = time.monotonic()
    subprocess.run(words, check=True, env={})
    return (time.monotonic() - began) * 1000


def memory(card: list[str]) -> dict[str, Any]:
    """Return the MiB that each running card keeps on the bench beyond podman's own: card-run and its keeper.

    Shared pages count by their share (Pss in proc_pid_smaps(5)), with as many cards running as RUNNING says.
    """
    words = [*card, "-i", "--", "sh", "-c", "echo up; read line"]
    running = [subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(RUNNING)]
    try:
        for process in running:
            if process.stdout is None or process.stdout.readline() != b"up\n":
                raise SystemExit("a card did not start")
        found: dict[str, list[float]] = {name: [] for name in ("card-run", "card-keeper")}
        for path in Path("/proc").glob("[0-9]*"):
            name = (path / "comm").read_text(encoding="utf-8").strip()
            if name in found:
                found[name].append(_pss(path))
    finally:
        for process in running:
            process.communicate(b"\n")
    each = {name: round(sum(sizes) / RUNNING, 2) for name, sizes in found.items()}
    return {"cards": RUNNING, "mib_per_card": round(sum(each.values()), 2), "mib": each}


def _pss(path: Path) -> float:
    rollup = (path / "smaps_rollup").read_text(encoding="ascii")
    return int(next(line.split()[1] for line in rollup.splitlines() if line.startswith("Pss:"))) / 1024


def names(card: list[str], scratch: str) -> dict[str, Any]:
    """Return, by the number of names, the whole run's and the hook's milliseconds; 1,000 have 5,000 addresses."""
    receipt, policy = Path(scratch) / "receipt.json", Path(scratch) / "egress.txt"
    found: dict[str, Any] = {}
    with _nameserver():
        for count, rounds in NAMES.items():
            wanted = [f"n{number}.example.com" for number in range(count)]
            policy.write_text("\n".join((*BASE, *wanted)) + "\n", encoding="ascii")
            words = [*card, f"--resolver={_RESOLVER}", f"--egress={policy}", f"--json={receipt}"]
            words += [f"--allow-host={name}" for name in wanted]
            rows: list[tuple[float, float, float]] = []
            for _ in range(rounds):
                began = time.monotonic()
                subprocess.run([*words, "--", "true"], check=True, capture_output=True)
                took = (time.monotonic() - began) * 1000
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
