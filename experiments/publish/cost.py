"""docs/cost.md: what each rung takes to write, to compile and to hold, beside its speed.

The words are in cost.md.j2. Lines and tokens are those of the sources as they are now; the rest is from the CSVs in a
folder of results, and what was not measured is said to be so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import gemm_ref
from experiments.publish import markdown
from experiments.publish.answer import Answer
from experiments.publish.drawing import style
from experiments.publish.markdown import NOT_MEASURED
from experiments.publish.templates import templates
from experiments.records import compiled, environment, frames, store
from experiments.records.controls import explained, size_name
from experiments.records.source_lines import lines_of
from gemm_ref import DIALECTS, Rung

MATHS = ("fp32", "bf16")  # whose speeds stand beside the lines: the first mode of each rung

Kernels = Mapping[tuple[str, str], Any]  # a rung's id and a dialect -> the row of its default variant


def render(published: Path = store.PUBLISHED) -> str:
    """The whole page, from the results in a folder."""
    template = templates().get_template("cost.md.j2")
    return template.render(
        summary=_summary(published),
        written=_written(published),
        compiled=_compiled(published),
        pictures={name for name in ("cost_lines", "cost_vs_cublas") if (published / f"{name}.png").exists()},
        folder=published.name,
    )


def _summary(published: Path) -> str:
    """Three lines: the best rungs in fp32 and on tensor cores, then compile times and calls."""
    seconds = _ranges({kernel: row.compile_s for kernel, row in _costs(published).items()}, "{:.1f}")
    calls = _ranges({kernel: row.median_us for kernel, row in _host(published).items()}, "{:.0f}")
    answer = Answer(published)
    taken = f"Seconds to compile a default variant, median (least to most): {seconds}. Host, µs per call: {calls}."
    return "\n".join([*(_best(math, answer) for math in MATHS), taken])


def _best(math: str, answer: Answer) -> str:
    """The fastest rung of each dialect in one math mode, with its lines and its share of cuBLAS."""
    mode = next((mode for mode in answer.modes if mode.math == math), None)
    if mode is None:
        return f"{math}: {NOT_MEASURED}."
    said = []
    for dialect, best in mode.best.items():
        written = lines_of(best.row.stage, dialect)
        shared = f" and {written.shared_lines} shared" if written.shared_lines else ""
        lines = f"{written.own_lines} lines of its own{shared}"
        said.append(f"{DIALECTS[dialect].title} `{best.number}`, {lines}, {best.percent}% of cuBLAS")
    return explained(f"{math} at {mode.size}, the best rung of each dialect: {'; '.join(said)}.", mode.size)


def _ranges(values: Mapping[tuple[str, str], float], form: str) -> str:
    """The median, the least and the most of each dialect."""
    found = []
    for dialect, of in DIALECTS.items():
        if own := sorted(value for (_, name), value in values.items() if name == dialect):
            middle, low, high = (form.format(value) for value in (median(own), own[0], own[-1]))
            found.append(f"{of.title} {middle} ({low} to {high})")
    return ", ".join(found) or NOT_MEASURED


def _written(published: Path) -> str:
    shares: dict[tuple[str, str], str] = {}
    said, runs = [], []
    for math in MATHS:
        at_size = frames.at_tables(published, math)
        if at_size.empty:
            continue
        rows = frames.rungs(frames.defaults(at_size))
        shares |= {(row.stage, row.dialect): style.number(100 * row.vs_cublas) for row in rows.itertuples()}
        said.append(f"{math} at {size_name(at_size)}")
        runs += store.runs_of(rows, published)
    columns: dict[str, Callable[[str, str], str]] = {
        "lines": lambda *kernel: str(lines_of(*kernel).own_lines),
        "shared lines": lambda *kernel: str(lines_of(*kernel).shared_lines),
        "tokens": lambda *kernel: str(lines_of(*kernel).own_tokens),
        "shared tokens": lambda *kernel: str(lines_of(*kernel).shared_tokens),
        "% of cuBLAS": lambda *kernel: shares.get(kernel, "–"),
    }
    table = _table(columns, lambda stage: f"`{stage.id}`")
    speeds = f"Shares of cuBLAS: {', '.join(said)}. {explained(environment.caption(runs), *said)}." if said else ""
    return f"{table}\n\nCUDA / Triton / Gluon. {speeds}".strip()


def _compiled(published: Path) -> str:
    rows, host = _costs(published), _host(published)
    if not rows:
        return NOT_MEASURED

    def of(kernels: Kernels, text: Callable[[Any], str]) -> Callable[[str, str], str]:
        return lambda *kernel: text(kernels[kernel]) if kernel in kernels else "–"

    columns = {
        "compile, s": of(rows, lambda row: f"{row.compile_s:.2f}"),
        "registers": of(rows, lambda row: f"{row.registers:.0f}"),
        "shared memory, KiB": of(rows, lambda row: f"{row.shared_bytes / 1024:.1f}"),
        "machine code, KiB": of(rows, lambda row: f"{row.code_bytes / 1024:.1f}"),
        "host, µs": of(host, lambda row: f"{row.median_us:.1f}"),
    }
    table = _table(columns, lambda stage: f"`{stage.id}` {markdown.defaults(stage)}".strip())
    frame = store.read(published, "cost")
    runs = store.runs_of(frame, published)
    said = f"CUDA / Triton / Gluon on {next(iter(rows.values())).arch}, compiled on {runs[-1]['cpu']}"
    said += f". {environment.compilers_caption(runs)}."
    if host:
        row = next(iter(host.values()))
        calls = store.caption(store.read(published, "host"), published)
        said += f" Host: at M = N = K = {row.m}, {calls}."
    return f"{table}\n\n{said}"


def _table(columns: Mapping[str, Callable[[str, str], str]], name: Callable[[Rung], str]) -> str:
    """A line per rung; in each cell a number for each dialect."""
    rows = []
    for stage in gemm_ref.STAGES.values():
        cells = [
            " / ".join(text(stage.id, dialect) if dialect in stage.dialects else "–" for dialect in DIALECTS)
            for text in columns.values()
        ]
        rows.append([name(stage), *cells])
    return markdown.table(["rung", *columns], rows)


def _costs(published: Path) -> Kernels:
    """The rows of `cost` that have a compile time, of default variants."""
    rows = compiled.defaults(store.read(published, "cost").dropna(subset="compile_s"))
    return {(row.stage, row.dialect): row for row in rows.itertuples()}


def _host(published: Path) -> Kernels:
    """The rows of `host` at its smallest size, where a kernel is done soonest, of default variants."""
    frame = frames.defaults(frames.rungs(store.read(published, "host").dropna(subset="median_us")))
    smallest = frame[frame["m"] == frame["m"].min()]
    return {(row.stage, row.dialect): row for row in smallest.itertuples()}
