"""Grants on real cards: what is gated stays closed, and a grant opens exactly its one thing, for one run, once."""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.bench.cards import IMAGE, Run, attempts_in_card, card, run

PATH, TREE = "filesystem.path.write.v1", "filesystem.tree.write.v1"
HOST, START = "network.proxy-target.v1", "command.start.v1"
pytestmark = pytest.mark.usefixtures("nothing_left")
WRITER = ("sh", "-c", "for name in file src/new src2/new; do echo ran >>$name && echo $name; done; true")
GITHUB, API, OBJECTS = "203.0.113.10", "203.0.113.11", "203.0.113.12"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a place with a workspace, a card that gates writing, the network and the start in turn, and own state."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("src", "src2"):
        (tmp_path / "w" / name).mkdir(parents=True)
    (tmp_path / "w/file").touch()
    write_card(tmp_path)
    return tmp_path


def write_card(place: Path, **levels: str) -> None:
    """Write the card file; levels are the profile's, `gated` where they are not given."""
    stated = {"workspace_read": "allow", "workspace_write": "gated", "network": "gated", "command": "allow", **levels}
    lines = [
        f"workspace = {json.dumps(str(place / 'w'))}",
        *(f"{name} = {json.dumps(value)}" for name, value in stated.items()),
    ]
    (place / "card.toml").write_text("[access]\n" + "\n".join(lines) + "\n")


def issue(
    place: Path, run_id: str, cls: str, target: Path | str, *words: str, command: tuple[str, ...] = WRITER
) -> Run:
    """Issue a grant into the file `token`."""
    (place / "token").unlink(missing_ok=True)
    own = ["card", "grant", "issue", "--class", cls, "--target", str(target), "--out", str(place / "token")]
    return run([*own, *described(place, run_id), *words, "--", *command])


def described(place: Path, run_id: str) -> list[str]:
    """Return the options that both the grant and the run are described by."""
    return ["--card", str(place / "card.toml"), "--run", run_id]


def start(place: Path, run_id: str, *words: str, command: tuple[str, ...] = WRITER, receipt: Path | None = None) -> Run:
    """Start a card with the token."""
    return card("-q", *described(place, run_id), *words, "--grant", f"@{place}/token", "--", *command, receipt=receipt)


def test_gated_write(place: Path) -> None:
    """Without a grant the write fails inside; with one it works, there and nowhere else, and a second run is replay."""
    closed = card(*described(place, "g1"), "--", *WRITER)
    assert (closed.status, closed.out) == (0, "")
    assert closed.err.count("Read-only file system") == 3
    assert issue(place, "g1", PATH, place / "w/file").status == 0
    opened = start(place, "g1", receipt=place / "receipt.json")
    assert (opened.status, opened.out) == (0, "file\n")
    assert (place / "w/file").read_text() == "ran\n"
    (grant,) = opened.receipt["access"]["grants"]
    assert (grant["cls"], grant["target"]) == (PATH, str(place / "w/file"))
    assert {"access": "write", "path": str(place / "w/file")} in opened.receipt["filesystem"]
    again = start(place, "g1")
    assert (again.status, again.reasons, again.out) == (125, ["replay"], "")
    assert (place / "w/file").read_text() == "ran\n"


def test_a_tree_and_no_sibling(place: Path) -> None:
    """A tree grant reaches what is below its directory, and not what only begins with its name."""
    assert issue(place, "g2", TREE, place / "w/src").status == 0
    assert start(place, "g2").out == "src/new\n"
    assert issue(place, "g2", TREE, place / "w").status == 0
    assert start(place, "g2").out == "file\nsrc/new\nsrc2/new\n"


