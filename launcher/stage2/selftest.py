"""What stage 2 sees of its walls from inside, before anything of the worker runs.

Each check raises Refused with what it saw, and returns what it measured for the report. A denial is only believed next
to its control: the same access, made by the same process before the wall stood. Imports the system call layer.
"""

import errno
import os

from launcher.stage2.conf import Conf
from launcher.stage2.landlock import inside
from launcher.stage2.syscalls import AF_INET, AF_INET6, Kernel
from oci import mountinfo, records
from oci.refusal import Refusal, Refused

PROOF = "/run/card/proof"
# The second one, of a warm card that a run has taken: of the run's own table.
TAKEN = "/run/card/taken"
# What the report repeats of it: the plan, and what the hook found in the kernel.
PROVED = ("digest", "table", "netns", "allow", "deny", "names")
# Writable by every process for itself, whatever user it runs as, on a mount that is never read-only: what refuses it
# after the restriction is Landlock and nothing else. Opening it changes nothing.
OWN_WRITABLE = "/proc/self/comm"
CGROUP_FILES = {"memory": "memory.max", "cpus": "cpu.max", "pids": "pids.max"}
TMPFS = {"shm": "/dev/shm", "tmp": "/tmp"}  # noqa: S108 - the card's own
CAPABILITY_SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")


def refuse(reason: str, text: str, hint: str = "") -> Refused:
    """Return the exception that carries one refusal."""
    return Refused([Refusal(reason, text, hint)])


def name_of(number: "int | None") -> str:
    """Return an errno's name, `OK` for None."""
    return "OK" if number is None else errno.errorcode.get(number, str(number))


def proof(kernel: Kernel, run: str, nonce: str, path: str = PROOF) -> "list[tuple[str, str]]":
    """Return what the hook's proof says; raises Refused when it is missing, or for another run, start or network."""
    try:
        values = records.load(kernel.read_file(path))
    except (OSError, ValueError) as error:
        text = f"no proof that the network wall stands: {error}"
        raise refuse("no-proof", text, "the prestart hook did not run or refused; see `card hooks status`") from error
    expected = {"run": run, "nonce": nonce, "netns": network_namespace(kernel)}
    wrong = [key for key, value in expected.items() if values.get(key) != [value]]
    if wrong:
        text = f"the proof is of another start: {', '.join(wrong)} differs"
        raise refuse("proof-mismatch", text, "a run is one-shot: start a new one with card-run")
    return [("proof", "ok"), *((key, values.get(key, [""])[0]) for key in PROVED)]


def network_namespace(kernel: Kernel) -> str:
    """Return the inode of this process's network namespace in decimal."""
    return kernel.readlink("/proc/self/ns/net").removeprefix("net:[").removesuffix("]")


def egress(kernel: Kernel, conf: Conf) -> "list[tuple[str, str]]":
    """Return what a datagram to each never-allowed address met; raises Refused when one met anything but the wall."""
    found4 = [_probe(kernel, AF_INET, address, conf.port) for address in conf.probes4]
    found6 = [_probe(kernel, AF_INET6, address, conf.port) for address in conf.probes6]
    _judge(conf.probes4, found4, _expected(network=conf.network, route=conf.route4))
    _judge(conf.probes6, found6, _expected(network=conf.network, route=conf.route6))
    return [
        ("egress", "ok"),
        ("egress_probe4", ",".join(name_of(number) for number in found4)),
        ("egress_probe6", ",".join(name_of(number) for number in found6)),
    ]


