"""Programs that a worker plants where PATH leads first: none of them is run on the bench by card-run or card."""

import os
import signal
from pathlib import Path

import pytest

from tests.bench import lives
from tests.bench.cards import card, is_old, run

pytestmark = pytest.mark.usefixtures("used_bench", "nothing_left")

# What card-run, podman and what they start look for by name alone.
NAMES = (
    *("podman", "newuidmap", "newgidmap", "pasta", "passt", "pasta.avx2", "slirp4netns", "crun", "runc", "conmon"),
    *("catatonit", "nft", "ip", "iptables", "netavark", "aardvark-dns", "fuse-overlayfs", "fusermount3", "nsenter"),
    *("cat", "sh", "bash", "python3", "git", "systemctl", "systemd-run", "getsubids", "mount", "modprobe"),
)
# Plants a program of each name, which says that it ran and is the real one beside.
PLANT = """\
for name in "$@"; do
    printf '#!/usr/bin/dash\\necho %s >> %s/ran\\n' $name "$PWD" > bin/$name
    printf 'PATH=/usr/sbin:/usr/bin exec %s "$@"\\n' $name >> bin/$name
    chmod 755 bin/$name
done
"""


@pytest.fixture
def ran(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of what was run, once a card planted it all in a folder that is then first on PATH."""
    (workspace / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{workspace}/bin:{os.environ['PATH']}")
    done = card("-q", "--net=none", f"--write={workspace}", "--", "sh", "-c", PLANT, "sh", *NAMES)
    assert (done.status, done.err) == (0, "")
    return workspace / "ran"


RUNS = {
    "a run": (),
    "no network": ("--net=none",),
    "the bridge": ("--net=bridge",),
    "a limit": ("--net=none", "--memory=100m", "--limits=best-effort"),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_planted_program_is_not_run_by_the_next_card(name: str, ran: Path) -> None:
    """Podman and its helpers are looked for where root alone can put them; a shell, the control, runs the planted."""
    run(["/usr/bin/podman", "system", "migrate"])  # the next podman makes its user namespace anew, by newuidmap
    ran.unlink(missing_ok=True)
    done = card(*RUNS[name], "--", "true")
    assert (done.status, ran.exists()) == (0, False), done.err
    assert f"NOTE passing over {ran.parent}/bin/podman, in a folder that others than root can change" in done.err
    assert run(["/usr/bin/dash", "-c", "nsenter --version"]).status == 0
    assert ran.read_text() == "nsenter\n"


def test_a_planted_program_is_not_run_by_card(ran: Path) -> None:
    """The verbs look where card-run does, while a card runs and after its card-run was killed."""
    live = lives.begin("planted", "-q", "--net=none" if is_old() else "--net=pasta", worker=["sleep", "300"])
    try:
        lives.until(lambda: live.find("worker"))
        verbs = (["ps"], ["exec", "planted", "true"], ["denials", "planted"], ["plan", "--", "true"], ["check"], ["gc"])
        for words in verbs:
            done = run(["card", *words])
            assert (done.status in {0, 1}, ran.exists()) == (True, False), (words, done.err)
        live.signal("launcher", signal.SIGKILL)
        live.end()
        lives.until(lambda: not live.path.exists())
        assert run(["card", "gc"]).status == 0
        assert not ran.exists()
        # The control: the folder is one that a name is looked for in.
        assert run(["podman", "ps", "--quiet"]).status == 0
        assert "podman" in ran.read_text().split()
    finally:
        run(["card", "stop", "--time=0", "planted"])


def test_the_podman_that_is_named(workspace: Path, ran: Path) -> None:
    """Who names the planted one gets it, and not where a worker could write it; what is no program is refused."""
    named = {**os.environ, "CARD_RUN_PODMAN": f"{workspace}/bin/podman"}
    done = card("-q", "--net=none", f"--write={workspace}", "--", "true", env=named)
    assert (done.status, done.reasons, ran.exists()) == (125, ["podman-writable"], False)
    for wrong in ("bin/podman", f"{workspace}/none", str(workspace)):
        done = card("--net=none", "--", "true", env={**named, "CARD_RUN_PODMAN": wrong})
        assert (done.status, done.reasons, ran.exists()) == (125, ["bad-podman"], False)
    assert (card("-q", "--net=none", "--", "true", env=named).err, "podman" in ran.read_text().split()) == ("", True)


@pytest.fixture
def bin_of_work(workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of the workspace that is first on PATH, on which podman is in a folder of the user's alone."""
    for place in (workspace / "bin", tmp_path / "own"):
        place.mkdir()
    (tmp_path / "own/podman").write_text('#!/bin/sh\nPATH=/usr/sbin:/usr/bin exec /usr/bin/podman "$@"\n')
    (tmp_path / "own/podman").chmod(0o755)
    monkeypatch.setenv("PATH", f"{workspace}/bin:{tmp_path}/own:/usr/local/bin")
    return workspace / "bin"


def test_a_podman_that_the_worker_made_is_not_the_next_one(bin_of_work: Path) -> None:
    """Where podman is in no folder of root's, one that a worker put before it is taken away."""
    ran = bin_of_work.parent.parent / "ran"
    script = f'#!/bin/sh\n/usr/bin/touch {ran}\nPATH=/usr/sbin:/usr/bin exec /usr/bin/podman "$@"\n'
    plant = ("sh", "-c", 'printf %s "$1" > bin/podman; chmod 755 bin/podman', "sh", script)
    words = ("-q", "--net=none", f"--write={bin_of_work.parent}")
    done = card(*words, "--", *plant)
    assert f"NOTE {bin_of_work}/podman was made by the worker, and would be run in podman's place: removed" in done.err
    assert (card("-q", "--net=none", "--", "true").status, ran.exists()) == (0, False)
    # One that came some other way is a refusal where the worker could write it; elsewhere, the control, PATH decides.
    (bin_of_work / "podman").write_text(script)
    (bin_of_work / "podman").chmod(0o755)
    done = card(*words, "--", "true")
    assert (done.status, done.reasons, ran.exists()) == (125, ["podman-writable"], False)
    assert (card("-q", "--net=none", "--", "true").status, ran.exists()) == (0, True)


def test_what_is_no_program_is_no_podman(bin_of_work: Path) -> None:
    """A directory of that name is passed over, as a shell passes over it, and stays."""
    (bin_of_work / "podman").mkdir()
    done = card("-q", "--net=none", f"--write={bin_of_work.parent}", "--", "true")
    assert (done.status, done.err, (bin_of_work / "podman").is_dir()) == (0, "", True)
