"""`card probe` in the bench: every promise holds, and each way in which one does not is seen and told."""

import json
import os
import shutil
from pathlib import Path

import pytest

from launcher.probe.probes import PROBES
from tests.bench.cards import BUSYBOX, Run, run

CARD_RUN = '#!/bin/sh\nexec /usr/local/bin/card-run {extra} "$@"\n'
PODMAN = """\
#!/usr/bin/python3
import os, sys
argv = sys.argv
if "--hooks-dir" not in " ".join(argv):
    argv = {change}
os.execv("/usr/bin/podman", ["podman", *argv[1:]])
"""


def probe(*words: str, program: str = "card", **environment: str) -> Run:
    """Run `card probe`."""
    return run([program, "probe", *words], env={**os.environ, **environment})


def verdicts(done: Run) -> dict[str, str]:
    """Return the verdict of each promise, from the JSON on stdout."""
    return {f"{one['guarantee']}: {one['promise']}": one["verdict"] for one in json.loads(done.out)["probes"]}


def stand_in_card_run(folder: Path, extra: str) -> str:
    """Put a `card` in a folder, beside a card-run that is given more than was asked for; return its path."""
    (folder / "card").symlink_to(shutil.which("card") or "")
    (folder / "card-run").write_text(CARD_RUN.format(extra=extra))
    (folder / "card-run").chmod(0o755)
    return str(folder / "card")


def stand_in_podman(folder: Path, change: str) -> str:
    """Put a podman in a folder that changes the control's command alone; return its path."""
    (folder / "podman").write_text(PODMAN.format(change=change))
    (folder / "podman").chmod(0o755)
    return f"{folder}/podman"


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("user", ["keep-id", "root"])
def test_every_promise_holds(user: str) -> None:
    """In this world every attempt works without walls, and none in a card."""
    done = probe("--user", user)
    assert done.status == 0, done.out + done.err
    head, *rows = done.out.splitlines()
    assert head.split() == ["VERDICT", "GUARANTEE", "PROMISE", "CONTROL", "CARD"]
    assert [row.split()[:2] for row in rows] == [["held", one.guarantee] for one in PROBES]
    assert f"{len(PROBES)} of {len(PROBES)} promises held" in done.err
    assert "\x1b" not in done.out


@pytest.mark.parametrize("net", ["bridge", "slirp"])
def test_networks_without_ipv6(net: str) -> None:
    """What needs a route that the card has not does not apply, is said to, and fails nothing."""
    done = probe("--net", net, "--json")
    assert done.status == 0, done.err
    assert {promise for promise, verdict in verdicts(done).items() if verdict != "held"} == {
        "network_boundary: no metadata service by IPv6",
        "address_network: no unlisted address by IPv6",
    }


@pytest.mark.usefixtures("nothing_left")
def test_json() -> None:
    """For machines: an object with the run, its guarantees, and each outcome; nothing else on stdout."""
    done = probe("--json")
    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert (found["schema"], found["ok"]) == (1, True)
    assert found["guarantees"]["process_boundary"] is True
    assert found["guarantees"]["target_network"] is False
    assert len(found["probes"]) == len(PROBES)
    keys = {"promise", "guarantee", "attempt", "control", "result", "wanted", "verdict"}
    assert all(set(one) == keys for one in found["probes"])
    assert found["run"]


OPENED = {
    "a variable let in": (
        "--env CARD_PROBE_MARKER",
        {"env_scrub: no variable of the caller crosses"},
    ),
    "a checkout left open": (
        "--git-writable",
        {
            "write_boundary: no git hook is planted",
            "write_boundary: no git configuration is written",
            "write_boundary: the git directory is not swapped",
        },
    ),
    "no name server": (
        "--dns none",
        {
            "address_network: a listed name is answered",
            "network_boundary: no text is asked of the card's name server",
            "network_boundary: no unlisted name is asked of it",
            "network_boundary: no child of a listed name is asked of it",
        },
    ),
}


@pytest.mark.parametrize("name", OPENED)
def test_a_promise_that_is_not_kept(name: str, tmp_path: Path) -> None:
    """A card that was given another wall than was asked for is found out, in exactly what differs; exit 1."""
    extra, broken = OPENED[name]
    done = probe("--json", program=stand_in_card_run(tmp_path, extra))
    assert done.status == 1, done.err
    assert {promise for promise, verdict in verdicts(done).items() if verdict != "held"} == broken
    assert {verdict for verdict in verdicts(done).values() if verdict != "held"} == {"broken"}
    assert json.loads(done.out)["ok"] is False
    assert "report it" in done.err


