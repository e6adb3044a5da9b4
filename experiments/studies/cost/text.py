"""The blocks of docs/cost.md, what each rung takes to write, to compile and to hold, and sentences about `cost`.

Lines and tokens are those of the sources as they are now; the rest is from the CSVs in a folder of results, and what
was not measured is said to be so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

import gemm_ref
from experiments.publish.answer import Answer, read_answer
from experiments.publish.numbers import format_fixed, format_kib, format_number, format_range
from experiments.publish.table import Table
from experiments.publish.wording import DIALECT_TITLES, NOT_MEASURED, join_dialects, name_defaults
from experiments.records import compiled, environment, frames, store
from experiments.records.controls import explained, size_name
from experiments.records.source_lines import lines_of
from gemm_ref import DIALECTS

MATHS = ("fp32", "bf16")  # whose speeds stand beside the lines: the first mode of each rung
_one_place = partial(format_fixed, places=1)

Kernels = Mapping[tuple[str, str], Any]  # a rung's id and a dialect -> the row of its default variant
Columns = Mapping[str, Callable[[str, str], str]]  # a column's head -> its text for a rung and a dialect

# Block -> the page of docs/ that has it
BLOCKS = dict.fromkeys(("cost-best", "cost-code", "cost-compiled"), "cost.md")


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Yields the sentences about the result; none where the rows say nothing."""
    own = frame[frame["own_lines"].notna()]
    if own.empty:
        return
    lines = (own["own_lines"] + own["shared_lines"]).groupby(own["dialect"], sort=False)
    ranges = join_dialects({dialect: format_range(counts, format_fixed) for dialect, counts in lines})
    yield f"A rung takes this many lines of code, with the files that rungs share: {ranges}"
    seconds = compiled.defaults(own).groupby("dialect", sort=False)["compile_s"].median()
    each = join_dialects({dialect: f"{format_fixed(of, 1)} s" for dialect, of in seconds.items() if of > 0})
    if each:
        yield f"The median kernel, of default variants, compiles in {each} of a processor's time"


def block(name: str, published: Path) -> str:
    """The Markdown of one of BLOCKS, from the results in a folder."""
    if name == "cost-code":
        return _tabulate_code(published)
    compile_times, calls = _read_compile_times(published), _read_calls(published)
    if name == "cost-compiled":
        return _tabulate_compiled(compile_times, calls, published)
    answer = read_answer(published)
    seconds = _describe_ranges({kernel: row.compile_s for kernel, row in compile_times.items()}, _one_place)
    on_host = _describe_ranges({kernel: row.median_us for kernel, row in calls.items()}, format_fixed)
    times = f"Seconds to compile a default variant, median (least to most): {seconds}. Host, µs per call: {on_host}."
    return "\n".join([*(_describe_best(math, answer) for math in MATHS), times])


def _describe_best(math: str, answer: Answer) -> str:
    """Each dialect's rung with the fewest lines among the fastest in one compute type, and its share of cuBLAS."""
    mode = next((mode for mode in answer.modes if mode.math == math), None)
    if mode is None:
        return f"{math}: {NOT_MEASURED}."
    rungs = []
    for dialect, best in mode.best.items():
        code = lines_of(best.row.stage, dialect)
        shared = f" and {code.shared_lines} shared" if code.shared_lines else ""
        lines = f"{code.own_lines} lines of its own{shared}"
        rungs.append(f"{DIALECTS[dialect].title} `{best.number}`, {lines}, {best.percent} of cuBLAS")
    return explained(
        f"{math} at {mode.size}, the rung with the fewest lines among the fastest: {'; '.join(rungs)}.", mode.size
    )


def _describe_ranges(values: Mapping[tuple[str, str], float], form: Callable[[float], str]) -> str:
    """The median, the least and the most of each dialect."""
    ranges = []
    for dialect, of in DIALECTS.items():
        if own := [value for (_, name), value in values.items() if name == dialect]:
            ranges.append(f"{of.title} {form(median(own))} ({form(min(own))} to {form(max(own))})")
    return ", ".join(ranges) or NOT_MEASURED


