"""What this bench can enforce, one question at a time: each looks at the real part and says what to do if it lacks.

A check never changes anything. The list is the order in which a run would need the parts.
"""

import os
import re
import subprocess
from collections.abc import Callable
from pwd import getpwuid

from hooks.nft import program as nft_program
from launcher import bench, launch, options, runtime
from launcher.access.judge import ALLOW, LEVELLED, REAL
from launcher.cardfile import load
from launcher.egress import nameservers, policy
from launcher.fs import searched
from launcher.request import DEFAULT_IMAGE
from launcher.run import why
from launcher.run.perform import find_podman
from launcher.stage2 import landlock
from launcher.stage2.abi import ABIS
from launcher.stage2.syscalls import Kernel
from launcher.value import Value
from oci.refusal import Refused

_PODMAN_MINIMUM = (5, 0)
# podman-image-exists(1): 1, and no word, for an image that is not there.
_ABSENT = "status 1"


class Finding(Value):
    """One part of the bench: its name, whether a run can rest on it, what was found, and what to do if not."""

    name: str
    good: bool
    found: str
    hint: str = ""


class _Said(Value):
    """What a program came to: what it printed where it went well, else why it did not; missing where that is empty."""

    output: str | None
    why: str = ""


def _output(*argv: str) -> _Said:
    """Run a program where it is there, in a directory that is."""
    program = _place(argv[0])
    if program is None:
        return _Said(output=None)
    words, environment = [program, *argv[1:]], searched.environment()
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False, cwd="/", env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        return _Said(output=None, why=str(error))
    if done.returncode == 0:
        return _Said(output=done.stdout.strip())
    return _Said(output=None, why=why.word(done.stderr) if done.stderr.strip() else f"status {done.returncode}")


def _place(name: str) -> str | None:
    """Return where a run would find a program, or None where it would not."""
    try:
        return {"podman": find_podman, "nft": nft_program}.get(name, lambda: searched.program(name))()
    except Refused:
        return None


def _version(text: str | None) -> tuple[int, ...]:
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text or "")
    return tuple(int(part) for part in found.groups("0")) if found else ()


def rootless() -> Finding:
    """Look at who asks: root's containers share the bench's own user namespace."""
    good = os.getuid() != 0
    found = "an ordinary user" if good else "root, whose containers are not rootless"
    return Finding(name="user", good=good, found=found, hint="run card-run as an ordinary user")


def podman() -> Finding:
    """Look for podman 5.0 or newer: before that there is no pasta by default."""
    said = _output("podman", "--version")
    good = _version(said.output) >= _PODMAN_MINIMUM
    return Finding(name="podman", good=good, found=_found(said), hint=_install(said, "podman 5.0 or newer"))


def _found(said: _Said) -> str:
    """Return what is told of a program: its first line, its own word of why it fails, or that it is missing."""
    if said.output is not None:
        return (said.output.splitlines() or ["found"])[0]
    return f"fails: {said.why}" if said.why else "missing"


def _install(said: _Said, what: str) -> str:
    """Return what to do about a program that is missing or too old: one that fails says itself what is wrong."""
    return "" if said.why else f"install {what}"


def _program(name: str, *words: str, package: str) -> Finding:
    said = _output(name, *words)
    return Finding(name=name, good=said.output is not None, found=_found(said), hint=_install(said, package))


def crun() -> Finding:
    """Look for the runtime whose hook behaviour is known."""
    return _program("crun", "--version", package="crun")


def nft() -> Finding:
    """Look for nft where the hook will: in the system's own directories."""
    return _program("nft", "--version", package="nftables")


def pasta() -> Finding:
    """Look for pasta, the card's network."""
    return _program("pasta", "--version", package="passt")


def subordinate_ids() -> Finding:
    """Look for the id ranges and helpers that a rootless container needs (subuid(5))."""
    if os.getuid() == 0:
        return Finding(name="subordinate ids", good=True, found="not needed by root")
    user = getpwuid(os.getuid()).pw_name
    listed = [path for path in ("/etc/subuid", "/etc/subgid") if _lists(path, user)]
    helpers = all(_place(name) for name in ("newuidmap", "newgidmap"))
    found = f"{', '.join(listed) or 'no range'}; newuidmap {'found' if helpers else 'missing'}"
    hint = f"install uidmap, and usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}"
    return Finding(name="subordinate ids", good=len(listed) == 2 and helpers, found=found, hint=hint)


def _lists(path: str, user: str) -> bool:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return any(line.split(":")[0] in (user, str(os.getuid())) for line in file)
    except OSError:
        return False


