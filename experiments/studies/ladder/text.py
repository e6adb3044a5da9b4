"""The generated tables of the fp32 rungs, from ladder.csv: all of them, each one's variants, and two that stand alone.

`ladder` is the whole table, `deep` the speed at a small C with a deep K, `ablation` what each change from
s11 to s12 is worth; a rung's own numbers have its id.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

import gemm_ref
from experiments.publish.compilers import compiler_findings
from experiments.publish.kernels import KernelCell, cell_of, fastest_row, row_of
from experiments.publish.numbers import format_fixed, format_interval, format_number, format_ratio
from experiments.publish.steps import count_faster, describe_cpu, step_verdicts, written_rungs
from experiments.publish.table import Table
from experiments.publish.wording import (
    NOT_MEASURED,
    VERDICT_WORDS,
    dialect_title,
    join_words,
    kernel_name,
    name_defaults,
)
from experiments.records import environment, frames, stats, store, workloads
from experiments.records.controls import Controls, explained
from gemm_ref import DIALECTS
from gemm_ref.baselines import BASELINES
from gemm_ref.dialect import BY_HAND, OTHERS
from gemm_ref.rung import Rung

_ORDER = (stats.FASTER, stats.SAME, stats.SLOWER, stats.UNSURE)
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
        against += f", times `{below.id[:3]}` {name_defaults(below)}".rstrip()
    rows = [
        [variant, *(_cell(stage, variant, dialect, at_size, below) for dialect in DIALECTS)]
        for variant in stage.variants
    ]
    return Table.of([against, *(dialect.title for dialect in DIALECTS.values())], rows).to_markdown()


def _caption(at_size: pd.DataFrame, published: Path) -> str:
    if at_size.empty:
        return ""
    runs = store.runs_of(at_size, published)
    size = f"{at_size.iloc[0].m:.0f}{Controls(at_size).mark()}"
    said = f"TFLOP/s at M = N = K = {size} in fp32, and % of cuBLAS measured in the same rounds."
    return f"{said} {explained(environment.caption(runs), size)}."


def _deep(at_size: pd.DataFrame) -> str:
    """The six fastest kernels at one deep problem."""
    if at_size.empty:
        return NOT_MEASURED
    rungs = at_size[at_size["dialect"] != ""].sort_values("median_us")
    lines = []
    for row in rungs.head(6).itertuples():
        who = kernel_name(row.stage, row.variant), DIALECTS[row.dialect].title
        interval = format_interval(row.vs_cublas_low, row.vs_cublas_high)
        lines.append([*who, format_fixed(row.median_us, 1), format_fixed(row.vs_cublas, 3), interval])
    reference_us = next(iter(at_size.loc[at_size["backend"] == "cublas", "median_us"]), math.nan)
    size = " x ".join(map(str, workloads.DEEP)) + Controls(at_size).mark()
    said = explained(f"The six fastest at {size}; cuBLAS takes {format_fixed(reference_us, 1)} µs", size)
    table = Table.of(["rung", "dialect", "µs", "of cuBLAS", "95% interval"], lines, 2).to_markdown()
    return f"{table}\n\n{said}."


def _ablation(at_size: pd.DataFrame) -> str:
    """s11 and s12 in CUDA with one tile: what tells them apart is changed step by step, and what each step is worth."""
    s11, s12 = gemm_ref.get_stage("s11"), gemm_ref.get_stage("s12")
    kernels = (s11, "wide"), (s11, "late"), (s11, "two_sets"), (s12, "one_set"), (s12, "wide")
    first, late, ahead, copied, both = (row_of(at_size, stage, variant, "cuda") for stage, variant in kernels)
    of_first, of_late, of_ahead, of_copied, of_both = (
        f"{kernel_name(stage.id[:3], variant)}: {_cell(stage, variant, 'cuda', at_size)}" for stage, variant in kernels
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
    return f"{Table.of(head, lines, 4).to_markdown()}\n\n{said}"


def _worth(old, new) -> str:
    """The speed of one row over another's with its interval, and the verdict; either may be missing."""
    ratio = frames.speedup(old, new)
    return f"{format_ratio(ratio)}, {frames.verdict(old, new)}" if ratio else NOT_MEASURED


