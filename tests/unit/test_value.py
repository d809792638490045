"""The frozen value that stands in for a dataclass where importing one would cost a card 14 ms."""

import pytest

from launcher.value import Value


class Point(Value):
    """A value with a default."""

    x: int
    y: int = 2


def test_fields() -> None:
    """Fields are given by name, defaults hold, and equality, hash, repr and replace are by fields."""
    assert Point(x=1) == Point(x=1, y=2)
    assert hash(Point(x=1)) == hash(Point(x=1, y=2))
    assert Point(x=1) != Point(x=3)
    assert repr(Point(x=1)) == "Point(x=1, y=2)"
    assert Point(x=1).replace(y=5).as_dict() == {"x": 1, "y": 5}


def test_unknown_and_missing() -> None:
    """A field too many or too few is a TypeError."""
    with pytest.raises(TypeError, match="missing"):
        Point()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unknown"):
        Point(x=1, z=1)  # type: ignore[call-arg]


def test_frozen() -> None:
    """A value does not change."""
    with pytest.raises(AttributeError):
        Point(x=1).x = 2  # type: ignore[misc]
