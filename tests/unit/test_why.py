"""Whatever a hook could leave of its reasons is told, the best of it first."""

import json
import os
from pathlib import Path

import pytest

from launcher.run import why
from launcher.run.directory import RunDirectory

PODMAN = "OCI runtime error: crun: error executing hook `/usr/bin/python3` (exit code: 1)"
RESULT = {"status": "refused", "refusals": [{"reason": "nft-load", "text": "no", "hint": "yes"}]}


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Return a run directory."""
    return RunDirectory(str(tmp_path), held=-1)


def reasons(run: RunDirectory, podman: str = PODMAN) -> list[str]:
    """Return the reasons that are told."""
    return [refusal.reason for refusal in why.refusals(run, podman)]


def test_the_hooks_result_is_best(run: RunDirectory) -> None:
    """hook.json says it all; what was said on standard error repeats it."""
    run.write("hook.json", json.dumps(RESULT).encode())
    run.write("hook.log", b"SANDBOX REFUSED reason=other text\n")
    assert reasons(run) == ["nft-load"]


def test_what_was_said(run: RunDirectory) -> None:
    """Without a result that can be read, refusals in the log are taken as they stand."""
    run.write("hook.json", b"{")
    run.write("hook.log", b"site's words\nSANDBOX REFUSED reason=run-directory it is gone\n")
    (refusal,) = why.refusals(run, PODMAN)
    assert (refusal.reason, refusal.text) == ("run-directory", "it is gone")


def test_an_interpreter_that_fails(run: RunDirectory) -> None:
    """Its last line is the reason."""
    run.write("hook.log", b"Traceback\nImportError: bad magic number in 'hooks'\n")
    (refusal,) = why.refusals(run, PODMAN)
    assert refusal.reason == "hook-failed"
    assert "bad magic number" in refusal.text


def test_nothing_said(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook that left no word is told as such, and as a full disk where there is one; no hook, no reason of a hook."""
    assert reasons(run) == ["hook-failed"]
    assert reasons(run, "image not known") == []
    assert reasons(run, "error executing hook `x` (exit code: -1)\ntimeout expired for `x`") == ["hook-timeout"]
    full = os.statvfs_result((4096, 4096, 16, 0, 0, 16, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    assert reasons(run) == ["disk-full"]


def test_a_hook_that_was_killed(run: RunDirectory) -> None:
    """What the keeper's process found when it went on is no reason of its own; any other reason is."""
    killed = "crun: error executing hook `/bin/sh` (exit code: -1)\ntimeout expired for `/bin/sh`"
    refused = {"reason": "hook-abandoned", "text": "the runtime gave this hook up", "hint": ""}
    run.write("hook.json", json.dumps({"refusals": [refused]}).encode())
    run.write("hook.log", b"SANDBOX REFUSED reason=hook-abandoned the runtime gave this hook up\n")
    assert reasons(run, killed) == ["hook-timeout"]
    run.write("hook.json", json.dumps(RESULT).encode())
    assert reasons(run, killed) == ["nft-load"]


def test_podman_remote_under_podmans_name(run: RunDirectory) -> None:
    """What it says of an option that it does not have is no hook's failure."""
    said = "Error: unknown flag: --hooks-dir\nSee 'podman --help'"
    assert reasons(run, said) == []
    assert why.of_podman("image", said).reason == "remote-podman"


def test_what_makes_podman_a_remote_ones_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A containers.conf that says so is named, the last one that speaks of it counts; else it is another program."""
    monkeypatch.delenv("CONTAINERS_CONF", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    said = "Error: unknown flag: --hooks-dir"
    assert "PATH is podman-remote" in why.of_podman("image", said).text
    drop_ins = tmp_path / "containers/containers.conf.d"
    drop_ins.mkdir(parents=True)
    main = drop_ins.parent / "containers.conf"
    main.write_text("[engine]\nremote = true\n")
    (drop_ins / "1.conf").write_text("[engine]\nruntime = 'crun'\n")
    (drop_ins / "2.conf").write_text("[engine\n")
    assert f"{main} says [engine] remote = true" in why.of_podman("image", said).text
    (drop_ins / "3.conf").write_text("[engine]\nremote = false\n")
    assert "PATH is podman-remote" in why.of_podman("image", said).text


def test_why_there_is_no_ledger(run: RunDirectory) -> None:
    """What the poststop hook left is told; without a word of its, or with one that cannot be read, nothing is."""
    assert why.unread(run) == []
    run.write("unread.json", b"{")
    assert why.unread(run) == []
    run.write("unread.json", json.dumps({"refusals": RESULT["refusals"]}).encode())
    assert [str(refusal) for refusal in why.unread(run)] == ["SANDBOX REFUSED reason=nft-load no (hint: yes)"]
