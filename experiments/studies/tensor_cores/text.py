"""The generated tables of the tensor-core rungs: a line per rung, a table per math mode, and one that stands alone.

`tensor_ablation` is what each idea of s18 is worth.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pandas as pd

import gemm_ref
from experiments.publish.kernels import default_row, row_of
from experiments.publish.numbers import format_fixed, format_number, format_percent, format_range
from experiments.publish.steps import count_faster, step_verdicts
from experiments.publish.table import Table
from experiments.publish.wording import NOT_MEASURED, join_words, kernel_name, name_defaults
from experiments.records import frames, store, workloads
from experiments.records.controls import CONTROL, Controls, explained
from experiments.records.frames import LAYOUT, LAYOUT_WORDS
from gemm_ref import DIALECTS
from gemm_ref.baselines import BASELINES
from gemm_ref.dialect import BY_HAND
from gemm_ref.rung import DEFAULT_VARIANT

OVERVIEW = "tensor_cores"  # a line per rung
PAGE = tuple(f"tensor_{math}" for math in frames.TENSOR_CORE_MATHS)  # a table each
# Block -> the page of docs/ that has it
BLOCKS = dict.fromkeys((OVERVIEW, "tensor_ablation", *PAGE), "tensor_cores.md")
BLOCKS |= {f"tensor_{math}": "emulation.md" for math in gemm_ref.EMULATED}
# What all of s18 has and a kernel has not, in words: the kernel.
_WITHOUT = {
    "C is stored while the next tile is multiplied": ("s18", "waits"),
    "blocks in pairs share what they load of B": ("s18", "alone"),
    "a block goes on to the next tile": ("s18", "one_tile"),
    "all three": ("s18", "roles"),
    "all three, and a warpgroup that only loads": ("s17", DEFAULT_VARIANT),
}
_AS_STORED = "nk"  # the layout of B that no rung from s17 on copies


def block(name: str, published: Path) -> str:
    """The Markdown of one block, by name."""
    if name == "tensor_ablation":
        return _ablation(published)
    frame = store.read(published, "tensor_cores")
    controls = Controls(frame)
    if not frame.empty:
        frame = frames.defaults(frame[frame["median_us"].notna() & (frame["stage"] != CONTROL)])
    if frame.empty:
        return NOT_MEASURED
    if name == OVERVIEW:
        return _overview(frame, controls, published)
    return _table(frame, name.removeprefix("tensor_"), controls, published)


def _stages(maths: list[str]) -> list[gemm_ref.Rung]:
    return [stage for stage in gemm_ref.STAGES.values() if set(stage.maths) & set(maths)]


def _overview(frame: pd.DataFrame, controls: Controls, published: Path) -> str:
    """% of cuBLAS of each rung in CUDA / Triton / Gluon, by math mode, at the size of the other tables."""
    frame = frames.shown(frame)
    size = max((size for size in set(frame["m"]) if size <= workloads.LARGEST), default=min(frame["m"]))
    frame = frame[frame["m"] == size]
    maths = frames.maths_of(frame)
    heads = [math + controls.mark(m=size, math=math, b_layout=LAYOUT[math]) for math in maths]
    lines = []
    for stage in _stages(maths):
        cells = [" / ".join(_share(frame, stage, math, dialect) for dialect in DIALECTS) for math in maths]
        lines.append([f"`{stage.id}`", stage.idea, *(f"{cell}%" if cell.strip("– /") else "–" for cell in cells)])
    for name, baseline in BASELINES.items():
        own = frame[(frame["stage"] == name) & (frame["backend"] != "cublas")]
        if not own.empty:
            shares = {row.math: format_percent(row.vs_cublas) for row in own.itertuples()}
            lines.append([baseline.title, baseline.idea, *(shares.get(math, "–") for math in maths)])
    speeds = [frames.cublas_tflops(frame[frame["math"] == math]) for math in maths]
    lines.append(["cuBLAS", "TFLOP/s", *map(format_number, speeds)])
    said = (
        f"% of cuBLAS in the same rounds at M = N = K = {size}, CUDA / Triton / Gluon; {LAYOUT_WORDS['kn']}, except "
        f"in fp8, where cuBLAS supports only {LAYOUT_WORDS['nk']}."
    )
    variants = [f"{stage.id[:3]} {names}" for stage in _stages(maths) if (names := name_defaults(stage))]
    said += f" Variants: {'; '.join(variants)}." if variants else ""
    caption = explained(_caption(frame, maths, published), *heads)
    return f"{Table.of(['rung', 'idea', *heads], lines, 2).to_markdown()}\n\n{said} {caption}."


def _caption(frame: pd.DataFrame, maths: list[str], published: Path) -> str:
    """Of modes of which the text around it has said how B is stored."""
    emulated = [math for math in maths if math in gemm_ref.EMULATED]
    return frames.with_modes(store.caption(frame, published), emulated)


def _share(frame: pd.DataFrame, stage: gemm_ref.Rung, math: str, dialect: str) -> str:
    own = frame[(frame["stage"] == stage.id) & (frame["math"] == math) & (frame["dialect"] == dialect)]
    return "–" if own.empty else format_number(100 * own.iloc[0].vs_cublas)


def _table(frame: pd.DataFrame, math: str, controls: Controls, published: Path) -> str:
    """TFLOP/s and % of cuBLAS of every kernel of one math mode, with B both ways at every size."""
    frame = frame[frame["math"] == math]
    if frame.empty:
        return NOT_MEASURED
    columns = [(layout, size) for layout in gemm_ref.B_LAYOUTS for size in sorted(set(frame["m"]))]
    heads = [
        f"{'by rows' if layout == 'kn' else 'by columns'}, {size}{controls.mark(m=size, math=math, b_layout=layout)}"
        for layout, size in columns
    ]
    lines = []
    keys = list(dict.fromkeys(zip(frame["stage"], frame["dialect"], strict=True)))
    order = {name: place for place, name in enumerate([*gemm_ref.STAGES, *BASELINES])}
    for stage, dialect in sorted(keys, key=lambda key: order[key[0]]):
        own = frame[(frame["stage"] == stage) & (frame["dialect"] == dialect)]
        cells = [_cell(own[(own["b_layout"] == layout) & (own["m"] == size)]) for layout, size in columns]
        name = "" if dialect else BASELINES[stage].title
        if dialect:
            variant = gemm_ref.get_stage(stage).find_variant(DEFAULT_VARIANT, dialect)
            name = f"{kernel_name(stage, variant)} {DIALECTS[dialect].title}"
        lines.append([name, *cells])
    said = (
        f"TFLOP/s and, in brackets, % of {frames.reference(math)} in the same rounds; shown elsewhere: "
        f"{LAYOUT_WORDS[LAYOUT[math]]}."
    )
    caption = explained(store.caption(frame, published), *heads)
    return f"{Table.of(['kernel', *heads], lines).to_markdown()}\n\n{said} {caption}."


def _cell(rows: pd.DataFrame) -> str:
    if rows.empty:
        return "–"
    row = rows.iloc[0]
    share = "" if row.backend == "cublas" else f" ({format_percent(row.vs_cublas)})"
    return f"{format_number(row.tflops)}{share}"


def _ablation(published: Path) -> str:
    """How many times as fast CUDA's s18 is as the same without some of its ideas, by math mode and size."""
    rows = store.read(published, "tensor_cores")
    frame, controls = frames.on_tensor_cores(rows), Controls(rows)
    frame, whole = frame[frame["b_layout"] == _AS_STORED], gemm_ref.get_stage("s18")
    maths = [math for math in frames.maths_of(frame) if math in whole.maths]
    lines = []
    for size in sorted(set(frame["m"])):
        at_size = {math: frame[(frame["m"] == size) & (frame["math"] == math)] for math in maths}
        for words, (rung, variant) in _WITHOUT.items():
            cells = [_worth(rows, gemm_ref.get_stage(rung), variant, whole) for rows in at_size.values()]
            if any(cells):
                marks = [controls.mark(m=size, math=math, b_layout=_AS_STORED) for math in maths]
                shown = [f"{cell or NOT_MEASURED}{mark}" for cell, mark in zip(cells, marks, strict=True)]
                lines.append([words, kernel_name(rung, variant), str(size), *shown])
    if not lines:
        return NOT_MEASURED
    said = (
        f"CUDA: the speed of {kernel_name('s18', whole.find_variant(DEFAULT_VARIANT, BY_HAND))} over that of the "
        f"kernel, in the same rounds, and the verdict; {LAYOUT_WORDS[_AS_STORED]}, which each reads as it is stored."
    )
    caption = explained(store.caption(frame, published), *itertools.chain(*lines))
    return f"{Table.of(['without', 'kernel', 'M = N = K', *maths], lines, 2).to_markdown()}\n\n{said} {caption}."


