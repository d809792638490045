"""The two containers of a probe: a real card, and a plain one of the same image without hooks, stage 2 or filter.

Both run the same program with the same attempts over the same scratch directories, the card first: what it leaves
undone, the control may do. The control takes the card's pins from its receipt, so that both try the same addresses.
"""

import json
import os
import shlex
import subprocess
import sys
from typing import Any

from launcher.fs import searched
from launcher.network import BRIDGE, PASTA, SLIRP
from launcher.probe import inside
from launcher.probe.probes import HOST, LIMITS, MARKER, PROBES
from launcher.run.command import Mount
from launcher.run.perform import find_podman
from launcher.seccomp import table
from launcher.value import Value
from oci.refusal import EXIT_NOT_FOUND, EXIT_REFUSED, Refusal, Refused

NETWORKS = {PASTA: "pasta", SLIRP: "slirp4netns", BRIDGE: "bridge"}
_PYTHON = ("python3", "-I", "-c")
_SECONDS = 120


class Asked(Value):
    """What to probe: the image, the card's network and its user, as card-run's own options have them."""

    image: str
    net: str
    user: str


class Scratch(Value):
    """The directories that the attempts are about: below `base`, which the control has whole and the card in parts."""

    base: str

    @property
    def names(self) -> dict[str, str]:
        """Return each directory's path by the name that attempts have for it."""
        return {name: f"{self.base}/{name}" for name in ("work", "read", "noexec", "outside")}

    def fill(self) -> None:
        """Make the directories: a file in each, a checkout in the writable one, and a link that points out of it."""
        for path in self.names.values():
            os.mkdir(path)
            _file(f"{path}/file")
        os.makedirs(f"{self.base}/work/.git/hooks")
        for name in ("HEAD", "config"):
            _file(f"{self.base}/work/.git/{name}")
        os.symlink("../outside/file", f"{self.base}/work/link")
        os.chmod(f"{self.base}/noexec/file", 0o700)


def _file(path: str) -> None:
    with open(path, "xb"):
        os.chmod(path, 0o600)


def attempts(scratch: Scratch) -> str:
    """Return every probe's attempt as the JSON that the program inside takes."""
    return json.dumps([_attempt(probe.attempt, scratch) for probe in PROBES])


def _attempt(words: tuple[str | int, ...], scratch: Scratch) -> list[str | int]:
    found = [word.format(**scratch.names) if isinstance(word, str) else word for word in words]
    if found[0] == "syscall":
        found[1] = _number(str(found[1]))
    return found


def _number(call: str) -> int:
    """Return a call's number on this machine; raises Refused for a machine without a table."""
    machine = table.this_machine()
    return next(rule.number(machine) or 0 for rule in table.rules() if rule.call == call)


def program() -> str:
    """Return the source of what runs inside."""
    with open(inside.__file__, encoding="utf-8") as file:
        return file.read()


def _environment() -> dict[str, str]:
    """Return the caller's environment and a variable that must not cross, less what would steer a loader inside."""
    return {
        **{name: value for name, value in searched.environment().items() if not name.startswith("LD_")},
        MARKER: "1",
    }


def card_run() -> str:
    """Return the path of the card-run that belongs to this `card`; raises Refused when there is none."""
    beside = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "card-run")
    if os.access(beside, os.X_OK):
        return beside
    try:
        return searched.program("card-run")
    except Refused:
        text = "card-run is neither beside card nor in a folder of PATH that root alone can change"
        raise Refused([Refusal("no-card-run", text, "install card-run")]) from None


def walled(asked: Asked, scratch: Scratch) -> tuple[list[str], dict[str, Any]]:
    """Return what the attempts came to in a card, and its receipt; raises Refused when it gave none.

    The card's own refusals are already on stderr by then.
    """
    names, receipt = scratch.names, f"{scratch.base}/receipt.json"
    options = ["-q", f"--image={asked.image}", f"--net={asked.net}", f"--user={asked.user}", *LIMITS]
    options += [f"--write={names['work']}", f"--read={names['read']}", f"--read-noexec={names['noexec']}"]
    start = [card_run(), *options, f"--json={receipt}", "--"]
    done = _run([*start, *_PYTHON, program(), attempts(scratch)], capture=False)
    if done.returncode == EXIT_NOT_FOUND:
        hint = "name an image that has it with --image"
        raise Refused([Refusal("no-python", f"{asked.image} has no python3, which the attempts are run by", hint)])
    if done.returncode == EXIT_REFUSED:
        raise Refused([Refusal("no-card", "the card was refused, so nothing was probed")])
    if done.returncode:
        hint = f"try: {shlex.join([*start, 'python3', '--version'])}"
        raise Refused([Refusal("no-card", f"the card ended with {done.returncode}, so nothing was probed", hint)])
    with open(receipt, encoding="utf-8") as file:
        return json.loads(done.stdout), json.load(file)


def control_argv(asked: Asked, scratch: Scratch, receipt: dict[str, Any]) -> list[str]:
    """Return the plain container's command, up to what it runs."""
    words = [find_podman(), "--remote=false", "run", "--rm", "--pull=never", "--init", "--workdir=/"]
    words += ["--security-opt=seccomp=unconfined", "--security-opt=label=disable", "--env-host"]
    keep_id = ["--userns=keep-id", f"--user={os.getuid()}:{os.getgid()}"]
    words += ["--user=0:0"] if asked.user == "root" else keep_id
    words += [f"--network={NETWORKS[asked.net]}", f"--mount={Mount(scratch.base, scratch.base, ()).csv()}"]
    words += [f"--add-host={HOST}:{address}" for address in receipt["pins"][HOST]["addresses"]]
    return [*words, f"--entrypoint={_PYTHON[0]}", asked.image, *_PYTHON[1:]]


def control(asked: Asked, scratch: Scratch, receipt: dict[str, Any]) -> list[str]:
    """Return what the same attempts came to without walls; raises Refused when podman did not run them."""
    start = control_argv(asked, scratch, receipt)
    done = _run([*start, program(), attempts(scratch)], capture=True)
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
        hint = f"try: {shlex.join([*start, 'print()'])}"
        raise Refused([Refusal("no-control", f"the container without walls did not run: {said}", hint)])
    found: list[str] = json.loads(done.stdout)
    return found


def _run(argv: list[str], *, capture: bool) -> subprocess.CompletedProcess[str]:
    errors = subprocess.PIPE if capture else None
    try:
        return subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            timeout=_SECONDS,
            check=False,
            env=_environment(),
        )
    except subprocess.TimeoutExpired:
        text = f"{os.path.basename(argv[0])} did not end within {_SECONDS} seconds"
        raise Refused([Refusal("no-answer", text)]) from None