def _tabulate_code(published: Path) -> str:
    shares: dict[tuple[str, str], str] = {}
    sizes, runs = [], []
    for math in MATHS:
        at_size = frames.at_tables(published, math)
        if at_size.empty:
            continue
        rows = frames.rungs(frames.defaults(at_size))
        shares |= {(row.stage, row.dialect): format_number(100 * row.vs_cublas) for row in rows.itertuples()}
        sizes.append(f"{math} at {size_name(at_size)}")
        runs += store.runs_of(rows, published)
    columns: Columns = {
        "lines": lambda *kernel: str(lines_of(*kernel).own_lines),
        "shared lines": lambda *kernel: str(lines_of(*kernel).shared_lines),
        "tokens": lambda *kernel: str(lines_of(*kernel).own_tokens),
        "shared tokens": lambda *kernel: str(lines_of(*kernel).shared_tokens),
        "% of cuBLAS": lambda *kernel: shares.get(kernel, "–"),
    }
    caption = f"{', '.join(sizes)}. {explained(environment.caption(runs), *sizes)}" if sizes else NOT_MEASURED
    return f"{_tabulate(columns).to_markdown()}\n\n{DIALECT_TITLES}. Shares of cuBLAS: {caption}."


def _tabulate_compiled(compile_times: Kernels, calls: Kernels, published: Path) -> str:
    if not compile_times:
        return NOT_MEASURED

    def column(kernels: Kernels, text: Callable[[Any], str]) -> Callable[[str, str], str]:
        return lambda *kernel: text(kernels[kernel]) if kernel in kernels else "–"

    columns: Columns = {
        "compile, s": column(compile_times, lambda row: format_fixed(row.compile_s, 2)),
        "registers": column(compile_times, lambda row: format_fixed(row.registers)),
        "shared memory, KiB": column(compile_times, lambda row: format_kib(row.shared_bytes)),
        "machine code, KiB": column(compile_times, lambda row: format_kib(row.code_bytes)),
        "host, µs": column(calls, lambda row: format_fixed(row.median_us, 1)),
    }
    runs = store.runs_of(store.read(published, "cost"), published)
    caption = f"{DIALECT_TITLES} on {next(iter(compile_times.values())).arch}, compiled on {runs[-1]['cpu']}"
    caption += f". {environment.compilers_caption(runs)}."
    if calls:
        edge, device = next(iter(calls.values())).m, store.caption(store.read(published, "host"), published)
        caption += f" Host: at M = N = K = {edge}, {device}."
    return f"{_tabulate(columns, are_variants_named=True).to_markdown()}\n\n{caption}"


def _tabulate(columns: Columns, are_variants_named: bool = False) -> Table:
    """A row for each rung; in each cell a number for each dialect."""
    rows = []
    for stage in gemm_ref.STAGES.values():
        name = f"`{stage.id}` {name_defaults(stage) if are_variants_named else ''}".strip()
        cells = [
            " / ".join(text(stage.id, dialect) if dialect in stage.dialects else "–" for dialect in DIALECTS)
            for text in columns.values()
        ]
        rows.append([name, *cells])
    return Table.of(["rung", *columns], rows)


def _read_compile_times(published: Path) -> Kernels:
    """The rows of `cost` that have a compile time, of default variants."""
    rows = compiled.defaults(store.read(published, "cost").dropna(subset="compile_s"))
    return {(row.stage, row.dialect): row for row in rows.itertuples()}


def _read_calls(published: Path) -> Kernels:
    """The rows of `host` at its smallest size, where a kernel is done soonest, of default variants."""
    frame = frames.defaults(frames.rungs(store.read(published, "host").dropna(subset="median_us")))
    smallest = frame[frame["m"] == frame["m"].min()]
    return {(row.stage, row.dialect): row for row in smallest.itertuples()}