def _worth(rows: pd.DataFrame, stage: gemm_ref.Rung, variant: str, whole: gemm_ref.Rung) -> str:
    """The speed of `whole` over that of the kernel, and the verdict; empty where one is missing."""
    old, new = row_of(rows, stage, variant, BY_HAND), default_row(rows, whole, BY_HAND)
    ratio = frames.speedup(old, new)
    return f"{format_fixed(ratio.median, 3)}, {frames.verdict(old, new)}" if ratio else ""


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Yields the sentences about the result; none where the rows say nothing."""
    frame = frame[frame["median_us"].notna()]
    sizes = frame["m"][frame["m"] <= workloads.LARGEST]
    at_size = frames.defaults(frame[frame["m"] == sizes.max()])
    if frames.rungs(at_size).empty:
        return
    by_math = frames.shown(at_size).groupby("math")
    steps = {
        dialect: {
            (math, stage): verdict
            for math, rows in by_math
            for stage, verdict in step_verdicts(rows, math, dialect).items()
        }
        for dialect in DIALECTS
    }
    yield f"Over all math modes, in default variants, a rung is faster than the one below it at {count_faster(steps)}"
    keys = ["math", "stage", "dialect"]
    times = frames.rungs(at_size).pivot_table(index=keys, columns="b_layout", values="median_us")
    if {"kn", "nk"} <= set(times):
        ratios = (times["kn"] / times["nk"]).dropna().groupby("math", sort=False)
        maths = [math for math in gemm_ref.MATHS if math in ratios.groups]
        each = [f"{format_range(ratios.get_group(math), partial(format_fixed, places=2))} in {math}" for math in maths]
        yield f"B by rows takes this many times as long as B by columns: {join_words(each)}"
