"""What stage 2 believes of its walls: each check fails for every single thing that is not as it must be."""

import errno
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from launcher.stage2 import conf, enter, seccomp, selftest
from launcher.stage2.landlock import Policy
from launcher.stage2.syscalls import Kernel
from oci import records
from oci.refusal import Refusal, Refused

STATUS = {
    "CapInh": "0" * 16,
    "CapPrm": "0" * 16,
    "CapEff": "0" * 16,
    "CapBnd": "0" * 16,
    "CapAmb": "0" * 16,
    "Threads": "1",
    "Seccomp": "2",
    "Seccomp_filters": "1",
    "Uid": "7\t1000\t7\t7",
    "Gid": "8\t1001\t8\t8",
    "Groups": "5 6",
}
PROOF = {"run": "r1", "digest": "d", "nonce": "n", "netns": "42", "table": "t"}


class World(Kernel):
    """A container as its kernel tells it; `errors` maps a path or an address to what it meets."""

    __slots__ = ("errors", "files", "identities", "mounts", "nnp", "sent", "sizes")

    def __init__(
        self,
        *,
        files: dict[str, bytes] | None = None,
        errors: dict[str, int] | None = None,
        identities: dict[str, tuple[int, int]] | None = None,
        sizes: dict[str, int] | None = None,
    ) -> None:
        self.identities = identities or {}
        self.sizes = sizes or {}
        self.files = files or {}
        self.errors = errors or {}
        self.nnp = True
        self.mounts: dict[str, int] = {}
        self.sent: list[tuple[str, int]] = []

    def _meet(self, what: str) -> None:
        if what in self.errors:
            raise OSError(self.errors[what], os.strerror(self.errors[what]), what)

    def read_file(self, path: str) -> bytes:
        """Return a file of this world."""
        self._meet(path)
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self.files[path]

    def identity(self, path: str) -> tuple[int, int] | None:
        """Return what is mounted at a path."""
        return self.identities.get(path)

    def size(self, path: str) -> int:
        """Return the size of a path's file system."""
        return self.sizes[path]

    def readlink(self, path: str) -> str:
        """Return the network namespace's name."""
        assert path == "/proc/self/ns/net"
        return "net:[42]"

    def mount_flags(self, path: str) -> int:
        """Return how a path is mounted."""
        self._meet(path)
        return self.mounts[path]

    def no_new_privs(self) -> bool:
        """Return what podman set."""
        return self.nnp

    def send_datagram(self, family: int, address: str, port: int) -> None:
        """Meet what this world has for the address."""
        assert family == (10 if ":" in address else 2)
        self.sent.append((address, port))
        self._meet(address)

    def open(self, path: str, flags: int) -> int:
        """Meet what this world has for the path."""
        self._meet(path)
        return flags

    def close(self, descriptor: int) -> None:
        """Do nothing."""

    def unshare(self, flags: int) -> None:
        """Meet what this world has for the call."""
        assert flags == 0
        self._meet("unshare")


def proof(**changes: str | None) -> bytes:
    """Return a proof with changes, None leaving the key out."""
    merged = {**PROOF, **changes}
    return records.dump([(key, value) for key, value in merged.items() if value is not None])


def test_a_proof_for_this_start_is_taken() -> None:
    """What it says of plan and table goes into the report, for the launcher to compare."""
    facts = selftest.proof(World(files={selftest.PROOF: proof()}), "r1", "n")
    assert facts[:4] == [("proof", "ok"), ("digest", "d"), ("table", "t"), ("netns", "42")]
    assert [name for name, _ in facts[4:]] == ["allow", "deny", "names"]


@pytest.mark.parametrize("key", ["run", "nonce", "netns"])
@pytest.mark.parametrize("value", ["other", "", None])
def test_a_proof_of_another_start_is_refused(key: str, value: str | None) -> None:
    """Another run, another start of the same run, and another network namespace are each told."""
    with pytest.raises(Refused, match=f"proof-mismatch.*{key} differs"):
        selftest.proof(World(files={selftest.PROOF: proof(**{key: value})}), "r1", "n")


