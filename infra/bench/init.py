"""The bench's first process: brings up the network and the world, runs the command, reaps, passes signals on.

Runs inside, by the bench's own interpreter. When it exits, the kernel kills whatever else runs in the bench.
Imports the standard library and siblings.
"""

import json
import os
import signal
import socket
import sys
from typing import Any, NoReturn

from infra.bench import link, servers
from infra.bench.linux import CLONE_NEWNET, unshare
from infra.bench.rootfs import UID, USER
from infra.bench.view import ENTRY_FILE, EXIT_CANNOT_ENTER
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
    command = os.fork()
    if command == 0:
        _execute(entry)
    status = _wait(command, process)
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


def _execute(entry: "dict[str, Any]") -> NoReturn:
    """Become the command, as the user; 127 and 126 as a shell would say them."""
    for number in RESTORED:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if not entry["as_root"]:
        os.initgroups(USER, UID)
        os.setgid(UID)
        os.setuid(UID)
    argv: list[str] = entry["argv"]
    environment: dict[str, str] = entry["environment"]
    try:
        os.chdir(entry["cwd"])
        os.execvpe(argv[0], argv, environment)  # noqa: S606 - no shell
    except FileNotFoundError as error:
        sys.stderr.write(f"bench: {argv[0]}: {error.strerror}\n")
        os._exit(127)
    except OSError as error:
        sys.stderr.write(f"bench: {argv[0]}: {error.strerror}\n")
        os._exit(126)
    finally:
        os._exit(EXIT_CANNOT_ENTER)


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
