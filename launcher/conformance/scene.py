"""The scene of a trial: directories, a secret, a variable, listeners and a process of this machine to be kept from.

Made anew for each trial and taken down with it. What it sees, it sees from outside the executor.
"""

import contextlib
import fcntl
import functools
import hashlib
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Self

from launcher.conformance import probes
from launcher.conformance.probes import Probe

VARIABLE = "CARD_CONFORMANCE_MARKER"
_SECONDS = 5
# Says each signal that it takes: SIGUSR1 is counted, SIGUSR2 asks for the count.
_WAITER = """
import signal
wanted = {signal.SIGUSR1, signal.SIGUSR2}
signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
print("ready", flush=True)
count = 0
while True:
    if signal.sigwait(wanted) == signal.SIGUSR1:
        count += 1
    else:
        print(count, flush=True)
"""


class Scene:
    """One trial's surroundings. `work` is to be given for writing, `read` for reading, `outside` not at all.

    An executor that claims `resource_limits` is to keep `descriptors` as the most open files of a process.
    """

    descriptors = probes.DESCRIPTORS

    def __init__(self, base: str) -> None:
        self.work, self.read, self.outside = (f"{base}/{name}" for name in ("work", "read", "outside"))
        self.secret, self.given, self.marker = (secrets.token_hex(8) for _ in range(3))
        self.mark = f"conformance-{secrets.token_hex(8)}"
        self._held = contextlib.ExitStack()
        self._told: set[bytes] = set()
        self._signals = 0

    def __enter__(self) -> Self:
        self._fill()
        self._before = os.environ.get(VARIABLE)
        os.environ[VARIABLE] = self.marker
        self._held.callback(self._forget_variable)
        self._listen()
        self._wait()
        return self

    def __exit__(self, *_: object) -> None:
        # What an attempt left behind ends at the sight of this.
        _put(f"{self.work}/stop", "")
        self._held.close()

    def _forget_variable(self) -> None:
        if self._before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = self._before

    def _fill(self) -> None:
        for path in (self.work, self.read, self.outside):
            os.makedirs(path)
        for name in ("file", "kept", "linked"):
            _put(f"{self.outside}/{name}", "")
        _put(f"{self.outside}/secret", self.secret)
        _put(f"{self.read}/given", self.given)
        os.symlink("../outside/linked", f"{self.work}/to_linked")
        os.symlink("../outside/secret", f"{self.work}/to_secret")

    def _listen(self) -> None:
        # One listener for both families, where there are both (ipv6(7), IPV6_V6ONLY).
        both = has_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        self._tcp = self._held.enter_context(
            socket.create_server(("", 0), family=family, dualstack_ipv6=both, backlog=64)
        )
        self.port: int = self._tcp.getsockname()[1]
        self._udp = self._held.enter_context(socket.socket(family, socket.SOCK_DGRAM))
        if both:
            self._udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self._udp.bind(("", self.port))
        self._abstract = self._held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        self._abstract.bind(f"\0{self.mark}")
        self._abstract.listen(64)

    def _wait(self) -> None:
        words = [sys.executable, "-I", "-S", "-c", _WAITER, self.mark]
        self._process = self._held.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE))
        self._held.callback(self._process.kill)
        self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None  # noqa: S101 - it was asked for above
        return self._process.stdout.readline().decode().strip()

    def words(self, probe: Probe, *, work: str, read: str) -> list[str | int]:
        """Return a probe's attempt, for an executor that has the two directories at these paths."""
        return [self._filled(word, probe, work, read) for word in probe.attempt]

    def _filled(self, word: str | int, probe: Probe, work: str, read: str) -> str | int:
        if isinstance(word, int):
            return word
        places = {"work": work, "read": read, "work_here": self.work, "read_here": self.read, "outside": self.outside}
        told = {"secret": self.secret, "given": self.given, "marker": self.marker, "mark": self.mark, "name": VARIABLE}
        numbers = {"pid": self._process.pid, "port": self.port}
        addresses = {"address": own_address(), "address6": own_address(socket.AF_INET6)}
        text = word.format(**places, **told, **numbers, **addresses, token=self._token(probe))
        return int(text) if word.endswith(":d}") else text

    def _token(self, probe: Probe) -> str:
        """Return the word that this attempt leaves, and no other."""
        return hashlib.sha256(f"{self.mark} {probe.name}".encode()).hexdigest()[:16]

    def seen(self, probe: Probe, answer: str) -> bool:
        """Return whether the probe's effect is there, and take it back."""
        of, token = str(self._filled(probe.of, probe, self.work, self.read)), self._token(probe)
        effects: dict[str, Callable[[], bool]] = {
            probes.SAYS: lambda: of in answer,
            probes.HOLDS: lambda: _holds(of, token),
            probes.GONE: lambda: _gone(of),
            probes.HEARD: lambda: self._heard(bytes.fromhex(token)),
            probes.SIGNALLED: self._signalled,
            probes.LOCKED: lambda: self._locked(of),
        }
        return effects[probe.effect]()

    def _locked(self, path: str) -> bool:
        """Return whether something of the attempt still lives; it is then told to end, and has ended."""
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                _put(f"{self.work}/stop", "")
                fcntl.flock(file, fcntl.LOCK_EX)
                os.unlink(f"{self.work}/stop")
                return True
        return False

    def _signalled(self) -> bool:
        # Signals of lower numbers are taken first, so the count is whole when it is asked for (signal(7)).
        os.kill(self._process.pid, signal.SIGUSR2)
        before, self._signals = self._signals, int(self._answer())
        return self._signals > before

    def _heard(self, token: bytes) -> bool:
        """Return whether any listener was told the token: all that came before a word of our own, which is last."""
        last = secrets.token_bytes(8)
        with socket.create_connection(("127.0.0.1", self.port)) as asker:
            asker.sendall(last)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asker:
            asker.connect(f"\0{self.mark}")
            asker.sendall(last)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
            asker.sendto(last, ("127.0.0.1", self.port))
        self._told.update(_accepted(self._tcp, last), _accepted(self._abstract, last), _datagrams(self._udp, last))
        heard = token in self._told
        self._told.discard(token)
        return heard


