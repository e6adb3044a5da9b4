"""Where the machine code of each kernel is, and how large, from the table of sections of its cubin, a 64-bit ELF file.

The table's fields are those of the System V ABI, 'Sections'; NVIDIA's compilers put the code of a kernel NAME into the
section `.text.NAME`, filled up to a multiple of 128 bytes.
"""

from __future__ import annotations

import struct

INSTRUCTION_BYTES = 16
_ELF64 = b"\x7fELF\x02\x01"  # little-endian
_ENTRY = struct.Struct("<IIQQQQ")  # of a section, from its beginning: name, type, flags, address, place, bytes
_CODE = b".text."


def code_bytes(cubin: bytes) -> dict[str, int]:
    """The bytes of machine code of each kernel in a cubin, by its name in it. Raises ValueError for another file."""
    return {name: length for name, (_, length) in code_places(cubin).items()}


def code_places(cubin: bytes) -> dict[str, tuple[int, int]]:
    """Where in the file each kernel's machine code begins, and its bytes. Raises ValueError for another file."""
    if not cubin.startswith(_ELF64):
        raise ValueError(f"{len(cubin)} bytes are no cubin: an ELF file of 64 bits begins otherwise")
    (table,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<HHH", cubin, 58)  # of an entry; of entries; the entry of their names
    entries = [_ENTRY.unpack_from(cubin, table + size * i) for i in range(count)]
    names_at = entries[names][4]
    found = {}
    for name_at, _, _, _, begin_at, length in entries:
        begin = names_at + name_at
        name = cubin[begin : cubin.index(b"\0", begin)]
        if name.startswith(_CODE):
            found[name.removeprefix(_CODE).decode()] = begin_at, length
    return found
