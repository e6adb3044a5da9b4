"""What docs/ says from registers.csv: the clocks of chosen registers, and of each rung what its text's rules change."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pandas as pd

import gemm_ref
from experiments.publish.numbers import format_fixed, format_percent, format_range
from experiments.publish.table import Table
from experiments.publish.wording import NOT_MEASURED, join_words
from experiments.records import compiled, frames, store
from experiments.records.controls import Controls, explained
from gemm_ref import DIALECTS

_two_places = partial(format_fixed, places=2)
LOOPS, BLOCKS_PER_SM = "registers-loops", "registers-blocks"
RUNGS = {f"registers-{stage.id[:3]}": stage.id for stage in gemm_ref.STAGES.values() if stage.number in range(7, 13)}
# Block -> the page of docs/ that has it
BLOCKS = dict.fromkeys((LOOPS, BLOCKS_PER_SM), "compilers.md") | dict.fromkeys(RUNGS, "ladder.md")
_ONE, _TWO = "one_block", "two_blocks"  # variants of one kernel, with registers for so many blocks
_KEPT = "reuse"
_TOLD = ("parities", "reads", _KEPT, "writes")  # the others are in the picture


def block(name: str, published: Path) -> str:
    """The Markdown of one of BLOCKS from the CSV in `published`; it says so where the rows are not there."""
    if name == BLOCKS_PER_SM:
        return _blocks_per_sm(published)
    frame = store.read(published, "registers").dropna(subset="clocks")
    own = frame[frame["m"] == 0] if name == LOOPS else frames.largest_cube(frame)
    if name != LOOPS:
        own = own[own["stage"].isin([RUNGS[name], *own["stage"][own["form"] == ""]])]
    if own[own["form"] != ""].empty:
        return NOT_MEASURED
    caption = store.caption(own, published)
    return f"{_loops(own)}\n\n{caption}." if name == LOOPS else _rung(own, RUNGS[name], caption)


def _loops(frame: pd.DataFrame) -> str:
    """A line for each loop of _TOLD: clocks for an instruction with one warp a scheduler and with two."""
    lines = []
    frame = frame[frame["form"].isin(_TOLD)]
    for (stage, form, variant), own in frame.groupby(["stage", "form", "variant"], sort=False):
        clocks = own.set_index("warps")["clocks"]
        cells = [format_fixed(clocks[warps], 2) if warps in clocks.index else "" for warps in (1, 2)]
        kept = "reused: " if form == _KEPT else ""
        lines.append([stage, kept + variant, format_fixed(own["predicted"].iloc[0], 2), *cells])
    head = ["instruction", "registers", "predicted, clocks", "1 warp, clocks", "2 warps, clocks"]
    return Table.of(head, lines, 2).to_markdown()


def _blocks_per_sm(published: Path) -> str:
    """A line for each rung and dialect that has one kernel for one block a multiprocessor and for two."""
    code = compiled.at_one_size(store.read(published, "instructions"))
    code = code[(code["arch"] == compiled.MAIN_ARCHITECTURE) & code["variant"].isin((_ONE, _TWO))]
    speed = frames.largest_cube(store.read(published, "ladder")).set_index(["stage", "variant", "dialect"])["vs_cublas"]
    columns = "blocks per SM", "least clocks", "of cuBLAS"
    head = ["rung", *(f"{name}: {of}" for name in (_ONE, _TWO) for of in columns)]
    lines = []
    for (stage, dialect), own in code.groupby(["stage", "dialect"], sort=False):
        cells = []
        for row in own.sort_values("variant").itertuples():
            key = stage, row.variant, dialect
            share = format_percent(speed[key], 1) if key in speed.index else NOT_MEASURED
            cells += [format_fixed(row.blocks_per_sm), format_fixed(row.port_clocks / row.ffma, 2), share]
        lines.append([f"`{stage[:3]}` {DIALECTS[dialect].title}", *cells])
    return Table.of(head, lines).to_markdown() if lines else NOT_MEASURED


def _rung(frame: pd.DataFrame, stage: str, caption: str) -> str:
    """A line for each variant and form of a rung: its speed alone on a multiprocessor, and with a second block."""
    lines = []
    own = frame[frame["stage"] == stage]
    for variant in gemm_ref.get_stage(stage).variants_in("cuda"):
        for form, rows in own[own["variant"] == variant].groupby("form", sort=False):
            by_warps = {row.warps: row for row in rows.itertuples()}
            speeds = [_speed(by_warps[warps]) if warps in by_warps else "" for warps in (2, 4)]
            first = next(rows.itertuples())
            lines.append([variant, form, format_fixed(first.registers), format_fixed(first.predicted, 2), *speeds])
    size = f"{frame['m'].iloc[0]}{Controls(frame).mark()}"
    said = f"CUDA at M = N = K = {size}: clocks of a scheduler per multiply-add: the least that reading registers"
    said += " takes, and those measured with one block per SM and with two, with % of cuBLAS"
    library = frame[frame["backend"] == "cublas"]["clocks"]
    beside = f", which takes {format_fixed(library.iloc[0], 2)}" if len(library) else ""
    clocks = (f"{what}, clocks" for what in ("least", "alone", "two blocks"))
    table = Table.of(["variant", "rewrite", "registers", *clocks], lines, 2).to_markdown()
    return f"{table}\n\n{said}{beside}. {explained(caption, size)}."


def _speed(row) -> str:
    return f"{format_fixed(row.clocks, 2)} ({format_percent(row.vs_cublas)})"


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Yields the sentences about the result; none where the rows say nothing."""
    frame = frame[frame["clocks"].notna()]
    loops, rungs = frame[(frame["m"] == 0) & (frame["warps"] == 1)], frames.largest_cube(frame[frame["m"] > 0])
    loops = loops[loops["stage"] == "FFMA"]
    clocks = loops.set_index(["form", "variant"])["clocks"]
    operands = {
        "three registers of one bank": ("parities", "even even even"),
        "both banks": ("parities", "even odd even"),
        "both with one kept by `.reuse`": ("reuse", "a; b and c of two banks"),
    }
    if each := [f"{_two_places(clocks[key])} of {name}" for name, key in operands.items() if key in clocks]:
        off = _two_places((loops["clocks"] - loops["predicted"]).abs().max())
        yield f"An FFMA takes, in clocks, {join_words(each)}; {len(loops)} loops are within {off} of the model"
    rungs = rungs[rungs["form"] != ""]
    for best in rungs.sort_values("vs_cublas", ascending=False).head(1).itertuples():
        shares = rungs.set_index(["stage", "variant", "warps", "form"])["vs_cublas"]
        before = shares.get((best.stage, best.variant, best.warps, "as it is"))
        was = f", where it has {format_fixed(before, 3)} as it is" if before is not None else ""
        share = format_fixed(best.vs_cublas, 3)
        yield f"`{best.stage[:3]}` `{best.variant}` comes closest, {best.form}: {share} of cuBLAS{was}"
        times = format_range(rungs["clocks"] / rungs["predicted"], _two_places)
        yield f"Rungs take {times} times the least clocks that their machine code allows"
