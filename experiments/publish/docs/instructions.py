"""The block of docs/instructions.md: which instructions the reference GPU has, from its table of opcodes."""

from __future__ import annotations

import inspect
from pathlib import Path

from experiments.publish.table import Table
from gemm_ref.ptx.isa.table import MANUAL, OPCODES, SECTIONS, OpcodeRow

BLOCKS = {"opcodes": "instructions.md"}  # block -> the page of docs/ that has it


def block(name: str, published: Path) -> str:
    """The Markdown of the one block: a table for each section of the manual; the published data have no part in it."""
    parts = [f"There are {len(OPCODES)} opcodes, by the sections of {MANUAL}."]
    for section, rows in SECTIONS.items():
        number, _, title = section.partition(", ")
        table = Table.of(["opcode", "what it does, and its forms", "built in"], map(_line, rows), 3)
        parts += [f"## {title[0].upper()}{title[1:]} ({number})", table.to_markdown()]
    return "\n\n".join(parts)


def _line(row: OpcodeRow) -> list[str]:
    file = inspect.getfile(inspect.unwrap(row.build)).partition("/ptx/isa/")[2]
    opcodes = ", ".join(f"`{opcode}`" for opcode in row.opcodes)
    summary = " ".join((inspect.getdoc(row.build) or "").partition("\n\n")[0].split()).removeprefix(f"{opcodes}: ")
    return [opcodes, summary[0].upper() + summary[1:], f"[{Path(file).name}](../gemm_ref/ptx/isa/{file})"]