@pytest.mark.parametrize(
    ("cls", "target"), [("filesystem.path.read.v1", "data/one"), ("filesystem.tree.read.v1", "data")]
)
def test_reading_elsewhere(place: Path, cls: str, target: str) -> None:
    """Of a bench whose reading is gated, a grant shows one file or one tree, read-only, and nothing beside it."""
    for name in ("data", "data2"):
        (place / name).mkdir()
        (place / name / "one").write_text("1")
        (place / name / "two").write_text("2")
    write_card(place, host_read="gated")
    files = " ".join(str(place / name) for name in ("data/one", "data/two", "data2/one"))
    command = ("sh", "-c", f"for file in {files}; do cat $file; echo ran >>$file; done; true")
    assert card("-q", *described(place, "g17"), "--", *command).out == ""
    assert issue(place, "g17", cls, place / target, command=command).status == 0
    assert start(place, "g17", command=command).out == ("1" if target == "data/one" else "12")
    assert [path.read_text() for path in sorted(place.glob("data*/*"))] == ["1", "2", "1", "2"]


def test_a_file_cannot_be_used_to_leave_it(place: Path) -> None:
    """A granted file can be written, and neither replaced, removed nor renamed: its name is not the grant's."""
    command = ("sh", "-c", "rm -f file; mv file gone; ln file link; echo over >other; mv other file; echo ran >>file")
    assert issue(place, "g3", PATH, place / "w/file", command=command).status == 0
    done = start(place, "g3", command=command)
    assert done.status == 0
    assert sorted(path.name for path in (place / "w").iterdir()) == ["file", "src", "src2"]
    assert (place / "w/file").read_text() == "ran\n"


def test_one_host_for_one_run(place: Path) -> None:
    """A gated network is closed; a grant opens one host's pins, no base name's, and the next run has none again."""
    from tests.bench import inside

    attempts = [["tcp", address, 443] for address in (API, GITHUB, OBJECTS)]
    command = ("python3", "-c", inside.PROGRAM, json.dumps(attempts))

    def results(done: Run) -> list[str]:
        assert done.status == 0, done.err
        return [result for result, _ in json.loads(done.out)]

    assert [result for result, _ in attempts_in_card(attempts)] == ["ok", "ok", "ok"]
    assert results(card("-q", *described(place, "g4"), "--", *command)) == ["ENETUNREACH"] * 3
    assert issue(place, "g4", HOST, "tcp:api.github.com:443", command=command).status == 0
    opened = start(place, "g4", command=command, receipt=place / "receipt.json")
    assert results(opened) == ["ok", "ECONNREFUSED", "ECONNREFUSED"]
    assert list(opened.receipt["pins"]) == ["api.github.com"]
    assert start(place, "g4", command=command).reasons == ["replay"]
    assert results(card("-q", *described(place, "g4"), "--", *command)) == ["ENETUNREACH"] * 3


def test_a_gated_start(place: Path) -> None:
    """A gated command is `required` without a grant; with it exactly that command starts, and no other spelling."""
    write_card(place, command="gated")
    command = ("sh", "-c", "echo ran")
    assert card(*described(place, "g5"), "--", *command).reasons == ["required"]
    assert issue(place, "g5", START, "", command=command).status == 0
    other = start(place, "g5", command=("sh", "-c", "echo  ran"))
    assert (other.reasons, other.out) == (["wrong-command"], "")
    assert start(place, "g5", command=command).out == "ran\n"
    assert start(place, "g5", command=command).reasons == ["replay"]


def test_one_of_twenty_runs(place: Path) -> None:
    """Of card-runs started together with one token one runs its worker; who finds that run there tries until replay."""
    assert issue(place, "g6", PATH, place / "w/file").status == 0

    def told(_: int) -> Run:
        while (done := start(place, "g6")).reasons == ["run-exists"]:
            pass
        return done

    with ThreadPoolExecutor(20) as pool:
        ended = list(pool.map(told, range(20)))
    assert [one.out for one in ended if one.status == 0] == ["file\n"]
    assert [(one.reasons, one.out) for one in ended if one.status] == [(["replay"], "")] * 19
    assert (place / "w/file").read_text() == "ran\n"


