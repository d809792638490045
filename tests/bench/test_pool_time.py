"""A pool and time: what is read when a card is taken, what makes cards stale, and what a pool says that has none."""

import subprocess
from pathlib import Path

import pytest

from tests.bench.cards import BUSYBOX, card, run
from tests.bench.lives import until
from tests.bench.pools import asked, cold, full, pool, status, taken
from tests.bench.test_walls import MODEL

DEAD_RESOLVER = "192.0.2.254"


def test_names_are_resolved_when_a_card_is_taken() -> None:
    """A pool whose resolver is dead has cards, which resolve nothing; a run that takes one is refused its names."""
    dead = ("--resolver", DEAD_RESOLVER)
    with pool(*dead):
        done = card(*dead, "--resolve-timeout", "0.2", "--", "echo", "ran")
        assert status()["given"] == 1
    assert (done.status, done.out) == (125, "")
    assert set(done.reasons) == {"name-unresolved"}


def test_the_policy_file_is_read_when_a_card_is_taken(tmp_path: Path, receipt: Path) -> None:
    """A name that was added meanwhile can be asked for, and one that was removed is refused."""
    policy = tmp_path / "egress.txt"
    base = "github.com\napi.github.com\nobjects.githubusercontent.com\n"
    policy.write_text(base)
    words = ("--egress", str(policy), "--model-host", MODEL, "--", "getent", "hosts", MODEL)
    with pool("--egress", str(policy)):
        assert card(*words).reasons == ["unknown-name"]
        policy.write_text(f"{base}{MODEL}\n")
        assert MODEL in taken(*words, receipt=receipt).out
        policy.write_text(base)
        assert card(*words).reasons == ["unknown-name"]


@pytest.mark.usefixtures("nothing_new")
def test_a_root_that_was_swapped(tmp_path: Path, receipt: Path) -> None:
    """The worker sees what has the name now, never what had it before; the pool's cards are made anew."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "file").write_text("old")
    words = ("-q", "--write", str(work), "--", "cat", "file")
    with pool("--write", str(work)) as found:
        work.rename(tmp_path / "away")
        work.mkdir()
        (work / "file").write_text("new")
        done = asked(*words, receipt=receipt)
        assert (done.out, cold(done)) == ("new", "the pool's card differs: roots")
        until(lambda: (now := status())["ready"] and now["ready"] != found["ready"])
        assert taken(*words, receipt=receipt).out == "new"


def test_a_checkout_that_appeared(tmp_path: Path, receipt: Path) -> None:
    """What is protected in a writable root is decided when the card is taken: a checkout made meanwhile starts cold."""
    with pool("--write", str(tmp_path)):
        subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
        done = asked("-q", "--write", str(tmp_path), "--", "sh", "-c", "echo x >> .git/config", receipt=receipt)
    assert cold(done).startswith("the pool's card differs: --mount")
    assert done.status != 0


def test_a_card_file_that_changed(tmp_path: Path, receipt: Path) -> None:
    """A pool can be of a card file, named as card-run names it, and follows what is in it."""
    (tmp_path / "card.toml").write_text('image = "localhost/card-run/busybox:latest"\n')
    words = ("--card=card.toml", "--", "true")
    with pool("--card=card.toml", cwd=tmp_path):
        assert taken(*words, receipt=receipt, cwd=tmp_path).receipt["image"] == BUSYBOX
        before = full()["ready"]
        (tmp_path / "card.toml").write_text('image = "localhost/card-run/busybox:latest"\n[limits]\ntmp_size = "1m"\n')
        assert cold(asked(*words, receipt=receipt, cwd=tmp_path)) == "the pool's card differs: --mount"
        until(lambda: status()["ready"] not in ([], before))
        assert taken(*words, receipt=receipt, cwd=tmp_path).status == 0


def test_an_image_that_changed(tmp_path: Path, receipt: Path) -> None:
    """A name that means another image now is another card: the run starts cold, and the pool's next cards are of it."""
    name = "localhost/card-run/pooled:latest"

    def build(number: int) -> None:
        (tmp_path / "Containerfile").write_text(f"FROM {BUSYBOX}\nENV NUMBER={number}\n")
        done = run(["podman", "build", "--quiet", "--pull=never", f"--tag={name}", str(tmp_path)])
        assert done.status == 0, done.err

    words = ("-q", f"--image={name}", "--", "sh", "-c", "echo $NUMBER")
    build(1)
    with pool(f"--image={name}"):
        assert taken(*words, receipt=receipt).out == "1\n"
        full()
        build(2)
        done = asked(*words, receipt=receipt)
        assert cold(done).startswith("the bench changed: ")
        assert done.out == "2\n"
        assert taken(*words, receipt=receipt).out == "2\n"


def test_cards_that_cannot_be_made_any_more(tmp_path: Path) -> None:
    """The pool says why and how long it waits, runs start cold, and it recovers by itself."""
    root = tmp_path / "root"
    root.mkdir()
    with pool("--read", str(root)):
        root.rename(tmp_path / "away")
        assert card("--", "true").status == 0  # another card: the pool looks at its own
        until(lambda: status()["refusals"])
        found, told = status(), run(["card", "pool", "status"])
        (tmp_path / "away").rename(root)
        assert [one["reason"] for one in found["refusals"]] == ["path-missing"]
        assert found["failures"] >= 1
        assert found["ready"] == []
        assert "NOTE no card can be made: reason=path-missing" in told.err
        assert "0 of 1" in told.out
        assert full()["refusals"] == []
