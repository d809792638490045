"""Landlock's ABI table and the rulesets built from it, through a system call layer in memory."""

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.stage2 import abi, landlock
from launcher.stage2.landlock import Policy
from oci.refusal import Refused
from tests.unit.fake_kernel import FakeKernel

# FACTS: masks as the kernel's headers define them, written here as numbers and not derived from names
MASKS = {
    1: (0x1FFF, 0, 0, 8),
    2: (0x3FFF, 0, 0, 8),
    3: (0x7FFF, 0, 0, 8),
    4: (0x7FFF, 0x3, 0, 16),
    5: (0xFFFF, 0x3, 0, 16),
    6: (0xFFFF, 0x3, 0x3, 24),
    7: (0xFFFF, 0x3, 0x3, 24),
    8: (0xFFFF, 0x3, 0x3, 24),
    9: (0x1FFFF, 0x3, 0x3, 24),
    10: (0x1FFFF, 0xF, 0x3, 48),
    11: (0x1FFFF, 0xF, 0x3, 48),
}
RESTRICT = {**dict.fromkeys(range(1, 7), 0), 7: 0x7, 8: 0xF, 9: 0xF, 10: 0xF, 11: 0x1F}
FILE_ONLY = 0x1C007  # EXECUTE, WRITE_FILE, READ_FILE, TRUNCATE, IOCTL_DEV, RESOLVE_UNIX
READ_FILE, READ_DIR, EXECUTE, REFER, IOCTL_DEV, WRITE_FILE = 1 << 2, 1 << 3, 1, 1 << 13, 1 << 15, 1 << 1
MAKE_CHAR, MAKE_BLOCK = 1 << 6, 1 << 11
TREE = (
    "/dev",
    "/proc",
    "/sys",
    "/usr",
    "/usr/bin",
    "/run",
    "/run/card",
    "/run/card-runtime",
    "/run/other",
    "/tmp",
    "/w",
)
NODES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx")


def fake(
    version: int,
    *,
    directories: tuple[str, ...] = (),
    files: tuple[str, ...] = (),
    links: dict[str, str] | None = None,
    fails: dict[str, int] | None = None,
) -> FakeKernel:
    """Return a kernel with a small image, the usual devices, and what is asked for."""
    tree = [*TREE, "/dev/pts", *directories]
    return FakeKernel(version, directories=tree, files=[*NODES, *files], links=links, fails=fails)


def only_reason(error: pytest.ExceptionInfo[Refused]) -> str:
    """Return the reason of the one refusal an exception carries."""
    (refusal,) = error.value.refusals
    return refusal.reason


@pytest.mark.parametrize("version", sorted(MASKS))
def test_a_row_handles_all_that_its_abi_defines(version: int) -> None:
    """The handled set is complete: an access that is not handled is not checked."""
    fs, net, scoped, size = MASKS[version]
    row = abi.ABIS[version - 1]
    assert (row.abi, row.fs, row.net, row.scoped, row.attr_size, row.restrict) == (
        version, fs, net, scoped, size, RESTRICT[version],
    )  # fmt: skip


def test_the_table_is_known_to_the_end() -> None:
    """Rows are numbered from 1 without gaps, so that an ABI is an index."""
    assert [row.abi for row in abi.ABIS] == list(range(1, 12))


@pytest.mark.parametrize("version", sorted(MASKS))
def test_the_attribute_is_48_bytes_with_unknown_fields_zero(version: int) -> None:
    """Every kernel takes the longest attribute when what it does not know is zero."""
    policy = Policy(loopback=version < 4)
    kernel = fake(version)
    landlock.apply(kernel, landlock.build(version, policy))
    fs, net, scoped, *quiet = struct.unpack("=6Q", kernel.attr)
    assert (fs, net, scoped, quiet) == (*MASKS[version][:3], [0, 0, 0])
    assert kernel.attr[MASKS[version][3] :].strip(b"\0") == b""