def test_a_repeated_key_proves_nothing() -> None:
    """A proof that says two things is not believed."""
    twice = proof() + records.dump([("nonce", "n")])
    with pytest.raises(Refused, match="proof-mismatch"):
        selftest.proof(World(files={selftest.PROOF: twice}), "r1", "n")


def test_no_proof_is_refused() -> None:
    """A hook that never ran leaves no proof; one that died half way leaves none either."""
    for world in (World(errors={selftest.PROOF: errno.ENOENT}), World(files={selftest.PROOF: b"run=r1"})):
        with pytest.raises(Refused, match="no-proof"):
            selftest.proof(world, "r1", "n")


def config(network: str, route4: str, route6: str) -> conf.Conf:
    """Return a configuration with two probes of each family."""
    items = [
        ("schema", "1"),
        ("run", "r"),
        ("argv", "x"),
        ("cwd", "/"),
        ("network", network),
        ("route4", route4),
        ("route6", route6),
        ("landlock", "clamp"),
        ("loopback", "1"),
        ("probe4", "1.1.1.1"),
        ("probe4", "2.2.2.2"),
        ("probe6", "::1"),
        ("probe6", "::2"),
        ("port", "9"),
    ]
    return conf.parse(records.dump(items))


E, U, A, F = errno.EPERM, errno.ENETUNREACH, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT


@pytest.mark.parametrize(
    ("network", "routes", "good4", "good6"),
    [
        ("1", "11", {E}, {E}),
        ("1", "10", {E}, {E, U, A, F}),
        ("1", "01", {E, U, A, F}, {E}),
        ("0", "00", {U, A, F}, {U, A, F}),
        ("0", "11", {U, A, F}, {U, A, F}),
    ],
)
def test_every_probe_must_meet_the_wall(network: str, routes: str, good4: set[int], good6: set[int]) -> None:
    """For each network, exactly the expected errors pass; success or any other error on one probe is refused."""
    for number in (E, U, A, F, errno.EACCES, errno.ECONNREFUSED, errno.EHOSTUNREACH, 0):
        for family, good in (("4", good4), ("6", good6)):
            for place in (0, 1):
                addresses = {"4": ["1.1.1.1", "2.2.2.2"], "6": ["::1", "::2"]}
                errors = dict.fromkeys(addresses["4"], min(good4)) | dict.fromkeys(addresses["6"], min(good6))
                errors[addresses[family][place]] = number
                world = World(errors={key: value for key, value in errors.items() if value})
                if number in good:
                    facts = dict(selftest.egress(world, config(network, *routes)))
                    assert facts["egress"] == "ok"
                    assert facts[f"egress_probe{family}"].split(",")[place] == errno.errorcode[number]
                    assert world.sent == [(address, 9) for address in (*addresses["4"], *addresses["6"])]
                else:
                    with pytest.raises(Refused, match="egress-open"):
                        selftest.egress(world, config(network, *routes))


def test_what_podman_took_away_is_seen() -> None:
    """With everything as it must be the identity is measured."""
    world = World(files={"/proc/self/uid_map": b"  0  100000  65536\n"})
    assert dict(selftest.privileges(world, STATUS)) == {
        "uid": "1000",
        "gid": "1001",
        "groups": "5,6",
        "no_new_privs": "1",
        "caps": "none",
        "user_namespace": "own",
    }
    world.files["/proc/self/uid_map"] = b"         0          0 4294967295\n"
    assert dict(selftest.privileges(world, STATUS))["user_namespace"] == "initial"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        *(({key: "0000000000000001"}, "capabilities-held") for key in selftest.CAPABILITY_SETS),
        ({"Threads": "2"}, "not-single-threaded"),
        ({"Seccomp": "0"}, "profile-missing"),
        ({}, "no-new-privs-missing"),
    ],
)
def test_each_privilege_left_is_a_refusal(changes: dict[str, str], reason: str) -> None:
    """One thing not taken away is one refusal with its own reason."""
    world = World(files={"/proc/self/uid_map": b"0 1 1\n"})
    world.nnp = reason != "no-new-privs-missing"
    with pytest.raises(Refused) as error:
        selftest.privileges(world, {**STATUS, **changes})
    assert [refusal.reason for refusal in error.value.refusals] == [reason]


