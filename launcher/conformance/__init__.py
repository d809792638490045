"""Does a sandbox hold what it claims? A pytest plugin (`card_conformance`) that tries, for anything that runs commands.

Subclass `Conformance` in a test module, say how your executor is made, and name places of the network to try:

    from launcher.conformance import Conformance, Ran, Scene, Target

    class MyExecutor:
        claims = frozenset({"write_boundary", "env_scrub", "network_boundary"})

        def __init__(self, scene: Scene) -> None:
            self._box = Box(writable=[scene.work], readable=[scene.read])

        def run(self, argv, *, stdin=b"", env=None, cwd=None):
            done = self._box.execute(argv, input=stdin, environment=env or {}, directory=cwd or self._box.start)
            return Ran(status=done.code, stdout=done.out, stderr=done.err)

        def close(self) -> None:
            self._box.remove()

    class TestMyExecutor(Conformance):
        denied = (Target("198.51.100.66", 443),)

        def make(self, scene: Scene) -> MyExecutor:
            return MyExecutor(scene)

The rules:

- Claims are one-way. What is claimed must hold; what is not claimed demands nothing, and is not even tried. A claim
  that nothing here can try fails, and so does a subject that claims nothing, since nothing was shown.
- What counts is the effect, seen from outside: the file on this machine, the secret in the output, the connection
  that arrived. How an executor says no is its own affair.
- Every attempt is made a second time without the wall, as a plain process of this machine or by what `unwalled`
  returns, and must have its effect there. One that has none proves nothing, and fails.
- A matrix that did not run whole fails the session, whatever skipped, deselected or replaced a part of it;
  `--card-conformance-live NAME` wants every class of that name to have run, and one at least, even if nothing
  collected it; `FILE::NAME` wants the one of that module. `--card-conformance-partial` is for trying one part at a
  desk.

The commands are run by a `python3` that the executor must have inside (`python` names another). `claims.MEANING` says
what each bit means. Nothing here depends on how card-run works.
"""

from launcher.conformance.claims import MEANING
from launcher.conformance.scene import Scene
from launcher.conformance.subject import HostProcess, Ran, Subject, Target
from launcher.conformance.suite import Conformance

__all__ = ["MEANING", "Conformance", "HostProcess", "Ran", "Scene", "Subject", "Target"]
