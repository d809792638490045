"""The nft(8) program as three calls: load a text, list a table, delete one.

The rule: the program by absolute path, our own environment, no shell, and no signal mask inherited (crun starts hooks
with every signal blocked; a child that keeps the mask cannot be ended). Text goes in and comes out through anonymous
files, so no pipe can fill and what was audited is exactly what nft reads. Acts on the caller's network namespace.
"""

import os

from oci.refusal import Refusal, Refused

PROGRAMS = ("/usr/sbin/nft", "/sbin/nft")
_ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}


def program() -> str:
    """Return the path of nft; raises Refused (`nft-missing`)."""
    for path in PROGRAMS:
        if os.access(path, os.X_OK):
            return path
    places = " or ".join(PROGRAMS)
    raise Refused([Refusal("nft-missing", f"nft is not at {places}", "install the package nftables")])


def load(text: str) -> None:
    """Apply the text as one transaction; raises Refused (`nft-load`) with nft's own message, and nothing is applied."""
    status, _, errors = _run(("-f", "-"), text)
    if status != 0:
        raise Refused([Refusal("nft-load", f"nft refused the table: {_first_line(errors)}")])


def list_table(family: str, table: str) -> str:
    """Return the table as the kernel holds it; raises Refused (`nft-list`) when it cannot be listed or is not there."""
    status, listing, errors = _run(("list", "table", family, table))
    if status != 0:
        raise Refused([Refusal("nft-list", f"the table {table} cannot be read back: {_first_line(errors)}")])
    return listing


def delete_table(family: str, table: str) -> None:
    """Delete the table if it exists; raises Refused (`nft-delete`) when it is still there."""
    name = f"table {family} {table}"
    status, _, errors = _run(("-f", "-"), f"{name}\ndelete {name}\n")
    if status != 0:
        raise Refused([Refusal("nft-delete", f"the table {table} cannot be removed: {_first_line(errors)}")])


def _first_line(errors: str) -> str:
    return next((line.strip() for line in errors.splitlines() if line.strip()), "no reason given")[:300]


def _run(arguments: "tuple[str, ...]", text: str = "") -> "tuple[int, str, str]":
    """Run nft to its end; return its status (negative: the signal that ended it), output and errors."""
    files = [os.memfd_create(name) for name in ("nft-in", "nft-out", "nft-err")]
    try:
        _write_all(files[0], text.encode("ascii"))
        os.lseek(files[0], 0, os.SEEK_SET)
        actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(files)]
        path = program()
        pid = os.posix_spawn(path, (path, *arguments), _ENV, file_actions=actions, setsigmask=())
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return status, _read_all(files[1]), _read_all(files[2])
    finally:
        for fd in files:
            os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _read_all(fd: int) -> str:
    size = os.fstat(fd).st_size
    return os.pread(fd, size, 0).decode("utf-8", "replace") if size else ""