@pytest.mark.parametrize("version", sorted(MASKS))
@pytest.mark.parametrize("loopback", [True, False])
def test_no_rule_grants_what_is_not_handled(version: int, *, loopback: bool) -> None:
    """A rule's rights are a subset of the handled set, else the kernel says EINVAL."""
    if version < 4 and not loopback:
        with pytest.raises(Refused):
            landlock.build(version, Policy(loopback=False))
        return
    write = ("/w",) if version > 1 else ()
    kernel = fake(version)
    landlock.apply(kernel, landlock.build(version, Policy(write=write, private=("/tmp",), loopback=loopback)))
    fs, net = MASKS[version][:2]
    assert all(access and access & ~fs == 0 for _, access in kernel.granted())
    ports = [(event[1], event[2]) for event in kernel.events if event[0] == "port"]
    assert all(int(access) & ~net == 0 for _, access in ports)
    assert bool(ports) is (not loopback)


@pytest.mark.parametrize("version", sorted(MASKS))
def test_a_file_rule_carries_only_file_rights(version: int) -> None:
    """More than ACCESS_FILE on anything but a directory is EINVAL."""
    kernel = fake(version, directories=("/r", "/n"), files=("/w/one", "/r/one", "/n/one"))
    policy = Policy(write=("/w/one",) if version > 1 else (), read=("/r/one",), noexec=("/n/one",))
    landlock.apply(kernel, landlock.build(version, policy))
    granted = [access for path, access in kernel.granted() if path in kernel.files]
    assert len(granted) >= 2 + len(NODES)
    assert all(access & ~FILE_ONLY == 0 for access in granted)


def test_text_and_building_are_in_the_same_order() -> None:
    """Each line of the text stands for the rules that are added at that place."""
    kernel = fake(7, directories=("/n", "/r"))
    ruleset = landlock.build(7, Policy(read=("/r",), noexec=("/n",), write=("/w",), private=("/tmp",)))
    landlock.apply(kernel, ruleset)
    order = list(dict.fromkeys(path for path, _ in kernel.granted()))
    printed = [line.split("'")[1] for line in ruleset.lines()[4:]]
    assert printed == [rule.path for rule in ruleset.rules]
    assert printed == [
        "/", "/", "/proc", "/sys", "/r", "/n", "/w", "/tmp", *NODES[:5], "/dev/tty", "/dev/ptmx", "/dev/pts",
    ]  # fmt: skip
    assert [path for path in order if path in printed and path != "/"] == [
        "/r", "/tmp", "/w", "/proc", "/sys", "/n", *NODES[:5], "/dev/tty", "/dev/ptmx", "/dev/pts",
    ]  # fmt: skip


def test_the_text_says_what_is_handled_and_what_is_not() -> None:
    """Leaving the network out is written down, with its reason."""
    lines = landlock.build(7, Policy()).lines()
    assert lines[0] == "landlock abi=7 used=7 kernel=6.15"
    assert lines[1].startswith("fs: EXECUTE,WRITE_FILE,READ_FILE,READ_DIR,")
    assert lines[1].endswith("REFER,TRUNCATE,IOCTL_DEV")
    assert lines[2].startswith("net: not handled: ")
    assert lines[3] == "scoped: ABSTRACT_UNIX_SOCKET,SIGNAL"
    assert "net: BIND_TCP,CONNECT_TCP" in landlock.build(7, Policy(loopback=False)).lines()


def test_ports_without_loopback() -> None:
    """HTTPS may be connected to; from ABI 10 a name may be asked for over UDP from a port the kernel picks."""
    for version, expected in ((4, [(443, 2)]), (9, [(443, 2)]), (10, [(443, 2), (53, 8), (0, 4)])):
        kernel = fake(version)
        landlock.apply(kernel, landlock.build(version, Policy(loopback=False)))
        assert [event[1:] for event in kernel.events if event[0] == "port"] == expected


def test_a_newer_kernel_is_clamped_and_said() -> None:
    """Above the table the highest row is built, and both numbers are kept."""
    ruleset = landlock.build(12, Policy())
    assert (ruleset.abi, ruleset.row.abi) == (12, 11)
    assert "abi=12 used=11" in ruleset.lines()[0]


def test_exact_refuses_a_newer_kernel() -> None:
    """`exact` is for whoever wants no access to exist that the table does not know."""
    with pytest.raises(Refused) as error:
        landlock.build(12, Policy(exact=True))
    assert only_reason(error) == "landlock-too-new"
    assert landlock.build(11, Policy(exact=True)).row.abi == 11


