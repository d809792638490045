"""nft as a library in this process (libnftables(3)), for who stands in a namespace and cannot wait for a program's end.

A program that has replaced rules ends only after the kernel has freed the old ones, a grace period of 10 ms and more,
though the new ones judge packets from the commit on. The rule: one context is told one thing, so what a listing says is
the kernel's and never a context's own memory of it. Takes the place of `hooks.nft.Nft` wherever that is told something.
"""

from oci import native
from oci.native import c_char_p, c_int, c_uint, c_void_p
from oci.refusal import Refusal, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

NAME = "libnftables.so.1"


class Library:
    """The library, loaded; raises Refused (`libnftables-missing`) where it is not there."""

    __slots__ = ("_error", "_errors", "_new", "_output", "_outputs", "_run")

    def __init__(self) -> None:
        try:
            library = native.library(NAME)
        except OSError as error:
            text = f"{NAME} cannot be loaded: {error}"
            raise Refused([Refusal("libnftables-missing", text, "install the package libnftables1")]) from None
        self._new = native.function("nft_ctx_new", c_void_p, c_uint, library=library)
        self._outputs, self._errors = (
            native.function(f"nft_ctx_buffer_{name}", c_int, c_void_p, library=library) for name in ("output", "error")
        )
        self._output, self._error = (
            native.function(f"nft_ctx_get_{name}_buffer", c_char_p, c_void_p, library=library)
            for name in ("output", "error")
        )
        self._run = native.function("nft_run_cmd_from_buffer", c_int, c_void_p, c_char_p, library=library)

    def context(self) -> "Context":
        """Return a context of the network namespace that this process is in now."""
        return Context(self)

    def open(self) -> int:
        """Return the handle of a new context whose output and errors are kept."""
        handle = self._new(0)
        if not handle or self._outputs(handle) or self._errors(handle):
            raise OSError(12, "nft_ctx_new: no memory")
        return int(handle)

    def tell(self, handle: int, text: str) -> "tuple[int, str, str]":
        """Return status (0 for success), output and errors of the commands in the text, one transaction."""
        status = self._run(handle, text.encode("ascii"))
        said = [(read(handle) or b"").decode("utf-8", "replace") for read in (self._output, self._error)]
        return status, said[0], said[1]


class Context:
    """A context, to be told one thing. Its sockets are closed with the process, by which time nobody waits."""

    __slots__ = ("_handle", "_library")

    def __init__(self, library: Library) -> None:
        self._library = library
        self._handle = library.open()

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *_: object) -> None:
        """Leave it to the end of the process, as nothing waits for it."""

    def tell(self, text: str) -> "tuple[int, str, str]":
        """Give the commands; return status, output and errors."""
        return self._library.tell(self._handle, text)
