"""docs/instructions.md: which instructions the reference GPU has, written from its table of opcodes."""

from __future__ import annotations

import inspect
from pathlib import Path

from experiments.documents import markdown
from gemm_ref.ptx.isa.table import MANUAL, OPCODES, SECTIONS, Row

_HEAD = f"""# Instructions of the reference GPU

The [reference GPU](../gemm_ref/ptx/__init__.py) runs PTX as nvcc, Triton and Gluon compile it.
It has the {len(OPCODES)} opcodes that GEMM kernels use; a missing instruction, or a missing form of one, raises an
error that names it and its source line. Sections are those of the manual, {MANUAL}.

To add an opcode, write its builder in [isa/](../gemm_ref/ptx/isa), name it in the
[table](../gemm_ref/ptx/isa/table.py), and test it against the manual: a test fails while an opcode has none.
`make readme` writes this page from the table."""


def render(published: Path) -> str:
    """The whole page; the published data have no part in it."""
    parts = [_HEAD]
    for section, rows in SECTIONS.items():
        number, _, title = section.partition(", ")
        table = markdown.table(["opcode", "what it does, and its forms", "built in"], map(_line, rows), words=3)
        parts += [f"## {title[0].upper()}{title[1:]} ({number})", table]
    return "\n\n".join(parts) + "\n"


def _line(row: Row) -> list[str]:
    file = inspect.getfile(inspect.unwrap(row.build)).partition("/ptx/isa/")[2]
    opcodes = ", ".join(f"`{opcode}`" for opcode in row.opcodes)
    summary = " ".join((inspect.getdoc(row.build) or "").partition("\n\n")[0].split()).removeprefix(f"{opcodes}: ")
    return [opcodes, summary[0].upper() + summary[1:], f"[{Path(file).name}](../gemm_ref/ptx/isa/{file})"]
