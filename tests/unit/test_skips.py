"""A test that is skipped leaves a green run, so in CI it fails: what is missing there is a fault."""

import pytest

pytest_plugins = ["pytester"]
TESTS = """
import pytest

@pytest.mark.skipif(True, reason="no root here")
def test_by_mark():
    pass

def test_inside():
    pytest.skip("not here")

@pytest.mark.elsewhere
@pytest.mark.skipif(True, reason="another machine")
def test_elsewhere():
    pass

@pytest.mark.xfail(strict=True)
def test_expected_to_fail():
    raise AssertionError

def test_good():
    pass
"""


@pytest.mark.parametrize("ci", [False, True])
def test_a_skip_fails_in_ci(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, *, ci: bool) -> None:
    """Both kinds of skip fail there, with their reason; what is about another machine and what is known does not."""
    monkeypatch.delenv("CI", raising=False)
    if ci:
        monkeypatch.setenv("CI", "true")
    pytester.makeconftest("from tests.conftest import pytest_runtest_makereport")
    pytester.makeini("[pytest]\nmarkers = elsewhere: x")
    pytester.makepyfile(TESTS)
    done = pytester.runpytest()
    done.assert_outcomes(passed=1, xfailed=1, **({"failed": 1, "errors": 1, "skipped": 1} if ci else {"skipped": 3}))
    if ci:
        done.stdout.fnmatch_lines(["*no root here*"])
