"""config.json is judged whole: every way in which it can be wider than the plan is refused, by its own words."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hooks import bundle
from oci.refusal import Refused
from oci.state import State
from tests import bundles

Change = Callable[[dict[str, Any]], object]


def problems(config: dict[str, Any]) -> list[str]:
    """Return the texts of the refusals."""
    found = bundle.audit(config, bundles.expected(), container=bundles.CONTAINER)
    assert all(refusal.reason == "bundle-differs" for refusal in found)
    return [refusal.text for refusal in found]


def mount(config: dict[str, Any], destination: str) -> dict[str, Any]:
    """Return one mount."""
    return next(one for one in config["mounts"] if one["destination"] == destination)


def test_good() -> None:
    """What podman makes of a card's command is passed."""
    assert problems(bundles.config()) == []


def test_a_time_zone() -> None:
    """`--tz` has podman write one more file of its own; the bench's, or one that can be written, is none of them."""
    zone = {"destination": "/etc/localtime", "type": "bind", "source": f"/s/{bundles.CONTAINER}/userdata/localtime"}
    for changed, good in (({}, True), ({"source": "/etc/localtime"}, False), ({"options": ["bind", "rw"]}, False)):
        config = bundles.config()
        config["mounts"].append({**zone, "options": ["bind", "ro"], **changed})
        assert (problems(config) == []) is good


def test_joined_network_namespace_is_podmans_own() -> None:
    """With no user namespace of its own podman makes the network one first and hands it in."""
    config, expected = bundles.config(), bundles.expected()
    expected["user_namespace"] = False
    config["linux"]["namespaces"] = [one for one in config["linux"]["namespaces"] if one["type"] != "user"]
    config["linux"]["namespaces"][1]["path"] = "/run/user/1000/netns/netns-1"
    assert bundle.audit(config, expected, container=bundles.CONTAINER) == []


WIDER: dict[str, tuple[Change, str]] = {
    "another first process": (lambda c: c["process"].update(args=["sh"]), "the first process"),
    "another user": (lambda c: c["process"]["user"].update(uid=0), "the user is 0:1000"),
    "more groups": (lambda c: c["process"]["user"].update(additionalGids=[1000, 27]), "further groups [27]"),
    "a capability": (lambda c: c["process"].update(capabilities={"bounding": ["CAP_NET_RAW"]}), "CAP_NET_RAW"),
    "privileges by exec": (lambda c: c["process"].update(noNewPrivileges=False), "no_new_privs"),
    "no word on privileges": (lambda c: c["process"].pop("noNewPrivileges"), "no_new_privs"),
    "another directory": (lambda c: c["process"].update(cwd="/srv"), "it starts in /srv"),
    "a writable root": (lambda c: c["root"].pop("readonly"), "writable"),
    "no seccomp": (lambda c: c["linux"].pop("seccomp"), "no seccomp"),
    "seccomp that allows": (lambda c: c["linux"]["seccomp"].update(defaultAction="SCMP_ACT_ALLOW"), "default action"),
    "seccomp that allows unshare": (
        lambda c: c["linux"]["seccomp"]["syscalls"][0]["names"].append("unshare"),
        "seccomp allows unshare",
    ),
    "a device": (lambda c: c["linux"].update(devices=[{"path": "/dev/kvm"}]), "/dev/kvm"),
    "a sysctl": (lambda c: c["linux"]["sysctl"].update({"net.ipv4.ip_forward": "1"}), "net.ipv4.ip_forward"),
    "unmasked": (lambda c: c["linux"].update(maskedPaths=[]), "/proc/kcore is not masked"),
    "writable proc": (lambda c: c["linux"].update(readonlyPaths=[]), "/proc/sys is not read-only"),
    "another source": (lambda c: mount(c, "/run/card").update(source="/etc"), "/run/card is /etc"),
    "a lost option": (lambda c: mount(c, "/run/card")["options"].remove("noexec"), "without noexec"),
    "a lost ro": (lambda c: mount(c, "/run/card")["options"].remove("ro"), "without ro"),
    "ro and rw": (lambda c: mount(c, "/run/card")["options"].append("rw"), "mounted writable"),
    "a lost mount": (lambda c: c["mounts"].pop(), "nothing is mounted at /srv/w,ork"),
    "another init": (lambda c: mount(c, "/run/podman-init").update(source="/tmp/x"), "/tmp/x is mounted"),
    "a writable init": (lambda c: mount(c, "/run/podman-init").update(options=["bind"]), "/run/podman-init"),
    "another passwd": (lambda c: mount(c, "/etc/passwd").update(source="/etc/passwd"), "/etc/passwd is mounted"),
    "the passwd of another container": (
        lambda c: mount(c, "/etc/passwd").update(source="/s/other/userdata/passwd"),
        "/s/other/userdata/passwd is mounted",
    ),
    "a bind in the place of proc": (
        lambda c: mount(c, "/proc").update(type="bind", source="/proc"),
        "/proc is mounted",
    ),
    "an added mount": (
        lambda c: c["mounts"].append({"destination": "/bench", "type": "bind", "source": "/", "options": []}),
        "/ is mounted at /bench",
    ),
    "a second mount over ours": (
        lambda c: c["mounts"].append({"destination": "/tmp", "type": "bind", "source": "/etc", "options": []}),
        "/etc is mounted at /tmp",
    ),
    "a second mount over podman's": (
        lambda c: c["mounts"].append({"destination": "/proc", "type": "proc", "source": "proc", "options": []}),
        "mounted twice at /proc",
    ),
}


