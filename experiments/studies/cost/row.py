"""The row of cost.csv."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.records.rows import Row


@dataclass(frozen=True, kw_only=True)
class CostRow(Row):
    """What one kernel takes to write, to compile and to hold."""

    own_lines: int | None = None  # of code, as `experiments.records.source_lines` counts it
    own_tokens: int | None = None
    shared_lines: int | None = None  # of the files that it uses and others too
    shared_tokens: int | None = None
    arch: str = ""  # that it was compiled for
    compile_s: float | None = None  # CPU seconds from source to cubin, nothing compiled before: the median,
    compile_s_low: float | None = None  # the least
    compile_s_high: float | None = None  # and the most
    compiles: int | None = None  # of so many times
    registers: int | None = None  # of a thread, in the rung's main kernel
    shared_bytes: int | None = None  # of a block, static and dynamic
    code_bytes: int | None = None  # of machine code