def test_used_at_the_last_moment(place: Path) -> None:
    """A token that another run used after all was judged, and is done with, is used up when the walls stand."""
    assert issue(place, "g20", PATH, place / "w/file").status == 0
    words = [*described(place, "g20"), "--grant", f"@{place}/token", "--", *WRITER]
    done = late(["card-run", "-q", *words], words)
    assert done.out == "file\nreplay\n", done.err
    assert (place / "w/file").read_text() == "ran\n"


def test_a_refused_run_costs_no_grant(place: Path) -> None:
    """What fails before the worker starts leaves the grant as it was."""
    image = "localhost/card-run/later:latest"
    assert issue(place, "g7", PATH, place / "w/file", "--image", image).status == 0
    assert start(place, "g7", "--image", image).reasons == ["image-missing"]
    # Built, and not tagged: a tag would be a record of the shared card image in this user's own store, beside which
    # podman takes no mapped layer for it any more, and every later card would copy the image (containers-storage(5)).
    words = ["podman", "build", "--quiet", "--pull=never", "--network=none", f"--tag={image}", "-"]
    assert run(words, input=f"FROM {IMAGE}\nLABEL later=1\n").status == 0
    try:
        assert start(place, "g7", "--image", image).out == "file\n"
    finally:
        run(["podman", "rmi", image])


def test_a_gated_card_takes_no_further_command(place: Path) -> None:
    """A grant for a start is for that command: `card exec` starts no other in its card, but does where that is open."""
    command = ("sh", "-c", "cat")
    for level, status, reasons in (("gated", 125, ["required"]), ("allow", 0, [])):
        write_card(place, command=level)
        if level == "gated":
            assert issue(place, "g16", START, "", command=command).status == 0
        grant = ["--grant", f"@{place}/token"] if level == "gated" else []
        words = ["card-run", "-qi", *described(place, "g16"), *grant, "--", *command]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
            assert running.stdin
            assert running.stdout
            running.stdin.write(b"here\n")
            running.stdin.flush()
            assert running.stdout.readline() == b"here\n"
            done = run(["card", "exec", "g16", "--", "true"])
            assert (done.status, done.reasons) == (status, reasons), done.err
            running.stdin.close()
            assert running.wait(30) == 0


LATE = """
import json, subprocess, sys
from launcher import launch, options
from launcher.run import perform
from oci.refusal import Refused
asked, _ = options.read(sys.argv[2:])
judged, refusals = launch.judge(asked)
assert not refusals, refusals
subprocess.run(json.loads(sys.argv[1]), check=True)
try:
    perform.perform(judged, quiet=True, receipt=None)
except Refused as error:
    print(*(one.reason for one in error.refusals))
"""


def late(between: list[str], words: list[str]) -> Run:
    """Run a card of these words, with a command between the judgement and podman; print what it is refused for."""
    program = [sys.executable, "-c", LATE, json.dumps(between), *words]
    return run(program, env={**os.environ, "PYTHONPATH": "/src"})


def test_a_detached_run(place: Path) -> None:
    """A detached card uses its grant up as any other, and who started it is told when it was used before."""
    assert issue(place, "g18", PATH, place / "w/file").status == 0
    opened = start(place, "g18", "--detach")
    assert (opened.status, opened.out) == (0, "g18\n")
    assert run(["card", "wait", "g18"]).status == 0
    assert (place / "w/file").read_text() == "ran\n"
    again = start(place, "g18", "--detach")
    assert (again.status, again.reasons, again.out) == (125, ["replay"], "")


def test_a_prepared_card_takes_none(place: Path) -> None:
    """A card that plain podman starts has nobody to use its grants up, so it takes none."""
    assert issue(place, "g19", PATH, place / "w/file").status == 0
    done = run(["card", "prepare", *described(place, "g19"), "--grant", f"@{place}/token", "--", *WRITER])
    assert (done.status, done.reasons) == (2, ["not-prepared"])
    assert "--grant" in done.err


