"""What docs/ says from registers.csv: the clocks of chosen registers, and of each rung what its text's rules change."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

import gemm_ref
from experiments.documents import markdown
from experiments.plots.look import style
from experiments.records import environment, frames, store
from experiments.records.controls import Controls, explained

LOOPS = "registers-loops"
_STAGES = ("s09_conflict_free", "s10_double_buffer", "s11_warp_tile", "s12_async_copy")
RUNGS = {f"registers-{stage[:3]}": stage for stage in _STAGES}
BLOCKS = (LOOPS, *RUNGS)
_KEPT = "reuse"
_TOLD = ("parities", "reads", _KEPT, "writes")  # the others are in the picture
_NOT_MEASURED = "not measured"


def block(name: str, published: Path) -> str:
    """The Markdown of one of BLOCKS from the CSV in `published`; it says so where the rows are not there."""
    frame = store.read(published, "registers")
    frame = frame[frame["clocks"].notna()]
    own = frame[frame["m"] == 0] if name == LOOPS else frames.largest_cube(frame)
    if name != LOOPS:
        own = own[own["stage"].isin([RUNGS[name], *own["stage"][own["form"] == ""]])]
    if own[own["form"] != ""].empty:
        return _NOT_MEASURED
    caption = environment.caption(store.runs_of(own, published))
    return f"{_loops(own)}\n\n{caption}." if name == LOOPS else _rung(own, RUNGS[name], caption)


def _loops(frame: pd.DataFrame) -> str:
    """A line for each loop of _TOLD: clocks for an instruction with one warp a scheduler and with two."""
    lines = [["instruction", "its registers", "predicted", "1 warp", "2 warps"], ["---", "---", *["---:"] * 3]]
    frame = frame[frame["form"].isin(_TOLD)]
    for (stage, form, variant), own in frame.groupby(["stage", "form", "variant"], sort=False):
        clocks = own.set_index("warps")["clocks"]
        cells = [f"{clocks[warps]:.2f}" if warps in clocks.index else "" for warps in (1, 2)]
        kept = "kept: " if form == _KEPT else ""
        lines.append([stage, kept + variant, f"{own['predicted'].iloc[0]:.2f}", *cells])
    return markdown.table(lines)


def _rung(frame: pd.DataFrame, stage: str, caption: str) -> str:
    """A line for each variant and form of a rung: its speed alone on a multiprocessor, and with a second block."""
    lines = [["variant", "text", "registers", "least", "alone", "two blocks"], ["---", "---", *["---:"] * 4]]
    own = frame[frame["stage"] == stage]
    for variant in gemm_ref.get_stage(stage).variants_in("cuda"):
        for form, rows in own[own["variant"] == variant].groupby("form", sort=False):
            by_warps = {row.warps: row for row in rows.itertuples()}
            speeds = [_speed(by_warps[warps]) if warps in by_warps else "" for warps in (2, 4)]
            first = next(rows.itertuples())
            lines.append([variant, form, f"{first.registers:.0f}", f"{first.predicted:.2f}", *speeds])
    size = f"{frame['m'].iloc[0]}{Controls(frame).mark()}"
    said = f"CUDA at M = N = K = {size}: clocks of a scheduler for each multiply-add, the least that reading registers"
    said += " takes and those measured, with % of cuBLAS"
    library = frame[frame["backend"] == "cublas"]["clocks"]
    beside = f", which takes {library.iloc[0]:.2f}" if len(library) else ""
    return f"{markdown.table(lines)}\n\n{said}{beside}. {explained(caption, size)}."


def _speed(row) -> str:
    return f"{row.clocks:.2f} ({style.number(100 * row.vs_cublas)}%)"
