"""A swap that is broken in one place, layer by layer: no worker starts, and the reason is told.

Each is a copy of card-run's own code with one change; the control is the same copy with none.
"""

import json
from pathlib import Path

import pytest

from tests.bench.cards import run
from tests.bench.lives import until
from tests.bench.pools import Tree, asked, cold, full, pool, status, taken

PROOF = "prestart.proof(wanted, namespace, facts)"
REPORT = "    prestart.report(directory, clock, facts=facts.to_json() | more)\n"
FLUSH = "    __import__('subprocess').run(['/usr/sbin/nft', 'flush', 'ruleset'], check=True)\n"
# What is broken: the file, the one place in it, what is put there, and the refusal's reason.
BROKEN = {
    "the table that denies all stays": (
        "hooks/prestart.py",
        "    nft.load(first + text, loader)\n",
        "    first or nft.load(text, loader)\n",
        "pin-missing",
    ),
    "nothing is swapped": ("launcher/pool/slot.py", "            self._at.swap()\n", "            pass\n", "no-proof"),
    "the table is of other pins": (
        "hooks/swap.py",
        '"surrogateescape")',
        '"surrogateescape").replace("203.0.113", "198.51.100")',
        "address-not-pinned",
    ),
    "the table goes after it was read": ("hooks/swap.py", REPORT, REPORT + FLUSH, "egress-open"),
    "the proof is of another taker": (
        "hooks/swap.py",
        PROOF,
        f"{PROOF}.replace(wanted.nonce.encode(), b'0' * 32)",
        "proof-mismatch",
    ),
    "the proof is of another plan": (
        "hooks/swap.py",
        PROOF,
        f"{PROOF}.replace(wanted.digest.encode(), b'0' * 64)",
        "hook-unproven",
    ),
    "the first proof is looked at": (
        "launcher/stage2/enter.py",
        "hello, report_fd)\n        proof = selftest.TAKEN\n",
        "hello, report_fd)\n",
        "proof-mismatch",
    ),
}


@pytest.mark.usefixtures("nothing_new")
@pytest.mark.parametrize("what", BROKEN)
def test_broken(what: str, tmp_path: Path, receipt: Path) -> None:
    """A card whose swap is not what it must be starts no worker, and says why."""
    tree = Tree(tmp_path)
    *change, reason = BROKEN[what]
    tree.change(*change)
    with pool(program=tree.card):
        done = asked("--", "echo", "ran", receipt=receipt, program=tree.card_run)
        assert status()["given"] == 1
    assert (done.status, done.out) == (125, "")
    assert reason in done.reasons


@pytest.mark.usefixtures("nothing_new")
def test_control_of_the_broken_and_code_that_changed(tmp_path: Path, receipt: Path) -> None:
    """The same copy with nothing broken runs; when its code changes the pool serves nobody, and starts itself anew."""
    tree = Tree(tmp_path)
    with pool(program=tree.card) as found:
        assert taken("--", "true", receipt=receipt, program=tree.card_run).status == 0
        full()
        tree.change("launcher/pool/daemon.py", "_AT_ONCE = 2", "_AT_ONCE = 3")
        done = asked("--", "true", receipt=receipt, program=tree.card_run)
        assert cold(done) == f"the pool's own code changed: {tree.path}/launcher/pool/daemon.py"
        until(lambda: (now := run(["card", "pool", "status", "--json"]).out) and json.loads(now)["pid"] != found["pid"])
        assert taken("--", "true", receipt=receipt, program=tree.card_run).status == 0


def test_another_copy_of_card_run_starts_cold(tmp_path: Path, receipt: Path) -> None:
    """A pool serves the card-run that it belongs to."""
    tree = Tree(tmp_path)
    with pool(program=tree.card):
        assert "code" in cold(asked("--", "true", receipt=receipt))