def test_a_swap_at_the_last_moment(place: Path) -> None:
    """A file that is put in place after all was judged, and before podman mounts it, is seen from inside."""
    assert issue(place, "g8", PATH, place / "w/file").status == 0
    words = [*described(place, "g8"), "--grant", f"@{place}/token", "--", *WRITER]
    done = late(["sh", "-c", 'mv "$1" "$1.old" && : >"$1"', "sh", str(place / "w/file")], words)
    assert done.out == "target-changed\n", done.err
    assert (place / "w/file").read_text() == ""


def test_each_refusal_by_its_name(place: Path) -> None:
    """Whatever is another than was approved refuses the run, by the name of what differs."""
    assert issue(place, "g9", PATH, place / "w/file").status == 0
    token = (place / "token").read_text().strip()
    (place / "other.txt").write_text("github.com\napi.github.com\nobjects.githubusercontent.com\n")
    assert start(place, "g10").reasons == ["wrong-execution"]
    assert start(place, "g9", "--cwd", str(place / "w/src")).reasons == ["wrong-working-directory"]
    assert start(place, "g9", "--egress", str(place / "other.txt")).reasons == ["route-mismatch"]
    assert start(place, "g9", "--net", "none").reasons == ["route-mismatch"]
    write_card(place, network="allow")
    assert start(place, "g9").reasons == ["profile-mismatch"]
    write_card(place, workspace_write="deny")
    assert sorted(start(place, "g9").reasons) == ["denied", "profile-mismatch"]
    write_card(place)
    for text, reason in ((token[:-2], "malformed"), (f"{token[:-6]}AAAAA{token[-1]}", "bad-mac"), ("", "malformed")):
        (place / "token").write_text(text)
        assert start(place, "g9").reasons == [reason], text
    (place / "token").write_text(token)
    assert start(place, "g9").out == "file\n"


def test_a_guarantee_that_the_run_does_not_promise(place: Path) -> None:
    """A grant that wants limits opens nothing for a run without any; with them it does, and they were measured."""
    wanted = ("--require", "resource_limits", "--nofile", "64")
    assert issue(place, "g20", PATH, place / "w/file", *wanted).status == 0
    without = start(place, "g20")
    # What is limited is part of what was approved, too.
    assert (without.status, without.reasons, without.out) == (125, ["wrong-command", "guarantee-mismatch"], "")
    assert (place / "w/file").read_text() == ""
    opened = start(place, "g20", "--nofile", "64", receipt=place / "receipt.json")
    assert opened.out == "file\n"
    assert opened.receipt["guarantees"]["resource_limits"] is True


def test_a_target_that_is_another_by_now(place: Path) -> None:
    """What was put in the place of a granted file since is refused before anything starts, and not written."""
    assert issue(place, "g21", PATH, place / "w/file").status == 0
    (place / "w/file").rename(place / "old")
    (place / "w/file").touch()
    done = start(place, "g21")
    assert (done.status, done.reasons, done.out) == (125, ["target-changed"], "")
    assert (place / "w/file").read_text() == ""
    (place / "old").rename(place / "w/file")
    assert start(place, "g21").out == "file\n"


def test_issuing_says_no(place: Path) -> None:
    """No token is made for what is not gated, what no wall could hold, or what is denied."""
    for cls, target, reason in (
        (HOST, "tcp:api.github.com:22", "unsupported"),
        (HOST, "tcp:unlisted.example:443", "unsupported"),
        ("network.broad.v1", "tcp:*:443", "unsupported"),
        (PATH, place / "w/missing", "unsupported"),
        (PATH, place / "w/src", "unsupported"),
        (PATH, "/etc/hostname", "denied"),
        (START, "", "not-gated"),
    ):
        done = issue(place, "g11", cls, target)
        assert (done.status, done.reasons) == (2, [reason]), cls
        assert not (place / "token").exists()