@pytest.mark.parametrize("name", WIDER)
def test_wider_is_refused(name: str) -> None:
    """One change, one refusal that names it."""
    change, text = WIDER[name]
    config = bundles.config()
    change(config)
    found = problems(config)
    assert found
    assert any(text in one for one in found)


@pytest.mark.parametrize("kind", ["pid", "network", "ipc", "uts", "mount", "user", "cgroup"])
def test_every_namespace_is_the_cards_own(kind: str) -> None:
    """A namespace that is missing is the bench's; one that is joined is another container's or the bench's."""
    shared, joined = bundles.config(), bundles.config()
    shared["linux"]["namespaces"] = [one for one in shared["linux"]["namespaces"] if one["type"] != kind]
    next(one for one in joined["linux"]["namespaces"] if one["type"] == kind)["path"] = f"/proc/1/ns/{kind}"
    assert problems(shared) == [f"config.json: the {kind} namespace is the bench's"]
    assert problems(joined) == [f"config.json: the {kind} namespace is joined at /proc/1/ns/{kind}"]


@pytest.mark.parametrize("part", ["process", "linux", "mounts", "root"])
def test_what_cannot_be_judged_is_refused(part: str, tmp_path: Path) -> None:
    """A config.json that lacks a part, is no JSON, or is not there, is a refusal and no traceback."""
    config = bundles.config()
    del config[part]
    state = State(id=bundles.CONTAINER, pid=1, bundle=str(tmp_path), status="created", annotations={})
    for data in (json.dumps(config), "{", None):
        if data is not None:
            (tmp_path / "config.json").write_text(data)
        else:
            (tmp_path / "config.json").unlink()
        with pytest.raises(Refused) as caught:
            bundle.check(state, bundles.expected())
        assert [refusal.reason for refusal in caught.value.refusals] == ["bundle-malformed"]


@pytest.mark.parametrize("key", ["run.oci.seccomp_bpf_data", "run.oci.hooks.stdout", "org.systemd.property.OnFailure"])
def test_an_annotation_that_a_runtime_acts_on_is_refused(key: str) -> None:
    """An image's manifest can carry annotations, and one of crun's replaces the seccomp filter; others are harmless."""
    config = bundles.config()
    config.setdefault("annotations", {})["com.example.harmless"] = "1"
    config["annotations"]["org.systemd.property.KillSignal"] = "15"
    assert problems(config) == []
    config["annotations"][key] = "x"
    assert problems(config) == [f"config.json: the annotation {key} is set"]
