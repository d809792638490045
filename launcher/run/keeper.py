"""The keeper: a process of its own beside card-run, which answers the run's hooks and ends the card without card-run.

Forked and not started anew: it costs a millisecond, and its memory is card-run's. It has the hooks' code imported and
the plan read and audited when the runtime starts a hook, so that a hook costs the work that only the container's own
moment allows (hooks.serve); each is done by a process forked for it, which alone holds the answer's FIFO: however that
process ends, the hook is answered or sees the end of file. And it waits on a pipe that only card-run holds; an end of
file without a word before it means that card-run was killed where it cannot act (SIGKILL), and with it whoever would
account for the card.
"""

import os

from hooks import serve
from hooks.prestart import Ready
from launcher.run import command, directory
from launcher.run.directory import RunDirectory
from launcher.run.exchange import Exchange
from launcher.run.spawn import Child

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from typing import NoReturn
else:
    import _signal

_NAME = b"card-keeper"  # not card-run's: who kills all of those means the cards too, and this ends them
_PODMAN_SECONDS = 30
_LAST_FD = (1 << 31) - 1
_WRITTEN, _DONE = b"w", b"."


class Keeper:
    """Our end of the pipe. Held as long as this process lives."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def plan_is_written(self) -> None:
        """Say that the plan is whole: what can be done ahead of the hook, is done now."""
        self._say(_WRITTEN)

    def let_go(self) -> None:
        """Say that the run is accounted for; the other process then ends and touches nothing."""
        self._say(_DONE)
        os.close(self._fd)

    def _say(self, word: bytes) -> None:
        try:
            os.write(self._fd, word)
        except OSError:
            return  # it is gone already: the hooks do their own work


def hold(child: Child, run: RunDirectory, environment: dict[str, str], exchange: Exchange) -> Keeper:
    """Fork the keeper; only while this process has one thread. The exchange is the keeper's alone from then on."""
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        _keep(read_end, child, run, environment, exchange)
    os.close(read_end)
    exchange.close()
    return Keeper(write_end)


def _keep(pipe: int, child: Child, run: RunDirectory, environment: dict[str, str], exchange: Exchange) -> "NoReturn":
    try:
        os.setsid()  # what ends card-run's whole group does not end this
        podman = os.pidfd_open(child.pid)
        _leave_open(pipe, podman, exchange.ask, *exchange.answers.values())
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
        with open("/proc/self/comm", "wb") as file:
            file.write(_NAME)
        if not _Watch(pipe, run, exchange).until_the_end():
            exchange.close()  # the hooks of what comes now are ordinary ones
            _end(podman, child.program, run, environment)
    finally:
        os._exit(0)


def _leave_open(*kept: int) -> None:
    """Close everything else, the plan's lock and the channel among it, and read and write nothing."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    first = 3
    for fd in sorted(kept):
        os.closerange(first, fd)
        first = fd + 1
    os.closerange(first, _LAST_FD)


class _Watch:
    """Waits for what card-run says and what hooks ask, and has hooks served until card-run is done."""

    def __init__(self, pipe: int, run: RunDirectory, exchange: Exchange) -> None:
        self._pipe = pipe
        self._run = run
        self._exchange = exchange
        self._ready: Ready | None = None
        self._tool = serve.tool()

    def until_the_end(self) -> bool:
        """Return whether card-run said that it is done; False when it ended without a word."""
        import select

        poll = select.poll()
        for fd in (self._pipe, self._exchange.ask):
            poll.register(fd, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == self._pipe:
                    word = os.read(fd, 1)
                    if word != _WRITTEN:
                        return word == _DONE
                    self._ready = serve.read_ahead(self._run.path)
                elif fd == self._exchange.ask:
                    for hand in self._asked(os.read(fd, select.PIPE_BUF)):
                        poll.register(hand, select.POLLIN)
                else:
                    poll.unregister(fd)
                    os.waitid(os.P_PIDFD, fd, os.WEXITED)
                    os.close(fd)

    def _asked(self, text: bytes) -> list[int]:
        """Have each hook that asks served by a process of its own; return their pidfds."""
        hands: list[int] = []
        for line in text.splitlines():
            verb, _, pid = line.decode("ascii", "replace").partition(" ")
            if verb not in self._exchange.answers or not pid.isdecimal():
                continue
            # Held by nobody else from here on: the end of who serves it is the end of the file.
            answer = self._exchange.answers.pop(verb)
            try:
                child = os.fork()
            except OSError:  # EAGAIN, ENOMEM: the hook sees the end of file and does its own work
                child = -1
            if child == 0:
                self._serve(verb, int(pid), answer)
            os.close(answer)
            if child > 0:
                hands.append(os.pidfd_open(child))
        return hands

    def _serve(self, verb: str, pid: int, answer: int) -> "NoReturn":
        try:
            status = serve.serve(verb, serve.Client(pid, self._exchange.command(verb)), self._ready, self._tool)
            os.write(answer, b"%d\n" % status)
        finally:
            os._exit(0)


def _end(podman: int, program: str, run: RunDirectory, environment: dict[str, str]) -> None:
    """Remove the container, whatever state it is in, wait for podman to be done with it, and clean up."""
    import select

    _remove(program, run, environment)
    # Without a container yet: stage 2 sees the channel's end and the hook no plan, so podman ends by itself.
    select.select([podman], [], [], _PODMAN_SECONDS)
    _remove(program, run, environment)
    # card-run's own lock went with it; whoever has it now does the same as we.
    taken = directory.take(run.path, wait=True)
    if taken is not None:
        from launcher.life import containers, undo

        undo.undo(taken, containers.Containers(program, environment))


def _remove(program: str, run: RunDirectory, environment: dict[str, str]) -> None:
    if run.read(command.CID) is None:
        return
    cid = f"--cidfile={run / command.CID}"
    words = [program, "--remote=false", "rm", "--force", "--ignore", "--time=0", cid]
    os.waitpid(os.posix_spawn(program, words, environment), 0)