def tun() -> Finding:
    """Look for the device that pasta makes a card's interface with."""
    good = os.access("/dev/net/tun", os.R_OK | os.W_OK)
    hint = "chmod 0666 /dev/net/tun, as every distribution has it"
    return Finding(name="/dev/net/tun", good=good, found="usable" if good else "not usable", hint=hint)


def landlock_abi() -> Finding:
    """Ask the kernel for its Landlock ABI."""
    try:
        version = landlock.query_abi(Kernel())
    except Refused as error:
        refusal = error.refusals[0]
        return Finding(name="landlock", good=False, found=refusal.text, hint=refusal.hint)
    used = min(version, ABIS[-1].abi)
    return Finding(name="landlock", good=True, found=f"abi={version} used={used}")


def runtime_directory() -> Finding:
    """Look for a directory that is this user's alone and lives no longer than the session."""
    from launcher.run import directory

    try:
        return Finding(name="runtime directory", good=True, found=directory.parent())
    except Refused as error:
        refusal = error.refusals[0]
        return Finding(name="runtime directory", good=False, found=refusal.text, hint=refusal.hint)


def cache() -> Finding:
    """Look for the directory of the runtime, which is made when it is missing."""
    try:
        path = runtime.default_cache()
        if os.path.lexists(path):
            runtime.ours(path)
    except Refused as error:
        refusal = error.refusals[0]
        return Finding(name="cache", good=False, found=refusal.text, hint=refusal.hint)
    there = path
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    good = os.access(there, os.W_OK | os.X_OK)
    found = path if good else f"{path} cannot be made: {there} is not yours to write"
    return Finding(name="cache", good=good, found=found, hint="set XDG_CACHE_HOME")


def resolver() -> Finding:
    """Look for a resolver that the launcher can ask."""
    found, refusals = nameservers.from_file()
    hint = refusals[0].hint if refusals else ""
    return Finding(name="resolver", good=not refusals, found=", ".join(found.servers) or refusals[0].text, hint=hint)


def policy_file() -> Finding:
    """Read the policy file that a run would use."""
    path = launch.default_policy()
    read, refusals = policy.read(path)
    found = refusals[0].text if refusals else f"{path}: {len(read.lines)} names"
    return Finding(name="egress policy", good=not refusals, found=found, hint=refusals[0].hint if refusals else "")


def image() -> Finding:
    """Look for the default card image."""
    hint = "make image, or name another with --image"
    if _output("podman", "--version").output is None:
        return Finding(name="card image", good=False, found="unknown without a podman that works")
    said = _output("podman", "image", "exists", DEFAULT_IMAGE)
    if said.output is not None:
        return Finding(name="card image", good=True, found=DEFAULT_IMAGE)
    if said.why == _ABSENT:
        return Finding(name="card image", good=False, found=f"{DEFAULT_IMAGE} is not in podman's storage", hint=hint)
    return Finding(name="card image", good=False, found=f"unknown: podman fails: {said.why}")


def ceiling() -> Finding:
    """Read the bench's own settings: what every run is restricted by, and whether the file is root's alone."""
    found, refusals = bench.ceiling()
    refusals = list(dict.fromkeys([*refusals, *bench.read()[1]]))
    if refusals:
        text = "; ".join(refusal.text for refusal in refusals)
        return Finding(name="ceiling", good=False, found=text, hint=refusals[0].hint)
    if found is None:
        return Finding(name="ceiling", good=True, found=f"none in {bench.CONFIG}")
    top = found.ceiling
    less = [f"{name} {getattr(top, name)}" for name in LEVELLED if getattr(top, name) != ALLOW]
    less += [f"home {top.home}"] if top.home != REAL else []
    less += [f"workspaces below {top.workspace}"] if top.workspace else []
    less += [f"{root.path} read {root.read}, write {root.write}" for root in top.roots]
    return Finding(name="ceiling", good=True, found=f"{found.path}: {'; '.join(less) or 'everything is allowed'}")


def defaults() -> Finding:
    """Read the user's defaults, which every run of this user starts from."""
    path = options.user_config()
    try:
        found = load.defaults(path)
    except Refused as error:
        text = "; ".join(refusal.text for refusal in error.refusals)
        return Finding(name="your defaults", good=False, found=text, hint=error.refusals[0].hint)
    said = " ".join(found.values) if found else ""
    return Finding(name="your defaults", good=True, found=f"{path}: {said or 'nothing'}" if found else f"no {path}")


CHECKS: tuple[Callable[[], Finding], ...] = (
    rootless,
    podman,
    crun,
    nft,
    pasta,
    subordinate_ids,
    tun,
    landlock_abi,
    runtime_directory,
    cache,
    resolver,
    policy_file,
    ceiling,
    defaults,
    image,
)