def test_control_of_the_stand_ins(tmp_path: Path) -> None:
    """The same stand-ins that change nothing leave every promise held."""
    path = stand_in_podman(tmp_path, "argv")
    assert probe(program=stand_in_card_run(tmp_path, ""), CARD_RUN_PODMAN=path).status == 0


CLOSED_PORTS = '["--add-host=github.com:203.0.113.11" if "--add-host" in word else word for word in argv]'
NO_NETWORK = '["--network=none" if "--network" in word else word for word in argv]'


def test_no_control_shows_nothing(tmp_path: Path) -> None:
    """A port that is closed for everybody is no evidence of a wall: exit 1, unless told to pass over it."""
    path = stand_in_podman(tmp_path, CLOSED_PORTS)
    done = probe("--json", CARD_RUN_PODMAN=path)
    assert done.status == 1
    assert {promise for promise, verdict in verdicts(done).items() if verdict == "no-control"} == {
        "network_boundary: no other port of a listed address (80)",
        "network_boundary: no other port of a listed address (22)",
    }
    assert "--allow-no-control" in done.err
    assert probe("--allow-no-control", CARD_RUN_PODMAN=path).status == 0


def test_a_guarantee_without_any_control(tmp_path: Path) -> None:
    """Where nothing of a guarantee can be shown, passing over is no answer."""
    assert probe("--allow-no-control", CARD_RUN_PODMAN=stand_in_podman(tmp_path, NO_NETWORK)).status == 1


def test_an_image_without_python() -> None:
    """Nothing can be tried from inside: exit 2, naming the image and what to do."""
    done = probe("--image", BUSYBOX)
    assert (done.status, done.out) == (2, "")
    assert done.reasons == ["no-python"]
    assert "--image" in done.err


def test_an_image_that_is_missing() -> None:
    """card-run's own reason is told, and that nothing was probed."""
    done = probe("--image", "localhost/none/such:latest")
    assert (done.status, done.out) == (2, "")
    assert done.reasons == ["image-missing", "no-card"]


def test_a_control_that_does_not_start(tmp_path: Path) -> None:
    """Without a control there is no judgement: exit 2, podman's own words, and the command to try."""
    done = probe(CARD_RUN_PODMAN=stand_in_podman(tmp_path, '[argv[0], "--no-such-option"]'))
    assert (done.status, done.out) == (2, "")
    assert done.reasons == ["no-control"]
    assert "no-such-option" in done.err
    assert "hint: try: " in done.err


def test_odd_temporary_directory(tmp_path: Path) -> None:
    """The scratch directories may lie below any path."""
    odd = tmp_path / 'c,omma {x} "q"'
    odd.mkdir()
    assert probe(TMPDIR=str(odd)).status == 0
    assert list(odd.iterdir()) == []


def test_runtime_is_built_and_shown(tmp_path: Path) -> None:
    """`card runtime` builds where the cache is, shows what it built, and builds the same again."""
    settings = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    before = run(["card", "runtime", "show"], env=settings)
    assert (before.status, before.out, before.reasons) == (1, "", [])
    assert before.err.startswith("there is no runtime")
    built = run(["card", "runtime", "build"], env=settings)
    again = run(["card", "runtime", "build", "--force", "--json"], env=settings)
    assert "building the runtime" in again.err
    shown = json.loads(run(["card", "runtime", "show", "--json"], env=settings).out)
    assert (built.status, again.status) == (0, 0)
    assert built.out.strip() == json.loads(again.out)["path"] == shown["path"]
    assert shown["path"].endswith(shown["digest"])
    assert shown["files"]["card/filter.bpf"] % 8 == 0
    assert shown["size"] == sum(shown["files"].values())
    assert any(line.startswith("EPERM") and "mount" in line for line in shown["filter"])
    text = run(["card", "runtime", "show"], env=settings).out
    assert shown["path"] in text
    assert "filter.bpf" in text


def test_an_altered_runtime_is_not_shown(tmp_path: Path) -> None:
    """A file that changed since it was built makes `show` say no."""
    settings = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    place = Path(run(["card", "runtime", "build"], env=settings).out.strip())
    (place / "card/filter.bpf").write_bytes(b"")
    done = run(["card", "runtime", "show"], env=settings)
    assert (done.status, done.out) == (1, "")
    assert "it was altered" in done.err
