"""Messages between card-run, the pool and its attendants: one JSON object each, with open descriptors beside it.

The socket keeps messages whole (unix(7) SOCK_SEQPACKET), so there are no frames to get wrong; descriptors travel by
SCM_RIGHTS and arrive close-on-exec. Values cross as what they are made of and are made anew on the other side, by
their own class: a `Value` of this package or nothing. On card-run's way to a warm card, so `_socket`, not `socket`.
"""

import _socket
import os
import sys

from launcher.value import Value
from oci import strictjson
from oci.refusal import Refusal, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Message = dict[str, Any]

MOST = 192 << 10  # below net.core.wmem_default, which bounds one message of an unprivileged sender (socket(7))
_DESCRIPTORS = 8
_WIDTH = 4  # sizeof(int)
_CLASS = "$"
_BYTES = "bytes"
_PACKAGE = "launcher."


def pair() -> "tuple[_socket.socket, _socket.socket]":
    """Return the two ends of a connection."""
    return _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)


def dump(message: "Message") -> bytes:
    """Return a message as it crosses; raises ValueError when it is too long or holds what cannot cross."""
    try:
        data = strictjson.dump(_plain(message)).encode("ascii")
    except TypeError as error:
        raise ValueError(str(error)) from None
    if len(data) > MOST:
        raise ValueError(f"{len(data)} bytes, more than {MOST}")
    return data


def load(data: bytes) -> "Message":
    """Return the message in `data`, its values made anew; raises ValueError or TypeError when it is not one."""
    return {key: _value(item) for key, item in look(data).items()}


def look(data: bytes) -> "Message":
    """Return the message in `data` as plain JSON; raises ValueError when it is not one."""
    message = strictjson.parse(data)
    if isinstance(message, dict):
        return message  # pyright: ignore[reportUnknownVariableType]
    raise ValueError("a message is an object")


def send(to: "_socket.socket", data: bytes, descriptors: "tuple[int, ...]" = ()) -> None:
    """Send one message with descriptors, which stay open here; raises OSError when nobody is there to read it."""
    ancillary = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, b"".join(_int(fd) for fd in descriptors))]
    to.sendmsg([data], ancillary if descriptors else [], _socket.MSG_NOSIGNAL)


def receive(source: "_socket.socket") -> "tuple[bytes, list[int]] | None":
    """Return the next message as it crossed, and its descriptors; None when the other end is gone or cannot be heard.

    A message that was cut short is none: its descriptors are closed.
    """
    try:
        data, ancillary, flags, _ = source.recvmsg(
            MOST, _socket.CMSG_SPACE(_DESCRIPTORS * _WIDTH), _socket.MSG_CMSG_CLOEXEC
        )
    except OSError:
        return None
    descriptors = [
        int.from_bytes(content[at : at + _WIDTH], sys.byteorder)
        for level, kind, content in ancillary
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS)
        for at in range(0, len(content) - len(content) % _WIDTH, _WIDTH)
    ]
    if not data or flags & (_socket.MSG_TRUNC | _socket.MSG_CTRUNC):
        for fd in descriptors:
            os.close(fd)
        return None
    return data, descriptors


def peer(of: "_socket.socket") -> "tuple[int, int]":
    """Return process id and user id of who connected, as the kernel noted them then (unix(7) SO_PEERCRED)."""
    data = of.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 3 * _WIDTH)
    return int.from_bytes(data[:_WIDTH], sys.byteorder), int.from_bytes(data[_WIDTH : 2 * _WIDTH], sys.byteorder)


def refusals(error: Refused) -> "list[dict[str, str]]":
    """Return an error's refusals as they cross."""
    return [refusal.to_json() for refusal in error.refusals]


def refused(told: "list[dict[str, str]]") -> Refused:
    """Return the error whose refusals crossed."""
    return Refused([Refusal.from_json(one) for one in told])


def _int(number: int) -> bytes:
    return number.to_bytes(_WIDTH, sys.byteorder)


def _plain(value: object) -> object:
    if isinstance(value, Value):
        kind = type(value)
        return {_CLASS: f"{kind.__module__}:{kind.__qualname__}", **{k: _plain(v) for k, v in value.as_dict().items()}}
    if isinstance(value, bytes):
        return {_CLASS: _BYTES, "hex": value.hex()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
    return value


def _value(plain: object) -> "Any":
    """Return what a message holds; lists come back as tuples, which is what values hold."""
    if isinstance(plain, list):
        return tuple(_value(item) for item in plain)  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
    if not isinstance(plain, dict):
        return plain
    members = {str(key): _value(item) for key, item in plain.items()}  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
    name = members.pop(_CLASS, None)
    if name == _BYTES:
        return bytes.fromhex(str(members["hex"]))
    return members if name is None else _class(str(name))(**members)


def _class(name: str) -> "type[Value]":
    module, _, inside = name.partition(":")
    if not module.startswith(_PACKAGE):
        raise ValueError(f"{name} is no value of ours")
    found = getattr(__import__(module, fromlist=["_"]), inside, None)
    if isinstance(found, type) and issubclass(found, Value):
        return found
    raise ValueError(f"{name} is no value of ours")
