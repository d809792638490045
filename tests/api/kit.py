"""What the tests of the Python interface share: a profile, a set in a scratch directory, and what must not be left."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from launcher import ExecutorSet, Profile, Settings


def profile(workspace: Path, **levels: Any) -> Profile:
    """Return an open profile without a network, but for the levels given."""
    given = {"workspace_read": "allow", "workspace_write": "allow", "command": "allow", **levels}
    return Profile(workspace=str(workspace), **given)


@contextmanager
def executors(
    workspace: Path, *, settings: Settings | None = None, most: int = 4, **levels: Any
) -> Iterator[ExecutorSet]:
    """Make a set whose scratch directory is beside the workspace, and see that it is empty afterwards."""
    root = workspace.parent / "scratch"
    with ExecutorSet(profile(workspace, **levels), scratch_root=root, max_executors=most, settings=settings) as made:
        yield made
    assert list(root.iterdir()) == []
