"""The conformance plugin tells a broken executor from a good one, and a matrix that did not run is never green.

The executors here are real processes of this machine with no wall, so each claim of theirs is a lie.
"""

import pytest

from launcher.conformance import MEANING, plugin, probes, scene, trial
from launcher.conformance.claims import TARGET
from launcher.conformance.consistency import CHECKS
from launcher.conformance.scene import has_ipv6

pytest_plugins = ["pytester"]

HEAD = """
import sys
import pytest
from launcher import conformance
from launcher.conformance import HostProcess, Ran, Target

class Conformance(conformance.Conformance):
    python = (sys.executable, "-S")
"""
BARE = (
    HEAD
    + """
class Bare(HostProcess):
    claims = frozenset({claims!r})

class TestBare(Conformance):
    denied = (Target("127.0.0.1", 9),)

    def make(self, scene):
        return Bare()
"""
)
LIMITED = (
    HEAD
    + """
class Limited(HostProcess):
    claims = frozenset({"resource_limits"})

    def run(self, argv, **options):
        return super().run(["sh", "-c", "ulimit -n 64; exec \\"$@\\"", "sh", *argv], **options)

class TestLimited(Conformance):
    def make(self, scene):
        return Limited()
"""
)
LYING = (
    HEAD
    + """
class Liar(HostProcess):
    claims = frozenset({{"resource_limits"}})

    def run(self, argv, **options):
{body}

class TestLiar(Conformance):
    def make(self, scene):
        return Liar()
"""
)


def run(pytester: pytest.Pytester, text: str, *words: str) -> pytest.RunResult:
    """Run a test module (none: what the words name) in a pytest of its own, with the plugin given by its name."""
    if text:
        pytester.makepyfile(text)
    plugins = ["-p", "no:card_conformance", "-p", "launcher.conformance.plugin", "-p", "no:hypothesispytest"]
    return pytester.runpytest_inprocess(*plugins, *words)


def failed(result: pytest.RunResult) -> set[str]:
    """Return what the failed parts are about."""
    lines = [line for line in result.outlines if line.startswith("FAILED")]
    return {line.partition("[")[2].partition(":")[0] for line in lines}


def test_an_executor_that_holds_its_claim_passes(pytester: pytest.Pytester) -> None:
    """A process under the limit it claims to keep: all of the matrix is run, nothing asked that was not claimed."""
    result = run(pytester, LIMITED, "--card-conformance-live=TestLimited")
    assert result.ret == 0
    result.stdout.fnmatch_lines("card_conformance *::TestLimited: tried claims, consistency, resource_limits")


@pytest.mark.parametrize("claim", sorted(MEANING))
def test_a_lie_fails_at_the_claim_it_is_about(claim: str, pytester: pytest.Pytester) -> None:
    """A process without walls fails each claim, and no other."""
    result = run(pytester, BARE.replace("{claims!r}", repr([claim])), "-k", "not consistency")
    assert result.ret == 1
    assert failed(result) == {"claims" if claim == TARGET else claim}


@pytest.mark.parametrize("claims", [[], ["every_boundary"]])
def test_claims_that_nothing_can_try_fail(claims: list[str], pytester: pytest.Pytester) -> None:
    """No claim at all shows nothing, and an unknown one is no guarantee."""
    result = run(pytester, BARE.replace("{claims!r}", repr(claims)), "-k", "not consistency")
    assert (result.ret, failed(result)) == (1, {"claims"})


def test_the_networks_claim_wants_a_place_beyond_this_machine(pytester: pytest.Pytester) -> None:
    """With nothing in `denied`, the network boundary has nothing to be tried on."""
    text = BARE.replace("{claims!r}", "['network_boundary']").replace('(Target("127.0.0.1", 9),)', "()")
    result = run(pytester, text, "-k", "claims")
    result.stdout.fnmatch_lines("*name a place beyond this machine in `denied`*")


LEAKY = (
    BARE.replace("{claims!r}", "['network_boundary']")
    .replace("(HostProcess):", "(HostProcess):\n    run = leaky\n")
    .replace(
        "class Bare",
        """
import json

def leaky(self, argv, **options):
    words = json.loads(options["stdin"])
    closed = [[*one[:3], 9, ""] if one[0] == "connect" and ":" not in one[2] else one for one in words]
    return HostProcess().run(argv, stdin=json.dumps(closed).encode())

class Bare""",
        1,
    )
)


def test_an_executor_that_leaks_one_family_fails(pytester: pytest.Pytester) -> None:
    """A network that is closed over IPv4 alone is not closed, where this machine has IPv6."""
    result = run(pytester, LEAKY, "-k", "network_boundary", "--card-conformance-partial")
    broken = [line for line in result.outlines if line.startswith("BROKEN")]
    assert len([line for line in broken if "IPv6" in line]) == len(probes.IPV6) * has_ipv6()
    assert [line for line in broken if "IPv6" not in line] == []


