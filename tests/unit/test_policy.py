"""The policy file is the universe: every bad line is told with its number, and flags only pick from it."""

from pathlib import Path

import pytest

from launcher.egress import policy

GOOD = b"# base\ngithub.com\nAPI.github.com.  # the API\nobjects.githubusercontent.com\r\n\nmodel.example.org\n"
SHIPPED = Path(__file__).parents[2] / "infra/image/egress.txt"


def reasons(data: bytes) -> list[str]:
    """Return the reasons that a file earns."""
    return [refusal.reason for refusal in policy.parse(data, "egress.txt")[1]]


def test_good_file() -> None:
    """Comments, CRLF, case and trailing dots are all right; each name has its line."""
    read, refusals = policy.parse(GOOD, "egress.txt")
    assert refusals == []
    assert read.lines == {
        "github.com": 2,
        "api.github.com": 3,
        "objects.githubusercontent.com": 4,
        "model.example.org": 6,
    }


def test_every_bad_line_at_once() -> None:
    """Three bad lines are three refusals, each with file and number."""
    _, refusals = policy.parse(GOOD + b"*.x.org\nhttp://y.org\n\xff\xfe\n", "p.txt")
    assert [refusal.reason for refusal in refusals] == ["policy-line"] * 3
    assert [refusal.text.split(" ")[0] for refusal in refusals] == ["p.txt:7:", "p.txt:8:", "p.txt:9:"]


def test_bad_line_cannot_drive_a_terminal() -> None:
    """A control character in a line is shown escaped."""
    _, refusals = policy.parse(GOOD + b"\x1b[2J.org\n", "p.txt")
    assert "\x1b" not in refusals[0].text


@pytest.mark.parametrize("name", policy.BASE_NAMES)
def test_base_name_missing(name: str) -> None:
    """A file without one of the base names is refused, naming it."""
    data = "\n".join(base for base in policy.BASE_NAMES if base != name).encode()
    _, refusals = policy.parse(data, "p.txt")
    assert [(refusal.reason, name in refusal.text) for refusal in refusals] == [("base-name-missing", True)]


@pytest.mark.parametrize("data", [b"", b"# nothing\n", b"\n\n"])
def test_empty_file_is_not_allow_all(data: bytes) -> None:
    """A file that holds no name is refused."""
    assert reasons(data) == ["policy-empty"]


def test_missing_file(tmp_path: Path) -> None:
    """A file that is not there, or a directory, is refused."""
    assert [one.reason for one in policy.read(f"{tmp_path}/none")[1]] == ["policy-unreadable"]
    assert [one.reason for one in policy.read(str(tmp_path))[1]] == ["policy-unreadable"]


def test_flags_pick_and_never_add() -> None:
    """A listed name may be picked, in any spelling; an unlisted one, a parent or a child of a listed one may not."""
    read, _ = policy.parse(GOOD, "p.txt")
    names, refusals = policy.choose(read, model_host="MODEL.example.org.", allow_hosts=["github.com"])
    assert refusals == []
    assert names == [*policy.BASE_NAMES, "model.example.org"]
    asked = ["other.org", "a.model.example.org", "example.org", "model.example.org.evil.org", "http://x"]
    names, refusals = policy.choose(read, model_host=None, allow_hosts=asked)
    assert names == list(policy.BASE_NAMES)
    assert [refusal.reason for refusal in refusals] == ["unknown-name"] * 4 + ["bad-hostname"]


def test_shipped_file_is_good() -> None:
    """The file in this repository passes, base names included."""
    assert policy.read(str(SHIPPED))[1] == []
