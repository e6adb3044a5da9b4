"""docs/instructions.md: which instructions the reference GPU has, written from its table of opcodes."""

from __future__ import annotations

import inspect
from pathlib import Path

from experiments.publish.table import Table
from gemm_ref.ptx.isa.table import MANUAL, OPCODES, SECTIONS, OpcodeRow

_HEAD = f"""# Instructions of the reference GPU

The [reference GPU](../gemm_ref/ptx/__init__.py) runs PTX as nvcc, Triton and Gluon compile it.
It has the {len(OPCODES)} opcodes that GEMM kernels use; a missing instruction, or a missing form of one, raises an
error that names it and its source line. Sections are those of the manual, {MANUAL}.

To add an opcode, write its builder in [isa/](../gemm_ref/ptx/isa), name it in the
[table](../gemm_ref/ptx/isa/table.py), and test it against the manual: a test fails while an opcode has none.
`make readme` writes this page from the table.

It also supports function calls, recursive ones and by address too; `printf` (a thread's text goes to
`Observer.on_print`, and to the terminal if there is no observer); `assert`, whose failure is a fault with file, line
and expression; `malloc` in a heap of 8 MiB; structs by value (`ptx.Struct`); and `this_grid().sync()` for a grid that
fits on the GPU at once. `python -m tests.ptx.fuzz.statements` compares 10,000 random statements with g++, bit for bit.

## What is not supported

| what | why |
| --- | --- |
| textures and surfaces | no current GEMM reads through them |
| `mma.m8n8k4` of f16 | Volta's; later GPUs run it slowly, in several instructions |
| `mma.sp`, sparse `wgmma` | the sums of sparse tensor cores have not been compared with a GPU |
| `mma` of s4, u4, b1 | removed from GPUs after Ampere |
| `wgmma` of fp8 with f16 sums | how they round is not known; f16 operands are assumed to round as in `mma` |
| `red.async`, `st.async`, `cp.reduce.async` | no kernel that was tried uses them |
| `multimem` | it needs several GPUs |
| sm_100's: `tcgen05`, loads of 256 bits, pairs of f32, fp4 and fp6 | the reference GPU is an H200 |

Clock registers count instructions, since time is not modelled. Approximate functions return the true value rounded to
nearest, whereas a GPU's may deviate as far as the manual allows."""


def render(published: Path) -> str:
    """The whole page; the published data have no part in it."""
    parts = [_HEAD]
    for section, rows in SECTIONS.items():
        number, _, title = section.partition(", ")
        table = Table.of(["opcode", "what it does, and its forms", "built in"], map(_line, rows), 3)
        parts += [f"## {title[0].upper()}{title[1:]} ({number})", table.to_markdown()]
    return "\n\n".join(parts) + "\n"


def _line(row: OpcodeRow) -> list[str]:
    file = inspect.getfile(inspect.unwrap(row.build)).partition("/ptx/isa/")[2]
    opcodes = ", ".join(f"`{opcode}`" for opcode in row.opcodes)
    summary = " ".join((inspect.getdoc(row.build) or "").partition("\n\n")[0].split()).removeprefix(f"{opcodes}: ")
    return [opcodes, summary[0].upper() + summary[1:], f"[{Path(file).name}](../gemm_ref/ptx/isa/{file})"]
