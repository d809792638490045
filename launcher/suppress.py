"""Passing over an exception, as `contextlib.suppress` does, without the 4 ms that importing contextlib costs card-run.

Imports nothing.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType


class suppress:  # noqa: N801 - the standard library's name, so that it reads the same
    """A context that ends quietly at one of these exceptions; the block is left where it was raised."""

    __slots__ = ("_kinds",)

    def __init__(self, *kinds: type[BaseException]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        """Enter; nothing is held."""

    def __exit__(
        self, kind: "type[BaseException] | None", error: "BaseException | None", trace: "TracebackType | None"
    ) -> bool:
        """Say whether the exception is one to pass over."""
        return kind is not None and issubclass(kind, self._kinds)
