"""The row of cost.csv."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.records.rows import Row


@dataclass(frozen=True, kw_only=True)
class CostRow(Row):
    """The size of one kernel's source, the time to compile it, and the resources that it occupies."""

    own_lines: int | None = None  # lines of code, as `experiments.records.source_lines` counts them
    own_tokens: int | None = None
    shared_lines: int | None = None  # in files that other rungs share
    shared_tokens: int | None = None
    arch: str = ""  # the architecture that it was compiled for
    compile_s: float | None = None  # CPU seconds from source to cubin, nothing compiled before: the median,
    compile_s_low: float | None = None  # the least
    compile_s_high: float | None = None  # and the most
    compiles: int | None = None  # number of compiles that the times are taken from
    registers: int | None = None  # per thread, in the rung's main kernel
    shared_bytes: int | None = None  # per block, static and dynamic
    code_bytes: int | None = None  # machine code of the kernel with the most of it
