"""The nft(8) program as calls: load a text, list a table, delete one; and a process of it that waits for its words.

The rule: the program by absolute path, our own environment, no shell, and no signal mask inherited (crun starts hooks
with every signal blocked; a child that keeps the mask cannot be ended). What was audited is exactly what nft reads, on
its standard input; what it says goes to anonymous files, so no pipe can fill. A process acts on the network namespace
that its starter was in, and does nothing before it is told: what starting it costs can pass while we read and audit.
"""

import os

from oci.refusal import Refusal, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

    from hooks.libnft import Context

PROGRAMS = ("/usr/sbin/nft", "/sbin/nft")
_SIGKILL = 9
_ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}


def program() -> str:
    """Return the path of nft; raises Refused (`nft-missing`)."""
    for path in PROGRAMS:
        if os.access(path, os.X_OK):
            return path
    places = " or ".join(PROGRAMS)
    raise Refused([Refusal("nft-missing", f"nft is not at {places}", "install the package nftables")])


class Nft:
    """An nft process that waits for its commands: told once, or ended when its `with` block is left."""

    __slots__ = ("_errors", "_input", "_output", "_pid")

    def __init__(self) -> None:
        path = program()
        reader, self._input = os.pipe()
        self._output, self._errors = os.memfd_create("nft-output"), os.memfd_create("nft-errors")
        actions = [(os.POSIX_SPAWN_DUP2, fd, at) for at, fd in enumerate((reader, self._output, self._errors))]
        try:
            self._pid = os.posix_spawn(path, (path, "-f", "-"), _ENV, file_actions=actions, setsigmask=())
        except OSError:
            self._close()
            raise
        finally:
            os.close(reader)

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._input < 0:
            return
        if kind is None:
            self.end()
        else:
            self._kill()
            self._close()

    def tell(self, text: str) -> "tuple[int, str, str]":
        """Give the process its commands and wait; return its status (negative: a signal), output and errors."""
        _write_all(self._input, text.encode("ascii"))
        return self.end()

    def end(self) -> "tuple[int, str, str]":
        """End the input, which without commands changes nothing, and wait."""
        os.close(self._input)
        self._input = -1
        try:
            status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
            return status, _read_all(self._output), _read_all(self._errors)
        except BaseException:  # a deadline that passed: a process that hangs must not be left in the namespace
            self._kill()
            raise
        finally:
            self._close()

    def _kill(self) -> None:
        os.kill(self._pid, _SIGKILL)
        os.waitpid(self._pid, 0)

    def _close(self) -> None:
        for fd in (self._input, self._output, self._errors):
            if fd >= 0:
                os.close(fd)


def load(text: str, process: "Nft | Context | None" = None) -> None:
    """Apply the text as one transaction; raises Refused (`nft-load`) with nft's own message, and nothing is applied."""
    status, _, errors = (process or Nft()).tell(text)
    if status != 0:
        raise Refused([Refusal("nft-load", f"nft refused the table: {_first_line(errors)}")])


def list_table(family: str, table: str, process: "Nft | Context | None" = None) -> str:
    """Return the table as the kernel holds it; raises Refused (`nft-list`) when it cannot be listed or is not there."""
    status, listing, errors = (process or Nft()).tell(f"list table {family} {table}\n")
    if status != 0:
        raise Refused([Refusal("nft-list", f"the table {table} cannot be read back: {_first_line(errors)}")])
    return listing


def list_tables() -> "list[tuple[str, str]]":
    """Return family and name of every table in the namespace; raises Refused (`nft-list`)."""
    status, listing, errors = Nft().tell("list tables\n")
    if status != 0:
        raise Refused([Refusal("nft-list", f"the tables cannot be listed: {_first_line(errors)}")])
    words = [line.split() for line in listing.splitlines()]
    return [(line[1], line[2]) for line in words if len(line) == 3 and line[0] == "table"]


def delete_table(family: str, table: str) -> None:
    """Delete the table if it exists; raises Refused (`nft-delete`) when it is still there."""
    name = f"table {family} {table}"
    status, _, errors = Nft().tell(f"{name}\ndelete {name}\n")
    if status != 0:
        raise Refused([Refusal("nft-delete", f"the table {table} cannot be removed: {_first_line(errors)}")])


def _first_line(errors: str) -> str:
    return next((line.strip() for line in errors.splitlines() if line.strip()), "no reason given")[:300]


def _write_all(fd: int, data: bytes) -> None:
    try:
        while data:
            data = data[os.write(fd, data) :]
    except BrokenPipeError:
        return  # the process ended early, and its status says why


def _read_all(fd: int) -> str:
    size = os.fstat(fd).st_size
    return os.pread(fd, size, 0).decode("utf-8", "replace") if size else ""