@pytest.mark.parametrize(("policy", "needed"), [(Policy(), 1), (Policy(write=("/w",)), 2), (Policy(loopback=False), 4)])
def test_below_what_a_card_needs_is_refused(policy: Policy, needed: int) -> None:
    """The lowest ABI that works is used; one below it is refused."""
    assert landlock.build(needed, policy).row.abi == needed
    with pytest.raises(Refused) as error:
        landlock.build(needed - 1, policy)
    assert only_reason(error) == "landlock-too-old"


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOSYS, "landlock-missing"),
        (errno.EOPNOTSUPP, "landlock-disabled"),
        (errno.EPERM, "landlock-blocked"),
        (errno.EINVAL, "landlock-failed"),
    ],
)
def test_an_absent_landlock_says_why(number: int, reason: str) -> None:
    """Not built in, not enabled at boot and hidden by a filter are three different things to mend."""
    with pytest.raises(Refused) as error:
        landlock.query_abi(fake(7, fails={"landlock_create_ruleset": number}))
    assert only_reason(error) == reason


def test_the_image_is_granted_around_what_has_less() -> None:
    """No entry of the image's rule holds a place with fewer rights, and everything else is reached."""
    kernel = fake(7, directories=("/usr/lib", "/usr/lib/held", "/usr/lib/other"))
    landlock.apply(kernel, landlock.build(7, Policy(noexec=("/usr/lib/held",))))
    image = [path for path, access in kernel.granted() if access == READ_FILE | READ_DIR | EXECUTE]
    assert image == ["/run/other", "/tmp", "/usr/bin", "/usr/lib/other", "/w"]
    assert kernel.granted()[0] == ("/", READ_DIR)
    assert not kernel.followed & set(image), "what became a link meanwhile is not followed"


def test_nothing_of_ours_is_granted() -> None:
    """The worker reaches neither the proof nor the runtime."""
    kernel = fake(7)
    landlock.apply(kernel, landlock.build(7, Policy(write=("/w",), read=("/usr",))))
    assert [path for path, _ in kernel.granted() if path.startswith("/run")] == ["/run/other"]


def test_around_follows_the_image_s_links() -> None:
    """A mount whose path leads through a link of the image is left out where it really is."""
    kernel = fake(7, directories=("/usr/home", "/usr/home/n", "/usr/home/o"), links={"/home": "/usr/home"})
    landlock.apply(kernel, landlock.build(7, Policy(noexec=("/home/n",))))
    executable = {path for path, access in kernel.granted() if access & EXECUTE}
    assert "/usr/home/o" in executable
    assert not executable & {"/usr", "/usr/home", "/usr/home/n"}


def test_noexec_inside_a_root_that_is_reached_by_a_link() -> None:
    """The walk around it compares real paths with real paths."""
    kernel = fake(
        7, directories=("/usr/home", "/usr/home/r", "/usr/home/r/n", "/usr/home/r/o"), links={"/home": "/usr/home"}
    )
    landlock.apply(kernel, landlock.build(7, Policy(read=("/home/r",), noexec=("/home/r/n",))))
    executable = {path for path, access in kernel.granted() if access & EXECUTE}
    assert "/usr/home/r/o" in executable
    assert not executable & {"/usr/home/r", "/usr/home/r/n"}


def test_noexec_inside_read_is_not_executable() -> None:
    """Reading covers the whole root, executing is granted around the noexec path."""
    kernel = fake(7, directories=("/r", "/r/a", "/r/n", "/r/n/deep"))
    landlock.apply(kernel, landlock.build(7, Policy(read=("/r",), noexec=("/r/n",))))
    rights = dict.fromkeys(path for path, _ in kernel.granted())
    assert [access for path, access in kernel.granted() if path == "/r"] == [READ_FILE | READ_DIR]
    assert [access for path, access in kernel.granted() if path == "/r/n"] == [READ_FILE | READ_DIR]
    assert [access for path, access in kernel.granted() if path == "/r/a"] == [EXECUTE]
    assert "/r/n/deep" not in rights


