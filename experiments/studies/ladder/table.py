"""The generated tables of the fp32 rungs, from ladder.csv: all of them, each one's variants, and two that stand alone.

`ladder` is the whole table, `deep` the speed at a small C with a deep K, `ablation` what each change from
s11 to s12 is worth; a rung's own numbers have its id.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pandas as pd

import gemm_ref
from experiments.publish import markdown
from experiments.publish.compilers import compiler_findings
from experiments.publish.drawing import style
from experiments.publish.kernels import default_row, gain, row_of
from experiments.publish.markdown import NOT_MEASURED
from experiments.records import environment, frames, stats, store, workloads
from experiments.records.controls import Controls, explained
from gemm_ref import DIALECTS
from gemm_ref.baselines import BASELINES
from gemm_ref.rung import Rung

BLOCKS = dict.fromkeys(("ladder", "deep", "ablation"), "ladder.md")  # block -> the page of docs/ that has it


def block(name: str, published: Path) -> str:
    """The Markdown of one of BLOCKS from the CSV in `published`; it says so where rows are not there."""
    frame = store.read(published, "ladder")
    if name == "deep":
        return _deep(frames.at(frames.timed(frame), workloads.DEEP))
    at_size = frames.largest_cube(frame)
    if name == "ablation":
        return _ablation(at_size)
    return "\n\n".join(filter(None, [_table(at_size), _caption(at_size, published), _not_faster(at_size)]))


def rung(stage: Rung, published: Path) -> str:
    """One rung's variants, each with its speed over the rung below in the same dialect; empty for one not in fp32."""
    if "fp32" not in stage.maths:
        return ""
    at_size = frames.largest_cube(store.read(published, "ladder"))
    rungs = gemm_ref.stages_in("fp32")
    place = rungs.index(stage)
    below = rungs[place - 1] if place else None
    against = "TFLOP/s (% of cuBLAS)"
    if below:
        against += f", times `{below.id[:3]}` {markdown.defaults(below)}".rstrip()
    rows = [
        [variant, *(_cell(stage, variant, d, at_size) + _gain(below, stage, variant, d, at_size) for d in DIALECTS)]
        for variant in stage.variants
    ]
    return markdown.table([against, *(dialect.title for dialect in DIALECTS.values())], rows)


def _caption(at_size: pd.DataFrame, published: Path) -> str:
    if at_size.empty:
        return ""
    runs = store.runs_of(at_size, published)
    size = f"{at_size.iloc[0].m:.0f}{Controls(at_size).mark()}"
    said = f"TFLOP/s at M = N = K = {size} in fp32, and % of cuBLAS measured in the same rounds."
    return f"{said} {explained(environment.caption(runs), size)}."


def _gain(below: Rung | None, stage: Rung, variant: str, dialect: str, at_size: pd.DataFrame) -> str:
    times = gain(below, stage, variant, dialect, at_size)
    return "" if times is None else f", {style.number(times)}"


def _deep(at_size: pd.DataFrame) -> str:
    """The six fastest kernels at one deep problem."""
    if at_size.empty:
        return NOT_MEASURED
    rungs = at_size[at_size["dialect"] != ""].sort_values("median_us")
    lines = []
    for row in rungs.head(6).itertuples():
        name = markdown.named(row.stage, row.variant)
        interval = f"{row.vs_cublas_low:.3f} to {row.vs_cublas_high:.3f}"
        lines.append([name, DIALECTS[row.dialect].title, f"{row.median_us:.1f}", f"{row.vs_cublas:.3f}", interval])
    reference = at_size[at_size["backend"] == "cublas"].iloc[0]
    size = " x ".join(map(str, workloads.DEEP)) + Controls(at_size).mark()
    said = explained(f"The six fastest at {size}; cuBLAS takes {reference.median_us:.1f} µs", size)
    table = markdown.table(["rung", "dialect", "µs", "of cuBLAS", "95% interval"], lines, words=2)
    return f"{table}\n\n{said}."


