"""The benchmark's own measuring: when the clock stops, what is waited for, and what the two sides of a pair are."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from infra.bench import speed_memory, speed_sides, speed_tree

CARD = [
    "/usr/bin/podman",
    "--hooks-dir=/h",
    "run",
    "--init",
    "--preserve-fds=2",
    "--name=card-c0",
    "--cidfile=/run/u/card-run/c0/cid",
    "--security-opt=seccomp=/c/runtime-1/seccomp.json",
    "--annotation=org.card-run.run=c0",
    "--mount=type=bind,source=/run/u/card-run/c0/card,destination=/run/card",
    '--entrypoint=["/run/card-runtime/bin/python3"]',
    "image",
    "c0",
]


def test_the_clock_stops_when_the_run_has_ended(tmp_path: Path) -> None:
    """And not when what it left behind lets go of its output."""
    left = tmp_path / "left"
    speed_tree.timed(["/bin/sh", "-c", f"sleep 60 & echo $! >{left}"])
    os.kill(int(left.read_text()), signal.SIGTERM)  # raises if it was waited for


def test_what_a_run_leaves_is_waited_for(tmp_path: Path) -> None:
    """Before the next run starts, alone or in a crowd: in a process of its own, since it waits for every child."""
    left = tmp_path / "left"
    script = """
import os, sys
from infra.bench import speed_tree
words = ["/bin/sh", "-c", f"sleep 0.2 & echo $! >>{sys.argv[1]}"]
with speed_tree.whole_trees():
    for measure in (lambda: speed_tree.run(words), lambda: speed_tree.together(words, 3)):
        measure()
        for pid in open(sys.argv[1]):
            assert not os.path.exists(f"/proc/{int(pid)}"), pid
"""
    words = [sys.executable, "-c", script, str(left)]
    subprocess.run(words, check=True, timeout=60, cwd=Path(__file__).parents[2])
    assert len(left.read_text().split()) == 4


def test_a_run_that_fails_ends_the_benchmark() -> None:
    """With what it said; one of a crowd does too."""
    with pytest.raises(SystemExit, match="ended with 3: no such card"):
        speed_tree.timed(["/bin/sh", "-c", "echo no such card >&2; exit 3"])
    with pytest.raises(SystemExit, match="2 of 2 runs failed"):
        speed_tree.together(["/bin/false"], 2)


def test_plain_podman_is_the_card_without_what_is_card_run_s() -> None:
    """Every flag stays but those that carry hooks and stage 2, and its command takes stage 2's place."""
    assert speed_sides.plain(CARD, "/run/u/card-run/c0", "/tmp/s", ("sh", "-c", "read x")) == [
        "/usr/bin/podman",
        "run",
        "--init",
        "--security-opt=seccomp=/c/runtime-1/seccomp.json",
        "--mount=type=bind,source=/tmp/s/card,destination=/run/card",
        '--entrypoint=["sh", "-c", "read x"]',
        "image",
    ]


def test_an_environment_alike_is_card_run_s_podman_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `launcher.run.perform` makes it: a caller's own GOGC counts there too."""
    monkeypatch.delenv("GOGC", raising=False)
    found = speed_sides.environment(CARD)
    assert (found["GOGC"], found["CONTAINERS_CONF_OVERRIDE"]) == ("400", "/c/runtime-1/containers.conf")
    assert found["PATH"] == os.environ["PATH"]
    monkeypatch.setenv("GOGC", "50")
    assert speed_sides.environment(CARD)["GOGC"] == "50"


def test_memory_is_of_what_was_not_there_before(tmp_path: Path) -> None:
    """By the name of the process; what was there counts nothing."""
    before = {int(name) for name in os.listdir("/proc") if name.isdigit()}
    shell = shutil.copy("/bin/sh", tmp_path / "standing-there")
    words = [shell, "-c", "echo up; read line"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        found = speed_memory.sizes(before), speed_memory.sizes(before | {process.pid})
        process.communicate(b"\n")
    assert found[0]["standing-there"] > 0
    assert "standing-there" not in found[1]