def test_write_and_read_inside_others_keep_their_rights() -> None:
    """Rules add up, so each root has its own rule with all of its rights wherever it lies."""
    kernel = fake(7, directories=("/r", "/r/w", "/n", "/n/r", "/n/w"))
    landlock.apply(kernel, landlock.build(7, Policy(read=("/r", "/n/r"), noexec=("/n",), write=("/r/w", "/n/w"))))
    rights = dict(kernel.granted())
    assert rights["/n"] == READ_FILE | READ_DIR
    assert rights["/n/r"] == READ_FILE | READ_DIR | EXECUTE
    assert rights["/r/w"] == rights["/n/w"]
    assert rights["/r/w"] & (WRITE_FILE | REFER | EXECUTE) == WRITE_FILE | REFER | EXECUTE


@pytest.mark.parametrize("version", range(2, 12))
def test_refer_is_granted_on_every_writable_root(version: int) -> None:
    """Without REFER on both sides `mv` across directories is a copy, and `ln` fails with EXDEV."""
    kernel = fake(version, directories=("/w2",))
    landlock.apply(kernel, landlock.build(version, Policy(write=("/w", "/w2"), private=("/tmp",))))
    rights = dict(kernel.granted())
    assert rights["/w"] == rights["/w2"] == rights["/tmp"]
    assert rights["/w"] & REFER
    assert rights["/w"] & (MAKE_CHAR | MAKE_BLOCK | IOCTL_DEV) == 0


def test_only_terminals_take_device_ioctls() -> None:
    """The plain devices are readable and writable, without IOCTL_DEV."""
    kernel = fake(7)
    landlock.apply(kernel, landlock.build(7, Policy(write=("/w",), private=("/tmp",))))
    with_ioctl = [path for path, access in kernel.granted() if access & IOCTL_DEV]
    assert with_ioctl == ["/dev/tty", "/dev/ptmx", "/dev/pts"]
    assert all(access & WRITE_FILE for path, access in kernel.granted() if path in NODES)


def test_a_missing_device_is_left_out_and_a_missing_root_is_not() -> None:
    """A container without a terminal starts; one without a named path does not."""
    kernel = fake(7)
    kernel.files.discard("/dev/tty")
    assert landlock.apply(kernel, landlock.build(7, Policy())) == len(kernel.granted())
    with pytest.raises(FileNotFoundError):
        landlock.apply(fake(7), landlock.build(7, Policy(read=("/gone",))))


def test_every_descriptor_is_given_back_before_the_restriction_or_after() -> None:
    """A path's descriptor is closed as soon as its rule is in; the ruleset's after the restriction."""
    kernel = fake(7)
    count = landlock.apply(kernel, landlock.build(7, Policy()))
    assert [event[0] for event in kernel.events[-2:]] == ["restrict", "close"]
    assert sum(event[0] == "close" for event in kernel.events) == count + 1


def test_a_failed_restriction_closes_the_ruleset() -> None:
    """When the kernel says no, the error names the call and no descriptor is left."""
    kernel = fake(7, fails={"landlock_restrict_self": errno.EPERM})
    with pytest.raises(OSError, match="landlock_restrict_self"):
        landlock.apply(kernel, landlock.build(7, Policy()))
    assert kernel.events[-1] == ("close", "ruleset")


def test_errata_are_recorded_where_the_kernel_tells_them() -> None:
    """They are for the receipt and never decide."""
    assert landlock.query_errata(fake(7)) == "0x7"
    assert landlock.query_errata(fake(6, fails={"landlock_create_ruleset": errno.EINVAL})) == "unknown"


PATHS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))


@given(tree=st.sets(PATHS, max_size=12), holes=st.sets(PATHS, max_size=4))
def test_entries_cover_all_but_the_holes(tree: set[str], holes: set[str]) -> None:
    """Every path is covered exactly when it is neither a hole, nor below one, nor a directory above one."""
    full = {"/" + "/".join(path[1:].split("/")[:depth]) for path in tree for depth in range(1, 4)}
    kernel = FakeKernel(7, directories=full)
    found = landlock.entries(kernel, "/", tuple(holes))
    for path in full:
        covered = any(path == entry or landlock.inside(path, entry) for entry in found)
        held = any(path == hole or landlock.inside(path, hole) or landlock.inside(hole, path) for hole in holes)
        assert covered is not held
