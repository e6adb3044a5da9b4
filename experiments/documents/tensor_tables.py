"""The generated tables of the tensor-core rungs: a line per rung, and a table per math mode."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

import gemm_ref
from experiments.documents import markdown
from experiments.plots.look import style
from experiments.records import environment, frames, store, workloads
from experiments.records.controls import CONTROL, Controls, explained
from experiments.records.frames import LAYOUT, LAYOUT_WORDS
from gemm_ref import DIALECTS
from gemm_ref.baselines import BASELINES
from gemm_ref.stage import DEFAULT_VARIANT

OVERVIEW = "tensor_cores"  # a line per rung
MATHS = tuple(math for math in gemm_ref.MATHS if math != "fp32")
PAGE = tuple(f"tensor_{math}" for math in MATHS)  # a table each
BLOCKS = (OVERVIEW, *PAGE)


def block(name: str, published: Path) -> str:
    """The Markdown of one block, by name."""
    frame = store.read(published, "tensor_cores")
    controls = Controls(frame)
    if not frame.empty:
        frame = frames.defaults(frame[frame["median_us"].notna() & (frame["stage"] != CONTROL)])
    if frame.empty:
        return "not measured"
    if name == OVERVIEW:
        return _overview(frame, controls, published)
    return _table(frame, name.removeprefix("tensor_"), controls, published)


def _stages() -> list[gemm_ref.Stage]:
    return [stage for stage in gemm_ref.STAGES.values() if set(stage.maths) & set(MATHS)]


def _overview(frame: pd.DataFrame, controls: Controls, published: Path) -> str:
    """% of cuBLAS of each rung in CUDA / Triton / Gluon, by math mode, at the size of the other tables."""
    frame = frames.shown(frame)
    size = max((size for size in set(frame["m"]) if size <= workloads.LARGEST), default=min(frame["m"]))
    frame = frame[frame["m"] == size]
    maths = frames.maths_of(frame)
    heads = [math + controls.mark(m=size, math=math, b_layout=LAYOUT[math]) for math in maths]
    lines = [["rung", "idea", *heads], ["---", "---", *["---:"] * len(maths)]]
    for stage in _stages():
        cells = [" / ".join(_share(frame, stage, math, dialect) for dialect in DIALECTS) for math in maths]
        lines.append([f"`{stage.id}`", stage.idea, *(f"{cell}%" if cell.strip("– /") else "–" for cell in cells)])
    for name, baseline in BASELINES.items():
        own = frame[(frame["stage"] == name) & (frame["backend"] != "cublas")]
        if not own.empty:
            shares = {row.math: f"{style.number(100 * row.vs_cublas)}%" for row in own.itertuples()}
            lines.append([baseline.title, baseline.idea, *(shares.get(math, "–") for math in maths)])
    reference = frame[frame["backend"] == "cublas"].set_index("math")["tflops"]
    lines.append(["cuBLAS", "TFLOP/s", *(style.number(reference[math]) for math in maths)])
    said = (
        f"% of cuBLAS in the same rounds at M = N = K = {size}, CUDA / Triton / Gluon; {LAYOUT_WORDS['kn']}, except "
        f"in fp8, where cuBLAS supports only {LAYOUT_WORDS['nk']}."
    )
    variants = [f"{stage.id[:3]} {names}" for stage in _stages() if (names := markdown.defaults(stage))]
    said += f" Variants: {'; '.join(variants)}." if variants else ""
    caption = explained(environment.caption(store.runs_of(frame, published)), *heads)
    return f"{markdown.table(lines)}\n\n{said} {caption}."


def _share(frame: pd.DataFrame, stage: gemm_ref.Stage, math: str, dialect: str) -> str:
    own = frame[(frame["stage"] == stage.id) & (frame["math"] == math) & (frame["dialect"] == dialect)]
    return "–" if own.empty else style.number(100 * own.iloc[0].vs_cublas)


def _table(frame: pd.DataFrame, math: str, controls: Controls, published: Path) -> str:
    """TFLOP/s and % of cuBLAS of every kernel of one math mode, with B both ways at every size."""
    frame = frame[frame["math"] == math]
    if frame.empty:
        return "not measured"
    columns = [(layout, size) for layout in gemm_ref.B_LAYOUTS for size in sorted(set(frame["m"]))]
    heads = [
        f"{'by rows' if layout == 'kn' else 'by columns'}, {size}{controls.mark(m=size, math=math, b_layout=layout)}"
        for layout, size in columns
    ]
    lines = [["kernel", *heads], ["---", *["---:"] * len(columns)]]
    keys = list(dict.fromkeys(zip(frame["stage"], frame["dialect"], strict=True)))
    order = {name: place for place, name in enumerate([*gemm_ref.STAGES, *BASELINES])}
    for stage, dialect in sorted(keys, key=lambda key: order[key[0]]):
        own = frame[(frame["stage"] == stage) & (frame["dialect"] == dialect)]
        cells = [_cell(own[(own["b_layout"] == layout) & (own["m"] == size)]) for layout, size in columns]
        name = "" if dialect else BASELINES[stage].title
        if dialect:
            variant = gemm_ref.get_stage(stage).find_variant(DEFAULT_VARIANT, dialect)
            name = f"{markdown.named(stage, variant)} {DIALECTS[dialect].title}"
        lines.append([name, *cells])
    said = f"TFLOP/s and, in brackets, % of cuBLAS in the same rounds; shown elsewhere: {LAYOUT_WORDS[LAYOUT[math]]}."
    caption = explained(environment.caption(store.runs_of(frame, published)), *heads)
    return f"{markdown.table(lines)}\n\n{said} {caption}."


def _cell(rows: pd.DataFrame) -> str:
    if rows.empty:
        return "–"
    row = rows.iloc[0]
    share = "" if row.stage == "cublas" else f" ({style.number(100 * row.vs_cublas)}%)"
    return f"{style.number(row.tflops)}{share}"
