"""What a name answered, and the interface that answers come through: the seam at which tests pin without a packet."""

from launcher.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol
else:
    Protocol = object


class Answer(Value):
    """What a name answered: addresses as text, the names its CNAMEs went through, or why there are none."""

    addresses: tuple[str, ...] = ()
    chain: tuple[str, ...] = ()
    source: str = ""
    failure: str = ""


class Resolver(Protocol):
    """Names to answers."""

    def resolve(self, names: list[str]) -> dict[str, Answer]:
        """Return an answer for every name, within the resolver's own deadline."""
        raise NotImplementedError