def test_a_machine_without_ipv6_says_so(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """The matrix is whole without what cannot be tried there, and nobody takes it for tried."""
    for module in (scene, trial, plugin):
        monkeypatch.setattr(module, "has_ipv6", lambda: False)
    text = BARE.replace("{claims!r}", "['network_boundary']")
    result = run(pytester, text, "-k", "network_boundary", "--card-conformance-partial")
    broken = [line for line in result.outlines if line.startswith("BROKEN")]
    assert broken
    assert [line for line in broken if "IPv6" in line] == []
    result.stdout.fnmatch_lines("*no IPv6, and none was tried*")


TRUE = "super().run(argv, **options)"
LIARS = {
    "the exit status is the command's": [f"ran = {TRUE}", "return ran._replace(status=ran.status and 1)"],
    "a signal's death is told as 128 + N": [f"ran = {TRUE}", "return ran._replace(status=ran.status % 128)"],
    "both streams arrive to the byte": [
        f"ran = {TRUE}",
        "return ran._replace(stdout=ran.stdout.replace(b'\\r', b''))",
    ],
    "standard input arrives to the byte": [f"ran = {TRUE}", "return ran._replace(stdout=ran.stdout[:150_000])"],
    "arguments arrive to the letter": ["argv = [word for word in argv if word]", f"return {TRUE}"],
    "a variable that is asked for arrives": ["options.pop('env')", f"return {TRUE}"],
    "the working directory is the one asked for": ["options.pop('cwd')", f"return {TRUE}"],
    "files of the given directory are shared": ["options.pop('cwd')", f"return {TRUE}"],
}


@pytest.mark.parametrize("check", CHECKS)
def test_an_executor_that_tells_untruths_fails(check: str, pytester: pytest.Pytester) -> None:
    """Each check of what every executor must do has an executor that does not."""
    body = "".join(f"        {line}\n" for line in LIARS[check])
    part = f"::TestLiar::test_conforms[consistency: {check}]"
    pytester.makepyfile(test_liar=LYING.format(body=body))
    result = run(pytester, "", f"test_liar.py{part}")
    assert result.ret == 1
    result.assert_outcomes(failed=1)


def test_a_probe_whose_control_does_nothing_fails(pytester: pytest.Pytester) -> None:
    """Where the attempt has no effect without the wall either, holding shows nothing."""
    text = LIMITED + "\n    def unwalled(self, scene):\n        return Limited()\n"
    result = run(pytester, text, "-k", "resource_limits", "--card-conformance-partial")
    assert (result.ret, failed(result)) == (1, {"resource_limits"})
    result.stdout.fnmatch_lines("NO CONTROL resource_limits: *")


def test_attempts_that_were_not_made_fail(pytester: pytest.Pytester) -> None:
    """An executor that runs nothing and says 0 holds nothing."""
    result = run(pytester, LYING.format(body="        return Ran(0, b'', b'')\n"))
    assert failed(result) == {"consistency", "resource_limits"}


PARTLY = {
    "skipped": "\n    @pytest.fixture(autouse=True)\n    def bench(self):\n        pytest.skip('no bench here')\n",
    "expected to fail": "\n    pytestmark = pytest.mark.xfail(strict=False, run=False)\n",
    "replaced": "\n    def test_conforms(self, card_conformance_part):\n        pass\n",
}


@pytest.mark.parametrize("how", PARTLY)
def test_a_matrix_that_tried_nothing_fails_the_session(how: str, pytester: pytest.Pytester) -> None:
    """No part fails, and the session still does."""
    result = run(pytester, LIMITED + PARTLY[how])
    assert result.ret == 1
    assert result.parseoutcomes().get("failed", 0) == 0
    result.stdout.fnmatch_lines("card_conformance *::TestLimited: NOT SHOWN, *")


@pytest.mark.parametrize("words", [["-k", "resource_limits"], ["-k", "nothing_of_this_name"]])
def test_a_deselected_part_fails_the_session(words: list[str], pytester: pytest.Pytester) -> None:
    """A part of the matrix is not the matrix, and at a desk one can say so."""
    assert run(pytester, LIMITED, *words).ret == 1
    partial = run(pytester, LIMITED, *words, "--card-conformance-partial")
    assert partial.ret in (0, pytest.ExitCode.NO_TESTS_COLLECTED)


def test_a_matrix_that_nobody_collected_fails_the_session(pytester: pytest.Pytester) -> None:
    """`--card-conformance-live` names what must have run."""
    result = run(pytester, "def test_other():\n    pass\n", "--card-conformance-live=TestLimited")
    assert result.ret == 1
    result.stdout.fnmatch_lines("card_conformance TestLimited: NOT SHOWN, was not collected at all")


@pytest.mark.parametrize("live", ["", "TestLimited", "test_whole.py::TestLimited"])
def test_a_class_of_the_same_name_shows_nothing_for_another(live: str, pytester: pytest.Pytester) -> None:
    """One module's matrix runs whole, the other's not at all: the session fails, and says which."""
    pytester.makepyfile(test_whole=LIMITED, test_skipped=LIMITED + PARTLY["skipped"])
    result = run(pytester, "", *([f"--card-conformance-live={live}"] if live else []))
    assert result.ret == 1
    result.stdout.fnmatch_lines("card_conformance test_skipped.py::TestLimited: NOT SHOWN, *")
    result.stdout.no_fnmatch_line("card_conformance test_whole.py::TestLimited: NOT SHOWN, *")


def test_a_class_of_one_module_is_named_with_it(pytester: pytest.Pytester) -> None:
    """A module that was not even collected is missed, though a class of that name ran elsewhere."""
    pytester.makepyfile(test_whole=LIMITED, test_gone="import pytest\npytest.skip('', allow_module_level=True)\n")
    for name in ("TestLimited", "test_whole.py::TestLimited"):
        assert run(pytester, "", f"--card-conformance-live={name}").ret == 0
    for name in ("test_gone.py::TestLimited", "Limited", "whole.py::TestLimited"):
        result = run(pytester, "", f"--card-conformance-live={name}")
        assert result.ret == 1
        result.stdout.fnmatch_lines(f"card_conformance {name}: NOT SHOWN, was not collected at all")


def test_collecting_and_other_sessions_are_left_alone(pytester: pytest.Pytester) -> None:
    """Listing the tests runs nothing, and a session without a suite hears nothing of the plugin."""
    assert run(pytester, LIMITED, "--collect-only", "-q").ret == 0
    other = run(pytester, "def test_other():\n    pass\n")
    assert other.ret == 0
    other.stdout.no_fnmatch_line("*card_conformance*")
