"""Many cards: fifty at once and two hundred in sequence, some killed at random: every status right, nothing left.

Each worker looks at what of another run it could see: its table (by the ledger of its own denials), its files, its run.
The random choices are seeded; what they were is in the assertion's message.
"""

import json
import os
import random
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.bench.cards import card, run
from tests.bench.lives import RUNS, STATE, Live, begin, inventory, settled, until

TOGETHER, IN_A_ROW = 50, 200
SEED = 20261130
# Connects to an address of its own that no card may reach, looks for every other's directories, and ends with a status
# of its own.
WORKER = """
import json, os, socket, sys
number, folder, runs = int(sys.argv[1]), *sys.argv[3:]
s = socket.socket()
s.connect_ex((f"203.0.113.{100 + number % 100}", 443))
def there(path):
    try:
        return os.listdir(path) is not None
    except OSError:
        return False
others = [f"{folder}/{n}" for n in range(200) if n != number] + [f"{runs}/m{n}" for n in range(200)]
seen = {"files": sorted(os.listdir(".")), "others": [path for path in others if there(path)]}
with open("seen", "w") as file:
    json.dump(seen, file)
while sys.argv[2] == "wait":
    import time
    time.sleep(1)
sys.exit(number % 100)
"""


@pytest.fixture(autouse=True)
def nothing_left_at_all() -> Iterator[None]:
    """Compare everything there is after the test with what there was before."""
    assert card("--", "true").status == 0
    until((STATE / "swept").exists)
    before = inventory()
    yield
    try:
        assert settled(before, seconds=20) == {}
    except AssertionError:
        run(["card", "stop", "--all", "--time=0"])  # what failed here is not to fail in the tests behind
        raise


def seeded(number: int) -> random.Random:
    """Return choices that are the same in every run of this test."""
    return random.Random(SEED + number)  # noqa: S311 - nothing secret is drawn


def start(number: int, folder: Path, *, wait: bool) -> Live:
    """Start one card with a directory of its own."""
    own = folder / str(number)
    own.mkdir()
    words = ["python3", "-c", WORKER, str(number), "wait" if wait else "end", str(folder), str(RUNS)]
    # On a busy bench podman may take longer to pass a TERM on than a card has by default.
    return begin(
        f"m{number}", "-q", "--stop-timeout=60", f"--write={own}", f"--json={folder}/{number}.json", worker=words
    )


def finish(live: Live, number: int, folder: Path) -> None:
    """Judge a card that was left alone: its status, its files, its table, and its ledger alone."""
    status, _, err = live.end()
    assert status == number % 100, (number, status, err)
    seen = json.loads((folder / str(number) / "seen").read_text())
    assert seen == {"files": [], "others": []}, (number, seen)
    receipt = json.loads((folder / f"{number}.json").read_text())
    assert (receipt["run"], receipt["exit_status"], receipt["level"]) == (f"m{number}", number % 100, "full")
    assert receipt["stage2"]["table"] == receipt["hook"]["facts"]["table"] == f"nova_egress_m{number}"
    assert [row["address"] for row in receipt["ledger"]["denied"]] == [f"203.0.113.{100 + number % 100}"]


def kill(live: Live, number: int, folder: Path, chance: random.Random) -> None:
    """End a card by killing one of its processes while its worker runs, and judge its status."""
    until((folder / str(number) / "seen").exists, seconds=90)
    who = chance.choice(("launcher", "podman", "worker", "TERM"))
    if who == "TERM":
        live.process.send_signal(signal.SIGTERM)
    else:
        assert live.signal(who, signal.SIGKILL)
    status, _, err = live.end()
    assert status == {"launcher": -9, "podman": 137, "worker": 137, "TERM": 143}[who], (number, who, err)
    until(lambda: not live.path.exists(), seconds=60)


def test_fifty_together(tmp_path: Path) -> None:
    """Started at once, a fifth of them killed at random."""
    chance = seeded(0)
    killed = set(chance.sample(range(TOGETHER), TOGETHER // 5))
    chances = {number: seeded(number) for number in killed}
    started = {number: start(number, tmp_path, wait=number in killed) for number in range(TOGETHER)}
    with ThreadPoolExecutor(TOGETHER) as pool:
        ends = [
            pool.submit(kill, live, number, tmp_path, chances[number])
            if number in killed
            else pool.submit(finish, live, number, tmp_path)
            for number, live in started.items()
        ]
        problems = [error for end in ends if (error := end.exception())]
    assert problems == []


def test_two_hundred_in_a_row(tmp_path: Path) -> None:
    """One after the other, some killed at random: the two hundredth finds the bench as the first did."""
    chance = seeded(0)
    for number in range(IN_A_ROW):
        doomed = chance.random() < 0.1
        live = start(number, tmp_path, wait=doomed)
        kill(live, number, tmp_path, chance) if doomed else finish(live, number, tmp_path)
    assert os.listdir(RUNS) == []