def _ablation(at_size: pd.DataFrame) -> str:
    """s11 and s12 in CUDA with one tile: what tells them apart is changed step by step, and what each step is worth."""
    s11, s12 = gemm_ref.get_stage("s11"), gemm_ref.get_stage("s12")
    kernels = (s11, "wide"), (s11, "late"), (s11, "two_sets"), (s12, "one_set"), (s12, "wide")
    first, late, ahead, copied, both = (row_of(at_size, stage, variant, "cuda") for stage, variant in kernels)
    of_first, of_late, of_ahead, of_copied, of_both = (
        f"{markdown.named(stage.id[:3], variant)}: {_cell(stage, variant, 'cuda', at_size)}"
        for stage, variant in kernels
    )
    head = ["slices", "fragments read when needed", "one k ahead", "reading ahead is worth"]
    lines = [
        ["through registers, loaded before any read", of_first, "–", "–"],
        ["through registers, loaded behind the first reads", of_late, of_ahead, _worth(late, ahead)],
        ["by `cp.async`, issued there too", of_copied, of_both, _worth(copied, both)],
        ["loading behind reads is worth", _worth(first, late), "–", "–"],
        ["`cp.async` is worth", _worth(late, copied), _worth(ahead, both), f"all three: {_worth(first, both)}"],
    ]
    tile = s11.variants["wide"]
    said = (
        f"CUDA, tiles of {tile.BLOCK_M} x {tile.BLOCK_N} x {tile.BLOCK_K}: TFLOP/s (% of cuBLAS), and the speed over "
        "the kernel without the change."
    )
    return f"{markdown.table(head, lines, words=4)}\n\n{said}"


def _worth(old, new) -> str:
    """The speed of one row over another's with its interval, and the verdict; either may be missing."""
    ratio = frames.speedup(old, new)
    if ratio is None:
        return NOT_MEASURED
    return f"{ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f}), {frames.verdict(old, new)}"


def _table(at_size: pd.DataFrame) -> str:
    lines = []
    for stage in gemm_ref.stages_in("fp32"):
        for index, variant in enumerate(stage.variants):
            name = markdown.named(stage.id, variant)
            cells = [_cell(stage, variant, dialect, at_size) for dialect in DIALECTS]
            lines.append([name, "" if index else stage.idea, *cells])
    for row in at_size[at_size["backend"] == "cutlass"].itertuples():
        baseline = BASELINES[row.stage]
        lines.append([baseline.title, baseline.idea, _speed(row), "", ""])
    reference = at_size[at_size["backend"] == "cublas"]
    if not reference.empty:
        speed = f"{style.number(reference.iloc[0].tflops)} TFLOP/s"
        lines.append(["cuBLAS", "the vendor's library, in IEEE fp32", speed, "", ""])
    return markdown.table(["rung", "idea", *(dialect.title for dialect in DIALECTS.values())], lines, words=2)


def _cell(stage: Rung, variant: str, dialect: str, at_size: pd.DataFrame) -> str:
    if dialect not in stage.dialects:
        return "no kernel: see below" if dialect in compiler_findings(stage) else "no kernel"
    if variant not in stage.variants_in(dialect):
        return "–"
    row = row_of(at_size, stage, variant, dialect)
    return NOT_MEASURED if row is None else _speed(row)


def _speed(row) -> str:
    """TFLOP/s, and % of cuBLAS where that was measured."""
    share = "" if pd.isna(row.vs_cublas) else f" ({style.number(100 * row.vs_cublas)}%)"
    return f"{style.number(row.tflops)}{share}"


def _not_faster(at_size: pd.DataFrame) -> str:
    """A line for each rung and dialect whose verdict beside the rung under it is not FASTER; default variants."""
    lines = []
    for below, rung in itertools.pairwise(gemm_ref.stages_in("fp32")):
        for dialect in DIALECTS:
            if dialect not in below.dialects or dialect not in rung.dialects:
                continue
            old, new = (default_row(at_size, stage, dialect) for stage in (below, rung))
            if old is None or new is None:
                continue
            verdict, ratio = frames.verdict(old, new), frames.speedup(old, new)
            if verdict == stats.FASTER:
                continue
            said = "is not known to beat" if verdict == stats.UNSURE else "does not beat"
            speed = f"{ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f}) of its speed" if ratio else "no interval"
            who, other = markdown.named(rung.id, new.variant), markdown.named(below.id, old.variant)
            lines.append(f"- {who} {said} {other} in {DIALECTS[dialect].title}: {speed}, {verdict}.")
    if not lines:
        return ""
    return "\n".join(["Rungs that are not faster than the rung below, best variant beside best variant:\n", *lines])