# A place somewhere in the network, and the loopback (RFC 5737, RFC 3849).
_FAMILIES = {socket.AF_INET: ("198.51.100.1", "127.0.0.1"), socket.AF_INET6: ("2001:db8::1", "::1")}


def own_address(family: socket.AddressFamily = socket.AF_INET) -> str:
    """Return this machine's address towards the network, or its loopback where it has none."""
    elsewhere, loopback = _FAMILIES[family]
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as asker:
            asker.connect((elsewhere, 9))  # sends nothing: it only chooses a route
            return str(asker.getsockname()[0])
    except OSError:
        return loopback


@functools.cache
def has_ipv6() -> bool:
    """Return whether this machine has an IPv6 loopback, without which none of its IPv6 can be reached from itself."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as asker:
            asker.bind(("::1", 0))
    except OSError:
        return False
    return True


def _put(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def _holds(path: str, token: str) -> bool:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            found = token in file.read()
    except FileNotFoundError:
        return False
    _put(path, "")
    return found


def _gone(path: str) -> bool:
    gone = not os.path.exists(path)
    _put(path, "")
    return gone


def _accepted(server: socket.socket, last: bytes) -> list[bytes]:
    server.settimeout(_SECONDS)
    told = [b""]
    while told[-1] != last:
        with server.accept()[0] as one:
            one.settimeout(_SECONDS)
            try:
                told.append(one.recv(64))
            except OSError:
                told.append(b"")
    return told


def _datagrams(server: socket.socket, last: bytes) -> list[bytes]:
    server.settimeout(_SECONDS)
    told = [b""]
    while told[-1] != last:
        told.append(server.recv(64))
    return told
