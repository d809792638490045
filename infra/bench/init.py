"""The bench's first process: brings up the network and the world, runs the command, reaps, passes signals on.

Runs inside, by the bench's own interpreter. When it exits, the kernel kills whatever else runs in the bench.
Imports the standard library and siblings.
"""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from typing import Any, NoReturn

from infra.bench import link, servers
from infra.bench.linux import CLONE_NEWNET, unshare
from infra.bench.rootfs import UID, USER
from infra.bench.view import CONTAINER_STORAGE, ENTRY_FILE, EXIT_CANNOT_ENTER, environment
from infra.bench.world import World, build

FORWARDED = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2})
SI_KERNEL = 0x80  # asm-generic/siginfo.h: the terminal's own signals, which the command has too
RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores these, and exec would hand that on


def main() -> NoReturn:
    """Run the entry that was left for us, and exit with its command's status."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {*FORWARDED, signal.SIGCHLD})
    with open(ENTRY_FILE, encoding="utf-8") as file:
        entry = json.load(file)
    os.unlink(ENTRY_FILE)
    socket.sethostname("bench")
    process = _network(build(entry["world"]))
    _remove_containers()
    command = os.fork()
    if command == 0:
        _execute(entry)
    status = _wait(command, process)
    _remove_containers()
    os._exit(status)


def _network(world: World) -> int:
    """Make the world in a child and the link to it; return the child's pid when all its servers listen."""
    mine, its = socket.socketpair()
    process = os.fork()
    if process == 0:
        mine.close()
        unshare(CLONE_NEWNET)
        link.quieten()
        servers.main(world, its)
    its.close()
    link.quieten()
    _resolver_files(world)
    _open_low_ports()
    if mine.recv(1) == servers.READY:
        link.bring_up_bench(world, process)
        mine.sendall(servers.READY)
        if mine.recv(1) == servers.READY:
            return process
    os._exit(EXIT_CANNOT_ENTER)


def _resolver_files(world: World) -> None:
    """Write /etc/resolv.conf: the world's name server and nothing else."""
    with open("/etc/resolv.conf", "w", encoding="ascii") as file:
        file.writelines(f"nameserver {address}\n" for address in world.resolver.configured)


def _open_low_ports() -> None:
    """Let the bench's user listen on port 53: a test needs a resolver on the bench's loopback (ip-sysctl)."""
    with open("/proc/sys/net/ipv4/ip_unprivileged_port_start", "w", encoding="ascii") as file:
        file.write("53")


def _remove_containers() -> None:
    """Remove what containers are in podman's storage: images persist from run to run, run state does not.

    Before the command that is what a killed run left; after it, what the command did. podman is asked only when its
    storage lists a container, so this costs nothing otherwise.
    """
    for as_root, home in ((False, f"/{CONTAINER_STORAGE['user']}"), (True, f"/{CONTAINER_STORAGE['root']}")):
        try:
            with open(f"{home}/storage/overlay-containers/containers.json", "rb") as file:
                listed = file.read().strip()
        except FileNotFoundError:
            continue
        if listed not in {b"", b"[]", b"null"}:
            _run_quietly(["/usr/bin/podman", "rm", "--all", "--force", "--volumes", "--time=0"], as_root=as_root)


def _run_quietly(argv: list[str], *, as_root: bool) -> None:
    """Run a program as root or the user; what it says is shown only if it fails."""
    owner = 0 if as_root else UID
    done = subprocess.run(
        argv,
        check=False,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        env=environment(as_root=as_root),
        user=owner,
        group=owner,
        extra_groups=[],
        cwd="/",
    )
    if done.returncode != 0:
        sys.stderr.write(f"bench: {' '.join(argv)}: {done.stderr.decode(errors='replace').strip()}\n")


def _execute(entry: "dict[str, Any]") -> NoReturn:
    """Become the command, as the user; 127 and 126 as a shell would say them."""
    for number in RESTORED:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if not entry["as_root"]:
        _give_pipes()
        os.initgroups(USER, UID)
        os.setgid(UID)
        os.setuid(UID)
    argv: list[str] = entry["argv"]
    try:
        os.chdir(entry["cwd"])
        os.execvpe(argv[0], argv, entry["environment"])  # noqa: S606 - no shell
    except FileNotFoundError as error:
        sys.stderr.write(f"bench: {argv[0]}: {error.strerror}\n")
        os._exit(127)
    except OSError as error:
        sys.stderr.write(f"bench: {argv[0]}: {error.strerror}\n")
        os._exit(126)
    finally:
        os._exit(EXIT_CANNOT_ENTER)


def _give_pipes() -> None:
    """Let the user open its own standard streams by name (/dev/stderr) when they are pipes: those belong to root."""
    for descriptor in range(3):
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            os.fchown(descriptor, UID, UID)


def _wait(command: int, world: int) -> int:
    """Reap children until the command is among them; return its status."""
    while True:
        got = signal.sigwaitinfo({*FORWARDED, signal.SIGCHLD})
        if got.si_signo != signal.SIGCHLD:
            if got.si_code != SI_KERNEL:
                os.kill(command, got.si_signo)
            continue
        pid, status = os.waitpid(-1, os.WNOHANG)
        while pid:
            if pid == command:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            if pid == world:
                sys.stderr.write("bench: the world has ended\n")
            pid, status = os.waitpid(-1, os.WNOHANG)
