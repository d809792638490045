"""The bench's first process: brings up the network and the world, runs the command, reaps, passes signals on.

Runs inside, by the bench's own interpreter. When it exits, the kernel kills whatever else runs in the bench.
Imports the standard library and siblings.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from typing import Any, NoReturn

from infra.bench.rootfs import UID, USER
from infra.bench.view import ENTRY_FILE, EXIT_CANNOT_ENTER

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
    _network()
    command = os.fork()
    if command == 0:
        _execute(entry)
    os._exit(_wait(command))


def _network() -> None:
    """Bring up the loopback interface."""
    subprocess.run(["/usr/sbin/ip", "link", "set", "lo", "up"], check=True)


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


def _wait(command: int) -> int:
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
            pid, status = os.waitpid(-1, os.WNOHANG)
