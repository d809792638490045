"""The class that a test module subclasses: how the subject is made, and the one test, which runs once for each part."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from launcher.conformance import trial
from launcher.conformance.scene import Scene
from launcher.conformance.subject import HostProcess, Subject, Target

if TYPE_CHECKING:
    from launcher.conformance.trial import Trial


class Conformance:
    """Subclass this under a name that starts with `Test`, and define `make`.

    `denied` and `allowed` are places of the network that the executor keeps from and opens; the control must reach
    them all. `python` starts the executor's own Python.
    """

    denied: Sequence[Target] = ()
    allowed: Sequence[Target] = ()
    python: Sequence[str] = ("python3",)

    def make(self, scene: Scene) -> Subject:
        """Return a new executor that may write below `scene.work`, read below `scene.read`, and touch nothing else."""
        raise NotImplementedError(f"{type(self).__name__} must define make(scene)")

    def unwalled(self, scene: Scene) -> Subject:  # noqa: ARG002 - a subclass builds its control for the scene
        """Return what runs the controls, with the scene's directories at their own paths: a plain process here."""
        return HostProcess()

    def inside(self, path: str) -> str:
        """Return where the executor has `scene.work` or `scene.read`: at the same path."""
        return path

    def test_conforms(
        self, card_conformance_part: str, card_conformance_trial: "Trial", request: pytest.FixtureRequest
    ) -> None:
        """This part of the matrix holds, or backs a guarantee that is not claimed."""
        state, problem = trial.outcome(card_conformance_trial, card_conformance_part)
        if problem:
            pytest.fail(problem, pytrace=False)
        request.node.user_properties.append(("card_conformance_state", state))
