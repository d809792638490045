"""Why a hook refused: its own result, else what it or its interpreter said, else what can be seen from here.

podman says nothing but the hook's exit status, so this is the only way a reason reaches the user. Only imported once a
start has failed, or a run has no ledger.
"""

import json
import os
from typing import Any

from hooks import rundir
from launcher.run import site
from launcher.run.command import HOOK_LOG
from launcher.run.directory import RunDirectory
from oci.refusal import Refusal

_SAID = "SANDBOX REFUSED reason="
# What crun says of a hook that it killed, whose work the keeper may have gone on with for a while.
_LATE = "timeout expired"
# podman-remote(1) has no option for hooks, under whatever name, nor has podman as the client of a remote one.
_REMOTE = "unknown flag: --hooks-dir"
# How podman begins what is wrong, and how Go does, which has a stack to follow (Go's package runtime).
_ERRORS = ("Error: ", "fatal error: ", "panic: ", "runtime: ", "runtime/cgo: ")


def refusals(run: RunDirectory, podman: str) -> list[Refusal]:
    """Return the hook's reasons, none when it has none; `podman` is what podman said of the start."""
    told = _result(run, rundir.HOOK)
    shown = " ".join(podman.removeprefix("Error: ").split())
    if _LATE in podman and {one.reason for one in told} <= {rundir.ABANDONED}:
        return [Refusal("hook-timeout", f"a hook took longer than hooks.d gives it, and was killed: {shown}")]
    if told:
        return told
    said = [line for line in (run.read(HOOK_LOG) or b"").decode("utf-8", "replace").splitlines() if line.strip()]
    ours = [line.removeprefix(_SAID).partition(" ") for line in said if line.startswith(_SAID)]
    if ours:
        return [Refusal(reason, text) for reason, _, text in ours]
    hooked = "hook" in podman and _REMOTE not in podman
    return [_seen(run, said, shown)] if hooked else []


def unread(run: RunDirectory) -> list[Refusal]:
    """Return why the poststop hook kept no ledger, none when it left no word."""
    return _result(run, rundir.UNREAD)


def word(said: str) -> str:
    """Return what a program that failed means: its first error, not the stack that may follow; else its last line."""
    lines = [line for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(_ERRORS)]
    return [*errors, *lines[-1:], "no word why"][0].removeprefix("Error: ")


def of_podman(image: str, said: str) -> Refusal:
    """Return the refusal that podman's own word comes to."""
    last = word(said)
    if _REMOTE in said:
        return remote()
    if "image not known" in last:
        return Refusal("image-missing", last, f"podman pull {image}, or build it")
    if "invalid option for network pasta" in last:
        text = "this podman has no pasta: it is older than 4.4"
        return Refusal("no-pasta", text, "--net slirp, for this card or in your defaults")
    return Refusal("podman-failed", f"podman said: {last}")


def remote() -> Refusal:
    """Return the refusal of a podman that is the client of a remote one, with what makes it that."""
    whose, path = "the hooks of a remote podman are not ours", site.remote()
    if path:
        return Refusal("remote-podman", f"{path} says [engine] remote = true: {whose}", "take it out of there")
    text = f"the podman on PATH is podman-remote: {whose}"
    return Refusal("remote-podman", text, "install podman itself, and have it on PATH first")


def _seen(run: RunDirectory, said: list[str], podman: str) -> Refusal:
    """Return the reason for a hook that gave none: what else was said, and what can be seen from here."""
    if _is_full(run.path):
        text = f"a hook failed, and {run.path} has no room for its reason"
        return Refusal("disk-full", text, "make room where your runtime directory is")
    if said:
        return Refusal("hook-failed", f"a hook failed, and said: {said[-1][:300]}", "card runtime build --force")
    text = f"a hook failed and gave no reason; podman said: {podman}"
    return Refusal("hook-failed", text, "a hook of the site's may have failed")


def _result(run: RunDirectory, name: str) -> list[Refusal]:
    try:
        result: dict[str, Any] = json.loads(run.read(name) or b"{}")
        return [Refusal.from_json(one) for one in result.get("refusals", ())]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []


def _is_full(path: str) -> bool:
    found = os.statvfs(path)
    return found.f_bavail == 0 or found.f_favail == 0