SAFE = os.ST_NOSUID | os.ST_NODEV
MOUNTINFO = "".join(
    f"{number} 1 0:{number} / {point} rw - tmpfs x rw\n"
    for number, point in enumerate(
        ("/", "/r", "/r/sub", "/r/w", "/r/w/x", "/n", "/n/a\\040b", "/w", "/w/c", "/w/c/x", "/h", "/r/h", "/r/h/x")
    )
)
MOUNTS = {
    "/": os.ST_RDONLY,
    "/h": 0,  # of the image
    **dict.fromkeys(("/r", "/r/sub", "/r/h", "/w/c", "/w/c/x"), SAFE | os.ST_RDONLY),
    **dict.fromkeys(("/n", "/n/a b"), SAFE | os.ST_RDONLY | os.ST_NOEXEC),
    **dict.fromkeys(("/w", "/r/w", "/r/w/x"), SAFE),
}


def mounted(**changes: Any) -> World:
    """Return a container with these mounts, and some of them otherwise."""
    world = World(files={"/proc/self/mountinfo": MOUNTINFO.encode()})
    world.mounts = {**MOUNTS, **changes}
    return world


def with_places() -> conf.Conf:
    """Return a configuration with a place of each kind, one in another."""
    found = config("1", "1", "1")
    found.policy = Policy(read=("/r",), noexec=("/n",), write=("/w", "/r/w"), private=("/tmp",))
    found.closed, found.hidden = ("/w/c",), ("/r/h",)
    return found


@pytest.mark.parametrize(
    ("path", "bit", "said"),
    [
        *(
            (path, os.ST_RDONLY, "read-only")
            for path in ("/", "/r", "/r/sub", "/r/h", "/n", "/n/a b", "/w/c", "/w/c/x")
        ),
        *((path, os.ST_NOEXEC, "noexec") for path in ("/n", "/n/a b")),
        *((path, os.ST_NOSUID, "nosuid") for path in MOUNTS if path not in {"/", "/h"}),
        *((path, os.ST_NODEV, "nodev") for path in MOUNTS if path not in {"/", "/h"}),
    ],
)
def test_a_mount_with_more_rights_than_its_place_is_refused(path: str, bit: int, said: str) -> None:
    """What is mounted below a place is as closed as the place; the refusal says what is open, and how."""
    assert selftest.mounts(mounted(), with_places()) == [("mounts", "ok")]
    with pytest.raises(Refused) as error:
        selftest.mounts(mounted(**{path: MOUNTS[path] & ~bit}), with_places())
    assert [one.text for one in error.value.refusals] == [f"{path} must be mounted {said} and is not"]


def test_a_mount_that_cannot_be_looked_at_is_refused() -> None:
    """Below what is hidden nothing can be, and need not."""
    world = World(files={"/proc/self/mountinfo": MOUNTINFO.encode()}, errors={"/r/sub": errno.EACCES})
    world.mounts = MOUNTS
    with pytest.raises(Refused, match=r"mount-open /r/sub must be mounted where it can be looked at \(EACCES\)"):
        selftest.mounts(world, with_places())


DENIED = {selftest.PROOF: errno.EACCES, selftest.OWN_WRITABLE: errno.EACCES, "/": errno.EROFS}


def test_the_filesystem_wall_is_believed_when_every_access_fails() -> None:
    """The report says what each met."""
    assert selftest.filesystem(World(errors=DENIED), ("/",)) == [
        ("read_outside", "EACCES"),
        ("write_outside", "EACCES"),
        ("create_outside", "EROFS"),
    ]


@pytest.mark.parametrize("path", list(DENIED))
@pytest.mark.parametrize("met", [0, errno.ENOENT, errno.EPERM])
def test_an_access_that_is_not_denied_by_the_wall_is_refused(path: str, met: int) -> None:
    """Success, and an error that is not the wall's, both say that it does not stand."""
    errors = {key: value for key, value in {**DENIED, path: met}.items() if value}
    with pytest.raises(Refused, match="landlock-open"):
        selftest.filesystem(World(errors=errors), ("/",))