def test_expired_and_revoked(place: Path) -> None:
    """After its time a grant is expired; one that was taken back is denied; all keys replaced, none is genuine."""
    assert issue(place, "g12", PATH, place / "w/file", "--seconds", "1").status == 0
    over = time.time() + 1
    while time.time() <= over:
        os.sched_yield()
    assert start(place, "g12").reasons == ["expired"]
    assert issue(place, "g12", PATH, place / "w/file").status == 0
    assert run(["card", "grant", "revoke", f"@{place}/token"]).status == 0
    assert start(place, "g12").reasons == ["denied"]
    assert run(["card", "grant", "revoke", f"@{place}/token"]).status == 2
    assert issue(place, "g12", PATH, place / "w/file").status == 0
    assert run(["card", "grant", "rotate"]).status == 0
    assert start(place, "g12", "--plan").status == 0
    assert run(["card", "grant", "rotate", "--now"]).status == 0
    assert start(place, "g12").reasons == ["bad-mac"]


def test_a_token_is_nowhere_else(place: Path) -> None:
    """While a card runs with a token from a file, no argv, environment, podman state or file of ours has it."""
    command = ("cat",)
    assert issue(place, "g13", PATH, place / "w/file", command=command).status == 0
    token = (place / "token").read_text().strip()
    words = ["card-run", "-i", *described(place, "g13"), "--grant", f"@{place}/token", "--", *command]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdin
        assert running.stdout
        running.stdin.write(b"here\n")
        running.stdin.flush()
        assert running.stdout.readline() == b"here\n"
        seen = {"inspect": run(["podman", "inspect", "card-g13"]).out}
        for entry in Path("/proc").iterdir():
            for name in ("cmdline", "environ"):
                seen[f"{entry}/{name}"] = _text(entry / name) if entry.name.isdigit() else ""
        for top in (Path(os.environ["XDG_RUNTIME_DIR"]) / "card-run/g13", place / "state"):
            seen |= {str(path): _text(path) for path in top.rglob("*")}
        running.stdin.close()
        assert running.wait(30) == 0
    assert any("card-g13" in text for text in seen.values())
    found = [where for where, text in seen.items() if any(part in text for part in token.split(".")[1:])]
    assert found == []
    assert token.split(".")[1] not in _text(place / "state/card-run/runs/g13.json")


def _text(path: Path) -> str:
    """Return what a file holds; nothing for a pipe, which would not answer."""
    try:
        return path.read_bytes().decode(errors="replace") if path.is_file() else ""
    except OSError:
        return ""


def test_the_worker_cannot_have_the_keys(place: Path) -> None:
    """The directory of keys is in no root, to read even; a card that is given what is beside it does not see it."""
    assert issue(place, "g14", PATH, place / "w/file").status == 0
    for path in (place, place / "state", place / "state/card-run/grants"):
        assert "grants-exposed" in card("--net", "none", "--read", str(path), "--", "true").reasons
    keys = place / "state/card-run/grants/keys.json"
    look = ("sh", "-c", f"cat {keys}; ls {keys.parent}; true")
    done = card("-q", "--net", "none", "--read", str(place / "w"), "--", *look)
    assert (done.status, done.out) == (0, "")
    assert keys.exists()


def test_shown_and_listed(place: Path) -> None:
    """A grant is told by its id or its token, with what it opens; the file that a token is put into is its owner's."""
    assert issue(place, "g15", PATH, place / "w/file").status == 0
    listed = json.loads(run(["card", "grant", "list", "--json"]).out)
    assert [(one["state"], one["run"], one["cls"]) for one in listed] == [("open", "g15", PATH)]
    for which in (listed[0]["id"], f"@{place}/token"):
        shown = run(["card", "grant", "show", which])
        assert shown.status == 0
        assert str(place / "w/file") in shown.out
    assert "g15" in run(["card", "grant", "list"]).out
    assert (place / "token").stat().st_mode & 0o777 == 0o600
