"""Conformance suites: card-run's own executor, and executors that are broken on purpose, one for each claim.

Run by test_conformance.py, and by hand:

    pytest -p launcher.conformance.plugin /src/tests/api/suites.py::TestCard --card-conformance-live=TestCard
"""

import os
import subprocess
from collections.abc import Mapping, Sequence

from launcher import ExecutorSet, Profile, Root, Settings
from launcher.conformance import Conformance, HostProcess, Ran, Scene, Target
from launcher.conformance.scene import VARIABLE
from tests.bench.cards import IMAGE

DENIED = (
    Target("198.51.100.66", 443),
    Target("203.0.113.10", 22),
    Target("169.254.169.254", 80),
    Target("203.0.113.10", 443, "udp"),
)
ALLOWED = (Target("203.0.113.10", 443), Target("203.0.113.11", 443))


class Card:
    """card-run's executor as a subject: it claims what its first run measured."""

    def __init__(self, scene: Scene, *, roots: tuple[Root, ...] = (), settings: Settings | None = None) -> None:
        profile = Profile(
            workspace=scene.work,
            workspace_read="allow",
            workspace_write="allow",
            network="allow",
            command="allow",
            roots=(Root(path=scene.read, read="allow"), *roots),
        )
        self._set = ExecutorSet(
            profile,
            scratch_root=os.path.expanduser("~/conformance"),
            settings=settings or Settings(nofile=scene.descriptors),
        )
        self._executor = self._set.executor("subject")

    @property
    def claims(self) -> frozenset[str]:
        """Return what a run measures now."""
        result = self._executor.run_command(["true"])
        measured = [name for name, held in result.guarantees.items() if held]
        return frozenset([*measured, *(["lifetime_containment"] if result.lifetime_containment else [])])

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> Ran:
        """Run one command as a card."""
        result = self._executor.run_command(argv, input=stdin, env=env or {}, cwd=cwd)
        return Ran(result.status, result.stdout, result.stderr)

    def close(self) -> None:
        """Remove what it owns."""
        self._set.close()


class Claiming(Card):
    """A card that claims a limit which it was not given."""

    claims = frozenset({"resource_limits"})  # the lie


class Plain(HostProcess):
    """A plain container with the whole scene, the bench's own processes and network, and none of our walls."""

    def __init__(self, claim: str) -> None:
        self.claims = (claim,)

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> Ran:
        """Run one command in podman."""
        words = ["podman", "run", "--rm", "-i", "--pull=never", "--userns=keep-id", "--pid=host", "--network=host"]
        words += [
            "--security-opt=seccomp=unconfined",
            *(f"--env={name}={value}" for name, value in (env or {}).items()),
        ]
        done = subprocess.run(
            [*words, IMAGE, *argv], input=stdin, capture_output=True, check=False, timeout=60, cwd=cwd
        )
        return Ran(done.returncode, done.stdout, done.stderr)


class Leaving(HostProcess):
    """A plain process that claims to leave nothing behind."""

    claims = ("lifetime_containment",)


class OnBench(Conformance):
    """A suite in the bench's world."""

    denied = DENIED
    allowed = ALLOWED


class WithoutWalls(OnBench):
    """A suite of a plain container that claims one thing."""

    claim = ""

    def make(self, scene: Scene) -> Plain:  # noqa: ARG002 - the shape is the suite's
        """Return it."""
        return Plain(self.claim)


class TestCard(OnBench):
    """card-run's own executor."""

    def make(self, scene: Scene) -> Card:
        """Return it."""
        return Card(scene)


class TestWrites(OnBench):
    """Breaks write_boundary: what is outside was given for writing too."""

    def make(self, scene: Scene) -> Card:
        """Return it."""
        return Card(scene, roots=(Root(path=scene.outside, read="allow", write="allow"),))


class TestReads(OnBench):
    """Breaks read_boundary: what is outside was given for reading too."""

    def make(self, scene: Scene) -> Card:
        """Return it."""
        return Card(scene, roots=(Root(path=scene.outside, read="allow"),))


class TestLeaks(OnBench):
    """Breaks env_scrub: the caller's variable is passed on."""

    def make(self, scene: Scene) -> Card:
        """Return it."""
        return Card(scene, settings=Settings(nofile=scene.descriptors, env={VARIABLE: scene.marker}))


class TestUnlimited(OnBench):
    """Breaks resource_limits: none was asked for."""

    def make(self, scene: Scene) -> Card:
        """Return it."""
        return Claiming(scene, settings=Settings())


class TestOpenNetwork(WithoutWalls):
    """Breaks network_boundary."""

    claim = "network_boundary"


class TestOpenAddresses(WithoutWalls):
    """Breaks address_network."""

    claim = "address_network"


class TestOpenProcesses(WithoutWalls):
    """Breaks process_boundary."""

    claim = "process_boundary"


class TestNames(WithoutWalls):
    """Claims target_network, which nothing can try."""

    claim = "target_network"


class TestLeaves(OnBench):
    """Breaks lifetime_containment."""

    def make(self, scene: Scene) -> Leaving:  # noqa: ARG002 - the shape is the suite's
        """Return it."""
        return Leaving()
