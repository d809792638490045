"""`from launcher import ...`: every public name, imported when it is asked for and not before."""

import subprocess
import sys

import pytest

import launcher
from launcher import aio


@pytest.mark.parametrize("name", launcher.__all__)
def test_each_name_is_there_and_documented(name: str) -> None:
    """And what it is says what it is for."""
    assert name in dir(launcher)
    assert getattr(launcher, name).__doc__


def test_another_name_is_none() -> None:
    """A misspelt one is an AttributeError, as for any module."""
    with pytest.raises(AttributeError, match="Executer"):
        launcher.Executer  # type: ignore[attr-defined]  # noqa: B018 - looking it up is the point


def test_importing_the_package_imports_nothing_else() -> None:
    """card-run's hot path imports it too."""
    program = "import sys; before = set(sys.modules); import launcher; print(set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{'launcher'}"


@pytest.mark.parametrize("name", ["Executor", "ExecutorSet", "Prepared", "Process"])
def test_the_asyncio_twin_has_the_same_names(name: str) -> None:
    """What one kind of caller can do the other can, by the same word; only the context managers differ."""
    here, there = (
        {one for one in dir(kind) if not one.startswith("_")} for kind in (getattr(launcher, name), getattr(aio, name))
    )
    assert here == there
