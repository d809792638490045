"""What a program needs in order to run somewhere else: its loader, its libraries, and no paths of this machine.

Reads just enough of ELF (elf(5)): the interpreter's path, and the run paths that would make the loader look where the
builder of a Python kept its libraries, a place that in a container belongs to somebody else.
"""

import os
import re
import struct
import subprocess

from oci.refusal import Refusal, Refused

_PT_DYNAMIC, _PT_INTERP = 2, 3
_DT_NULL, _DT_RPATH, _DT_RUNPATH = 0, 15, 29
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<qQ")
_LIBRARY = re.compile(r"^\s*(\S+) => (/.*) \(0x[0-9a-f]+\)$", re.MULTILINE)
_PRELOAD_FILE = b"/etc/ld.so.preload\0"


def _segments(data: bytes) -> list[tuple[int, int, int]]:
    """Return (type, file offset, file size) of each segment; raises Refused for anything but 64-bit little-endian."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise Refused([Refusal("not-elf", "the Python interpreter is no 64-bit little-endian ELF program")])
    header = _HEADER.unpack_from(data)
    start, size, count = header[5], header[9], header[10]
    items = (_SEGMENT.unpack_from(data, start + index * size) for index in range(count))
    return [(item[0], item[2], item[5]) for item in items]


def loader(program: str) -> str | None:
    """Return the path of the dynamic loader a program asks for, None for a static one."""
    with open(program, "rb") as file:
        data = file.read()
    for kind, offset, size in _segments(data):
        if kind == _PT_INTERP:
            return os.fsdecode(data[offset : offset + size].rstrip(b"\0"))
    return None


def libraries(loader_path: str, program: str) -> dict[str, str]:
    """Return every shared library of a program or extension module, name to path, as the loader finds them here."""
    done = subprocess.run(
        [loader_path, "--list", program], capture_output=True, text=True, check=False, env={"LC_ALL": "C"}
    )
    if done.returncode or "not found" in done.stdout:
        said = (done.stderr or done.stdout).strip()
        raise Refused([Refusal("runtime-unbuildable", f"{loader_path} --list {program}: {said}")])
    found = dict(_LIBRARY.findall(done.stdout))
    return {name: path for name, path in found.items() if os.path.realpath(path) != os.path.realpath(loader_path)}


def without_run_path(data: bytes) -> bytes:
    """Return a program or library whose DT_RPATH and DT_RUNPATH are taken out, the rest of it as it was."""
    out = bytearray(data)
    for kind, offset, size in _segments(data):
        if kind == _PT_DYNAMIC:
            entries = [_ENTRY.unpack_from(data, offset + at) for at in range(0, size - size % 16, 16)]
            kept = [entry for entry in entries if entry[0] not in {_DT_RPATH, _DT_RUNPATH}]
            kept += [(_DT_NULL, 0)] * (len(entries) - len(kept))
            out[offset : offset + 16 * len(kept)] = b"".join(_ENTRY.pack(*entry) for entry in kept)
    return bytes(out)


def without_preload_file(data: bytes) -> bytes:
    """Return glibc's loader without its /etc/ld.so.preload, by which an image would put a library into stage 2.

    The name becomes the empty one, which never exists (access(2)); a loader that has no such name stays as it is.
    """
    return data.replace(_PRELOAD_FILE, bytes(len(_PRELOAD_FILE)))
