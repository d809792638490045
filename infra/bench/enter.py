"""Entering the bench: the namespaces, the sweeper that leaves nothing behind, and waiting with the signals passed on.

Three processes. The caller's (in a private mount namespace, so that the machine sees none of ours) waits and passes
signals on. The first process of the new pid namespace builds the view (`view`) and becomes `init`; the kernel kills
it, and so everything in the bench, when the caller dies, however it dies. The sweeper outlives both for a moment and
removes what is not a process or a mount: the control group and, for a fresh run, its storage.
Imports the standard library and siblings.
"""

import os
import select
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

from infra.bench import layout, linux, view
from infra.debian import say

FORWARDED = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2})
ENDING = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
GRACE_SECONDS = 10
SWEEP_MILLISECONDS = 5000
SI_KERNEL = 0x80  # asm-generic/siginfo.h: the terminal's own signals, which the whole foreground group has already


@dataclass(frozen=True, slots=True)
class Group:
    """The run's control group: its name at the top of the hierarchy, and where that hierarchy is mounted for us."""

    hierarchy: Path
    name: str

    @property
    def path(self) -> Path:
        """The group's folder."""
        return self.hierarchy / self.name


def run(entry: view.Entry, *, scratch: Path | None) -> int:
    """Run the entry's command in the bench and return its exit status, 128+n when signal n ended it.

    `scratch` is a folder to remove afterwards. Call once per process: it changes the process's mount and pid namespace.
    """
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
    view.stage()
    group = _make_group()
    signal.pthread_sigmask(signal.SIG_BLOCK, {*FORWARDED, signal.SIGCHLD})
    reader, writer = os.pipe()
    sweeper = os.fork()
    if sweeper == 0:
        os.close(writer)
        _sweep(reader, group, scratch)
    terminal = _foreground_terminal()
    linux.unshare(linux.CLONE_NEWPID)
    first = os.fork()
    if first == 0:
        os.close(writer)
        _first(reader, entry, group)
    try:
        return _supervise(first)
    finally:
        _take_back(terminal)
        os.close(writer)
        os.waitpid(sweeper, 0)


def _make_group() -> Group:
    """Make the run's control group, at the top so that it has the machine's controllers, with a leaf for our own."""
    group = Group(hierarchy=layout.STAGING / "cgroup", name=f"card-run-bench-{os.getpid()}")
    group.path.mkdir()
    (group.path / "bench").mkdir()
    return group


def _sweep(reader: int, group: Group, scratch: Path | None) -> None:
    """Wait until the caller is gone, remove what it leaves, exit. Has no terminal, no standard streams, no signals."""
    try:
        os.setsid()
        nothing = os.open("/dev/null", os.O_RDWR)
        for descriptor in range(3):
            os.dup2(nothing, descriptor)
        os.read(reader, 1)
        _remove_group(group)
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
    finally:
        os._exit(0)


def _remove_group(group: Group) -> None:
    """Kill what is left in the control group, wait until it is empty, remove it and those below it."""
    kill = group.path / "cgroup.kill"  # since Linux 5.14
    if kill.exists():
        kill.write_text("1", encoding="ascii")
    with (group.path / "cgroup.events").open("rb", buffering=0) as events:
        changed = select.poll()
        changed.register(events, select.POLLPRI)
        while b"populated 1" in events.read() and changed.poll(SWEEP_MILLISECONDS):
            events.seek(0)
    for folder, _, _ in os.walk(group.path, topdown=False):
        Path(folder).rmdir()


def _first(reader: int, entry: view.Entry, group: Group) -> None:
    """Be the first process of the pid namespace: join the control group, build the view, become init."""
    try:
        linux.die_with_parent()
        if select.select([reader], [], [], 0)[0]:  # the caller died before that
            os._exit(view.EXIT_CANNOT_ENTER)
        os.close(reader)
        (group.path / "bench" / "cgroup.procs").write_text("0", encoding="ascii")
        view.enter(entry, group=group.path)
    except Exception as error:  # noqa: BLE001 - this is the child's main(): report and end
        say("bench", f"cannot enter: {error}")
    finally:
        os._exit(view.EXIT_CANNOT_ENTER)


def _supervise(first: int) -> int:
    """Wait for the first process, passing signals on; a second ending signal, or a long wait after one, kills it."""
    asked = 0
    while True:
        got = signal.sigtimedwait({*FORWARDED, signal.SIGCHLD}, GRACE_SECONDS if asked else 3600)
        if got is not None and got.si_signo == signal.SIGCHLD:
            pid, status = os.waitpid(first, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                return 128 + asked if code == -signal.SIGKILL and asked else abs(code) + 128 * (code < 0)
        elif got is None and not asked:
            continue
        elif asked and (got is None or got.si_signo in ENDING):
            os.kill(first, signal.SIGKILL)
        elif got is not None and got.si_code != SI_KERNEL:
            os.kill(first, got.si_signo)
            asked = got.si_signo if got.si_signo in ENDING else asked


def _foreground_terminal() -> int | None:
    """Return the descriptor of the terminal whose foreground group is ours, if there is one."""
    for descriptor in range(3):
        if os.isatty(descriptor) and os.tcgetpgrp(descriptor) == os.getpgrp():
            return descriptor
    return None


def _take_back(terminal: int | None) -> None:
    """Make ours the foreground group again: a shell in the bench may have ended without giving the terminal back."""
    if terminal is None:
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    os.tcsetpgrp(terminal, os.getpgrp())
