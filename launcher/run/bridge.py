"""A card on podman's default bridge: where its DNS is, and the outer table on the bench's end of its veth.

The bridge lives in podman's own network namespace, which `podman unshare --rootless-netns` enters
(podman-unshare(1)); each look there costs a podman start, which only a card on a bridge pays.
"""

import subprocess
from typing import Any

from hooks import outer
from launcher.egress import nameservers
from launcher.fs import searched
from launcher.launch import Launch
from launcher.run.directory import RunDirectory
from launcher.runtime import Runtime
from oci import strictjson
from oci.refusal import Refusal, Refused

_SECONDS = 30
# What runs a command where the bridge is.
_THERE = ("--remote=false", "unshare", "--rootless-netns")


def with_dns(launch: Launch, podman: str) -> Launch:
    """Return the launch with the card's DNS address, or with DNS closed and a note when there is none it may ask.

    podman writes the address of its forwarder into the namespace's own resolv.conf: it differs between podman 5.0 and
    5.3, so it is read. A server on a loopback is the bench's, and never what a card is told to ask.
    """
    done = _run([podman, *_THERE, searched.program("cat"), nameservers.RESOLV_CONF])
    servers = nameservers.parse(done.stdout, source="podman's rootless network namespace").servers
    usable = [server for server in servers if ":" not in server and not server.startswith("127.")]
    if usable:
        return launch.replace(dns=usable[0])
    return launch.replace(dns=None, notes=(*launch.notes, "no DNS server that a card on the bridge may ask"))


def build(run: RunDirectory, runtime: Runtime, podman: str, index: str) -> dict[str, Any]:
    """Build and audit the outer table on the interface of that index; raises Refused, and then it is not there."""
    done = _run([podman, *_THERE, *runtime.hook_argv, "outer", run.path, index], check=False)
    data = run.read(outer.RESULT)
    result: Any = strictjson.parse(data) if data else {}
    if done.returncode == 0 and result.get("status") == "ok":
        facts: dict[str, Any] = result["facts"]
        return facts
    told = [Refusal.from_json(one) for one in result.get("refusals", ())]
    raise Refused(told or [Refusal("outer-failed", f"the outer table was not built: {done.stderr.strip()}")])


def _run(words: list[str], *, check: bool = True) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=_SECONDS, check=False, env=searched.environment()
    )
    if check and done.returncode:
        raise Refused([Refusal("podman-failed", f"{words[1:4]} said: {done.stderr.strip()}")])
    return done