@pytest.mark.parametrize("path", [selftest.PROOF, selftest.OWN_WRITABLE])
def test_an_access_that_never_worked_is_no_test(path: str) -> None:
    """The control fails loudly, or the denial after it would prove nothing."""
    with pytest.raises(OSError, match=path):
        selftest.control(World(errors={path: errno.EACCES}))


def test_the_filter_must_add_one_and_deny() -> None:
    """One filter more, mode 2 and a denied call, else refused."""
    after = {**STATUS, "Seccomp_filters": "2"}
    assert dict(selftest.filtered(STATUS, after, denied=True)) == {
        "seccomp_mode": "2",
        "seccomp_filters": "2",
        "seccomp_denied": "EPERM",
    }
    for changed, denied, reason in (
        (STATUS, True, "seccomp-missing"),
        ({**after, "Seccomp": "1"}, True, "seccomp-missing"),
        (after, False, "seccomp-open"),
    ):
        with pytest.raises(Refused, match=reason):
            selftest.filtered(STATUS, changed, denied=denied)


def test_a_denied_call_is_eperm_and_nothing_else() -> None:
    """Success and any other error are no denial."""
    assert seccomp.denies(World(errors={"unshare": errno.EPERM}))
    assert not seccomp.denies(World(errors={"unshare": errno.ENOSYS}))
    assert not seccomp.denies(World())


@pytest.mark.parametrize("program", [b"", b"1234567", bytes(8 * 4097)])
def test_bytes_that_are_no_filter_are_refused(program: bytes) -> None:
    """Empty, not whole instructions, and more than the kernel takes."""
    with pytest.raises(Refused, match="seccomp-malformed"):
        seccomp.load(World(), program)


def test_status_is_read_by_field(tmp_path: Path) -> None:
    """Names and values as proc_pid_status(5) writes them."""
    del tmp_path
    world = World(files={"/proc/self/status": b"Name:\tpython3\nSeccomp:\t2\nGroups:\t \n"})
    assert selftest.status(world) == {"Name": "python3", "Seccomp": "2", "Groups": ""}


def test_every_kind_of_failure_reaches_the_launcher() -> None:
    """Refusals keep their reasons side by side; a failed call is named; anything else says what it is."""
    refused = Refused([Refusal("a-b", "text", "hint"), Refusal("c", "d")])
    assert enter.refusals(refused) == [
        ("status", "refused"),
        ("reason", "a-b"),
        ("text", "text"),
        ("hint", "hint"),
        ("reason", "c"),
        ("text", "d"),
        ("hint", ""),
    ]
    failed = OSError(errno.EINVAL, "Invalid argument", "landlock_add_rule")
    assert enter.refusals(failed)[1:3] == [("reason", "stage2-failed"), ("text", "landlock_add_rule: Invalid argument")]
    assert enter.refusals(struct.error("odd"))[2] == ("text", "error: odd")


def test_a_swapped_root_is_refused() -> None:
    """A path whose device or inode is not what was judged is refused by name; the judged one passes."""
    world = World(identities={"/a": (1, 2), "/b": (1, 3)})
    selftest.identities(world, ((1, 2, "/a"), (1, 3, "/b")))
    for judged in ((1, 9, "/a"), (9, 2, "/a"), (1, 2, "/gone")):
        with pytest.raises(Refused) as caught:
            selftest.identities(world, (judged, (1, 3, "/b")))
        assert [(refusal.reason, judged[2] in refusal.text) for refusal in caught.value.refusals] == [
            ("path-swapped", True)
        ]


def test_limits_are_read_back() -> None:
    """Each limit is read from the kernel's own place, and one that cannot be read is its errno, never its wish."""
    lines = b"Limit Soft Hard Units\nMax open files            64                   64                   files\n"
    world = World(
        files={"/sys/fs/cgroup/memory.max": b"1024\n", "/sys/fs/cgroup/pids.max": b"max\n", "/proc/self/limits": lines},
        sizes={"/tmp": 4096},
    )
    found = dict(selftest.limits(world, ("memory", "pids", "nofile", "tmp", "cpus")))
    assert found == {
        "limit_memory": "1024",
        "limit_pids": "max",
        "limit_nofile": "64",
        "limit_tmp": "4096",
        "limit_cpus": "ENOENT",
    }
