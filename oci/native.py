"""Calling C functions with what `ctypes` itself is made of: its own start-up defines a world of types, 3 ms of each.

Owns how a function is declared and how memory is handed to it, and no function: for stage 2, which runs in the card
without the rest of us, and for the hooks. Imports `_ctypes` and `os`.
"""

import _ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from ctypes import Array, c_char, c_char_p, c_int, c_long, c_size_t, c_uint, c_void_p
    from typing import Any
else:

    class c_char(_ctypes._SimpleCData):  # noqa: N801, SLF001 - ctypes' own names and ways
        _type_ = "c"

    class c_int(_ctypes._SimpleCData):  # noqa: D101, N801, SLF001
        _type_ = "i"

    class c_uint(_ctypes._SimpleCData):  # noqa: D101, N801, SLF001
        _type_ = "I"

    class c_long(_ctypes._SimpleCData):  # noqa: D101, N801, SLF001
        _type_ = "l"

    class c_size_t(_ctypes._SimpleCData):  # noqa: D101, N801, SLF001
        _type_ = "L"

    class c_void_p(_ctypes._SimpleCData):  # noqa: D101, N801, SLF001
        _type_ = "P"

    class c_char_p(_ctypes._SimpleCData):  # noqa: D101, N801, SLF001
        _type_ = "z"


__all__ = ("c_char_p", "c_int", "c_long", "c_size_t", "c_uint", "c_void_p")

_FLAGS = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
_LIBC = _ctypes.dlopen(None, os.RTLD_NOW)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

get_errno = _ctypes.get_errno
address = _ctypes.addressof


def library(name: str) -> int:
    """Return a handle of a shared library, loaded by its name (dlopen(3)); raises OSError when it is not there."""
    return _ctypes.dlopen(name, os.RTLD_NOW)


def function(name: str, result: type, *arguments: type, library: int = _LIBC) -> "Callable[..., Any]":
    """Return a function, of libc unless told otherwise, with its prototype; its errno is `get_errno`'s right after."""
    members = {"_flags_": _FLAGS, "_restype_": result, "_argtypes_": arguments}
    prototype = type(name, (_ctypes.CFuncPtr,), members)
    call: "Callable[..., Any]" = prototype(_ctypes.dlsym(library, name))
    return call


def memory(content: "bytes | int") -> "Array[c_char]":
    """Return memory that C may write to, with this content, or that many zeros; it lives as long as it is held."""
    size = content if isinstance(content, int) else len(content)
    kind = type("memory", (_ctypes.Array,), {"_type_": c_char, "_length_": size})
    made: "Array[c_char]" = kind()
    if isinstance(content, bytes):
        made.raw = content
    return made