def _table(at_size: pd.DataFrame) -> str:
    lines = []
    for stage in gemm_ref.stages_in("fp32"):
        for index, variant in enumerate(stage.variants):
            name = kernel_name(stage.id, variant)
            cells = [_cell(stage, variant, dialect, at_size) for dialect in DIALECTS]
            lines.append([name, "" if index else stage.idea, *cells])
    for row in at_size[at_size["backend"] == "cutlass"].itertuples():
        baseline = BASELINES[row.stage]
        lines.append([baseline.title, baseline.idea, KernelCell(row=row).speed, "", ""])
    reference = at_size[at_size["backend"] == "cublas"]
    if not reference.empty:
        speed = f"{format_number(reference.iloc[0].tflops)} TFLOP/s"
        lines.append(["cuBLAS", "the vendor's library, in IEEE fp32", speed, "", ""])
    return Table.of(["rung", "idea", *(dialect.title for dialect in DIALECTS.values())], lines, 2).to_markdown()


def _cell(stage: Rung, variant: str, dialect: str, at_size: pd.DataFrame, below: Rung | None = None) -> str:
    """TFLOP/s, % of cuBLAS and, with `below`, the gain over that rung; or why there is none."""
    cell = cell_of(at_size, stage, variant, dialect, below)
    if cell.row is None:
        return cell.note + (
            ": see below" if dialect not in stage.dialects and dialect in compiler_findings(stage) else ""
        )
    return cell.speed if cell.gain is None else f"{cell.speed}, {format_number(cell.gain)}"


def _not_faster(at_size: pd.DataFrame) -> str:
    """A line for each rung and dialect whose fastest variant is not FASTER than that of the rung under it."""
    lines = []
    for below, rung in itertools.pairwise(gemm_ref.stages_in("fp32")):
        for dialect in DIALECTS:
            if dialect not in below.dialects or dialect not in rung.dialects:
                continue
            old, new = (fastest_row(at_size, stage, dialect) for stage in (below, rung))
            if old is None or new is None:
                continue
            verdict, ratio = frames.verdict(old, new), frames.speedup(old, new)
            if verdict == stats.FASTER:
                continue
            said = "is not known to beat" if verdict == stats.UNSURE else "does not beat"
            speed = f"{format_ratio(ratio)} of its speed" if ratio else "no interval"
            who, other = kernel_name(rung.id, new.variant), kernel_name(below.id, old.variant)
            lines.append(f"- {who} {said} {other} in {DIALECTS[dialect].title}: {speed}, {verdict}.")
    if not lines:
        return ""
    return "\n".join(
        ["Rungs that are not faster than the rung below, the fastest variant of each beside the other's:\n", *lines]
    )


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Yields the sentences about the result; none where the rows say nothing."""
    at_size = frames.largest_cube(frame)
    if frames.rungs(at_size).empty:
        yield from describe_cpu(frame)
        return
    steps = {dialect: step_verdicts(at_size, "fp32", dialect) for dialect in DIALECTS}
    yield f"At {at_size['m'].iloc[0]} a rung is faster than the one below it at {count_faster(steps)}"
    others = [f"`{stage[:3]}`" for stage, verdict in steps[BY_HAND].items() if verdict != stats.FASTER]
    if others:
        yield f"Not faster in {dialect_title(BY_HAND)}: {join_words(others)}"
    for dialect in OTHERS:
        written = written_rungs("fp32", dialect)
        pairs = [[fastest_row(at_size, stage, name) for name in (BY_HAND, dialect)] for stage in written]
        verdicts = [frames.verdict(*pair) for pair in pairs if not any(row is None for row in pair)]
        counts = [f"{VERDICT_WORDS[each]} {verdicts.count(each)} times" for each in _ORDER if each in verdicts]
        if counts:
            yield f"Beside {dialect_title(BY_HAND)}'s rung, {dialect_title(dialect)}'s is {join_words(counts)}"
