"""Relocating a program: its loader is found, and its run paths are taken out of a program made by hand."""

import struct
from pathlib import Path

import pytest

from launcher import runtime_elf
from oci.refusal import Refused

PT_LOAD, PT_DYNAMIC, PT_INTERP = 1, 2, 3
DT_NULL, DT_NEEDED, DT_STRTAB, DT_RPATH, DT_RUNPATH = 0, 1, 5, 15, 29
LOADER = b"/lib64/ld-linux-x86-64.so.2\0"


def program(entries: list[tuple[int, int]], *, interpreter: bytes = LOADER, tail: bytes = b"tail") -> bytes:
    """Return an ELF file of a header, three segments, an interpreter's name, a dynamic section and a tail."""
    names = 64 + 3 * 56
    dynamic = names + len(interpreter)
    body = b"".join(struct.pack("<qQ", *entry) for entry in entries)
    segments = [(PT_LOAD, 0, 64), (PT_INTERP, names, len(interpreter)), (PT_DYNAMIC, dynamic, len(body))]
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 64, 0, 0, 64, 56, 3, 0, 0, 0)
    table = b"".join(struct.pack("<IIQQQQQQ", kind, 4, at, at, at, size, size, 8) for kind, at, size in segments)
    return header + table + interpreter + body + tail


def test_run_paths_are_taken_out_and_nothing_else() -> None:
    """The entries that stay keep their order, the freed places become the end mark, the file keeps its size."""
    before = [(DT_RPATH, 1), (DT_NEEDED, 7), (DT_RUNPATH, 9), (DT_STRTAB, 8), (DT_NULL, 0)]
    after = [(DT_NEEDED, 7), (DT_STRTAB, 8), (DT_NULL, 0), (DT_NULL, 0), (DT_NULL, 0)]
    assert runtime_elf.without_run_path(program(before)) == program(after)
    assert runtime_elf.without_run_path(program(after)) == program(after)


def test_the_loader_is_the_one_the_program_names(tmp_path: Path) -> None:
    """A program without an interpreter's segment has none."""
    (tmp_path / "dynamic").write_bytes(program([(DT_NULL, 0)]))
    (tmp_path / "static").write_bytes(
        program([(DT_NULL, 0)]).replace(struct.pack("<II", PT_INTERP, 4), struct.pack("<II", 4, 4))
    )
    assert runtime_elf.loader(str(tmp_path / "dynamic")) == "/lib64/ld-linux-x86-64.so.2"
    assert runtime_elf.loader(str(tmp_path / "static")) is None


@pytest.mark.parametrize("data", [b"", b"#!/bin/sh\n", b"\x7fELF\x01\x01" + bytes(64), b"\x7fELF\x02\x02" + bytes(64)])
def test_what_is_no_64_bit_little_endian_program_is_refused(data: bytes, tmp_path: Path) -> None:
    """A script, a 32-bit program and a big-endian one cannot be taken apart."""
    (tmp_path / "python").write_bytes(data)
    with pytest.raises(Refused, match="not-elf"):
        runtime_elf.loader(str(tmp_path / "python"))


def test_the_preload_file_s_name_is_emptied() -> None:
    """Only that name, and only as a whole string; the size stays."""
    data = b"x/etc/ld.so.preload\0y/etc/ld.so.preload.d\0"
    assert runtime_elf.without_preload_file(data) == b"x" + bytes(19) + b"y/etc/ld.so.preload.d\0"
