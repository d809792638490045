"""A frozen value with named fields: what `dataclasses` gives, without the 14 ms that importing it costs card-run.

A subclass lists its fields as annotations, behind those of its base; a class attribute is a default. Type checkers see
a frozen keyword-only dataclass (PEP 681). Equality and repr are by fields. Imports nothing.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self, dataclass_transform
else:

    def dataclass_transform(**_: object):  # noqa: ANN201, D103 - PEP 681's marker means something to checkers only
        return lambda cls: cls


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Value:
    """Base of the bench side's values; raises TypeError for a missing or unknown field."""

    _fields: "tuple[str, ...]" = ()

    def __init_subclass__(cls) -> None:
        cls._fields = tuple(dict.fromkeys((*cls._fields, *cls.__annotations__)))

    def __init__(self, **given: "Any") -> None:
        unknown = given.keys() - set(self._fields)
        missing = [name for name in self._fields if name not in given and not hasattr(type(self), name)]
        if unknown or missing:
            raise TypeError(f"{type(self).__name__}: unknown {sorted(unknown)}, missing {missing}")
        self.__dict__.update(given)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.as_dict() == other.as_dict()

    def __hash__(self) -> int:
        return hash(tuple(self.as_dict().values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.as_dict().items())})"

    def as_dict(self) -> "dict[str, Any]":
        """Return the fields by name, in the order they are declared."""
        return {name: getattr(self, name) for name in self._fields}

    def replace(self, **changes: "Any") -> "Self":
        """Return a copy with some fields changed; raises TypeError for an unknown one."""
        return type(self)(**{**self.as_dict(), **changes})