def _expected(*, network: bool, route: bool) -> "frozenset[int]":
    """Return what a probe must meet. nft answers from the output hook at once, but only what has a route gets there."""
    if network and route:
        return frozenset({errno.EPERM})
    # EAFNOSUPPORT: a kernel without that family
    unreachable = {errno.ENETUNREACH, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
    return frozenset(unreachable | {errno.EPERM} if network else unreachable)


def _probe(kernel: Kernel, family: int, address: str, port: int) -> "int | None":
    try:
        kernel.send_datagram(family, address, port)
    except OSError as error:
        return error.errno
    return None


def _judge(addresses: "tuple[str, ...]", found: "list[int | None]", expected: "frozenset[int]") -> None:
    wrong = [
        f"{address} {name_of(number)}"
        for address, number in zip(addresses, found, strict=True)
        if number not in expected
    ]
    if wrong:
        wanted = " or ".join(sorted(name_of(number) for number in expected))
        raise refuse("egress-open", f"a datagram must meet {wanted}, and did not: {', '.join(wrong)}")


def status(kernel: Kernel) -> "dict[str, str]":
    """Return the fields of /proc/self/status, see proc_pid_status(5)."""
    text = kernel.read_file("/proc/self/status").decode("ascii", "replace")
    fields = (line.partition(":") for line in text.splitlines())
    return {key: value.strip() for key, _, value in fields}


def privileges(kernel: Kernel, fields: "dict[str, str]") -> "list[tuple[str, str]]":
    """Return what was measured of privileges; raises Refused with everything that podman should have taken away."""
    refusals: list[Refusal] = []
    if not kernel.no_new_privs():
        refusals.append(Refusal("no-new-privs-missing", "execve could grant privileges: no_new_privs is not set"))
    held = [f"{key}={fields[key]}" for key in CAPABILITY_SETS if int(fields[key], 16)]
    if held:
        refusals.append(Refusal("capabilities-held", f"capabilities are left: {' '.join(held)}"))
    if fields["Threads"] != "1":
        refusals.append(Refusal("not-single-threaded", f"Landlock holds one thread of {fields['Threads']}"))
    if fields["Seccomp"] != "2":
        refusals.append(Refusal("profile-missing", "podman's seccomp profile is not in force"))
    if refusals:
        raise Refused(refusals)
    return [
        ("uid", fields["Uid"].split()[1]),
        ("gid", fields["Gid"].split()[1]),
        ("groups", ",".join(fields["Groups"].split())),
        ("no_new_privs", "1"),
        ("caps", "none"),
        ("user_namespace", user_namespace(kernel)),
    ]


def user_namespace(kernel: Kernel) -> str:
    """Return `initial` where every user id means itself on the bench, else `own`, see user_namespaces(7)."""
    identity = ["0", "0", "4294967295"]
    return "initial" if kernel.read_file("/proc/self/uid_map").decode().split() == identity else "own"


def mounts(kernel: Kernel, conf: Conf) -> "list[tuple[str, str]]":
    """Return that the mounts are as the policy needs them; raises Refused with each that is more open than its place.

    Where rights cannot be taken away from a part of a writable tree by Landlock, the mount alone holds them; and a
    bind gives its options to the top of what it brings, so that what is mounted below is looked at too.
    """
    policy, both = conf.policy, os.ST_NOSUID | os.ST_NODEV
    places = dict.fromkeys(policy.write, both)
    places |= dict.fromkeys((*policy.read, *conf.closed), both | os.ST_RDONLY)
    places |= dict.fromkeys(policy.noexec, both | os.ST_RDONLY | os.ST_NOEXEC)
    points = {point for _, _, point in mountinfo.mounts(kernel.read_file("/proc/self/mountinfo"))}
    wanted = {**{point: mountinfo.innermost(point, places, 0) for point in points}, **places, "/": os.ST_RDONLY}
    lacking = {
        path: _lacks(kernel, path, flags)
        for path, flags in sorted(wanted.items())
        if flags and not any(inside(path, hidden) for hidden in conf.hidden)
    }
    refusals = [
        Refusal("mount-open", f"{path} must be mounted {', '.join(names)} and is not", _MOUNT_HINT)
        for path, names in lacking.items()
        if names
    ]
    if refusals:
        raise Refused(refusals)
    return [("mounts", "ok")]


_MOUNT_HINT = "something is mounted there: name a narrower path"
_MOUNT_FLAGS = {os.ST_RDONLY: "read-only", os.ST_NOEXEC: "noexec", os.ST_NOSUID: "nosuid", os.ST_NODEV: "nodev"}


def _lacks(kernel: Kernel, path: str, flags: int) -> "list[str]":
    """Return which flags the mount at a path lacks, in words."""
    try:
        there = kernel.mount_flags(path)
    except OSError as error:
        return [f"where it can be looked at ({name_of(error.errno)})"]
    return [name for flag, name in _MOUNT_FLAGS.items() if flags & flag & ~there]


def identities(kernel: Kernel, judged: "tuple[tuple[int, int, str], ...]") -> None:
    """See that each path is the very file or directory that was judged; raises Refused for one that was swapped."""
    swapped = [path for device, inode, path in judged if kernel.identity(path) != (device, inode)]
    if swapped:
        hint = "something on the bench replaced it between the check and the start"
        raise Refused([Refusal("path-swapped", f"{path} is not what was judged", hint) for path in swapped])


def link(kernel: Kernel, interface: str) -> "list[tuple[str, str]]":
    """Return the index of the interface's other end, as the kernel has it (sysfs-class-net `iflink`)."""
    if not interface:
        return []
    return [("link", kernel.read_file(f"/sys/class/net/{interface}/iflink").decode().strip())]


def limits(kernel: Kernel, names: "tuple[str, ...]") -> "list[tuple[str, str]]":
    """Return each named limit as it is in force: cgroup-v2's own files, tmpfs sizes in bytes, RLIMIT_NOFILE."""
    return [(f"limit_{name}", _limit(kernel, name)) for name in names]


def _limit(kernel: Kernel, name: str) -> str:
    try:
        if name in CGROUP_FILES:
            return kernel.read_file(f"/sys/fs/cgroup/{CGROUP_FILES[name]}").decode().strip()
        if name in TMPFS:
            return str(kernel.size(TMPFS[name]))
        lines = kernel.read_file("/proc/self/limits").decode().splitlines()
        return next(line.split()[3] for line in lines if line.startswith("Max open files"))
    except OSError as error:
        return name_of(error.errno)


def control(kernel: Kernel) -> None:
    """Make the accesses that Landlock must deny later; raises OSError when one does not work even without it."""
    for path, flags in ((PROOF, os.O_RDONLY), (OWN_WRITABLE, os.O_WRONLY)):
        kernel.close(kernel.open(path, flags))


def filesystem(kernel: Kernel, outside: "tuple[str, ...]") -> "list[tuple[str, str]]":
    """Return what reading and writing outside the policy met; raises Refused unless each was denied."""
    denied = {PROOF: os.O_RDONLY, OWN_WRITABLE: os.O_WRONLY}
    met = {path: _met(kernel, path, flags) for path, flags in denied.items()}
    wrong = [f"{path} {name_of(number)}" for path, number in met.items() if number != errno.EACCES]
    # A new file without a name: should it succeed against all odds, nothing is left behind.
    unnamed = {path: _met(kernel, path, os.O_TMPFILE | os.O_WRONLY) for path in outside}
    # On a read-only mount EROFS comes before Landlock is asked.
    wrong += [f"{path} {name_of(n)}" for path, n in unnamed.items() if n not in {errno.EACCES, errno.EROFS}]
    if wrong:
        raise refuse("landlock-open", f"an access outside the policy must fail and did not: {', '.join(wrong)}")
    return [
        ("read_outside", name_of(met[PROOF])),
        ("write_outside", name_of(met[OWN_WRITABLE])),
        ("create_outside", ",".join(name_of(number) for number in unnamed.values())),
    ]


def _met(kernel: Kernel, path: str, flags: int) -> "int | None":
    try:
        kernel.close(kernel.open(path, flags))
    except OSError as error:
        return error.errno
    return None


def filtered(before: "dict[str, str]", after: "dict[str, str]", *, denied: bool) -> "list[tuple[str, str]]":
    """Return what was measured of the filter; raises Refused unless there is one more than before and it denies."""
    count = [int(fields.get("Seccomp_filters", "0")) for fields in (before, after)]
    if after["Seccomp"] != "2" or count[1] != count[0] + 1:
        raise refuse("seccomp-missing", f"the filter is not in force: {count[0]} filters before, {count[1]} after")
    if not denied:
        raise refuse("seccomp-open", "unshare(2) must fail with EPERM and did not")
    return [("seccomp_mode", after["Seccomp"]), ("seccomp_filters", str(count[1])), ("seccomp_denied", "EPERM")]
