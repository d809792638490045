"""`card pool` before there is a pool."""

import os

import pytest
from typer.testing import CliRunner

from launcher.verbs import pool
from oci.refusal import Refused


def test_root_has_no_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused as card-run refuses it, and nothing is made."""
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setattr(os, "makedirs", pytest.fail)
    error = CliRunner().invoke(pool.app, ["start"]).exception
    assert isinstance(error, Refused)
    assert [one.reason for one in error.refusals] == ["not-rootless"]
