"""The blocks of docs/rounding.md: single instructions, and the errors of whole rungs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

import gemm_ref
from experiments.publish.numbers import format_error, format_fixed
from experiments.publish.table import Table
from experiments.publish.wording import NOT_MEASURED, join_words
from experiments.records import frames, store
from experiments.records.rows import HARDWARE, PREDICTED
from gemm_ref.ptx.units.tensor_core import sum_of

BLOCKS = dict.fromkeys(("rounding_instructions", "rounding_rungs"), "rounding.md")  # block -> the page of docs/
_FEW_DEPTHS = (256, 4096, 65536, 262144)  # that the table of errors shows


def block(name: str, published: Path) -> str:
    """The Markdown of one of BLOCKS from the CSV in `published`; it says so where the rows are not there."""
    frame = store.read(published, "rounding")
    are_instructions = name == "rounding_instructions"
    text = (_instructions if are_instructions else _rungs)(frame)
    measured = frame[(frame["view"] == HARDWARE) & (frame["vectors"].notna() == are_instructions)]
    return f"{text}\n\n{store.caption(measured, published)}." if text else NOT_MEASURED


def _instructions(frame: pd.DataFrame) -> str:
    rows = []
    for row in frame[frame["vectors"].notna()].itertuples():
        instruction, kind = row.stage.split()[:2]
        depth = re.findall(r"k(\d+)", row.stage)[0]
        converted = instruction == "mma" and kind in ("e4m3", "e5m2")
        how = sum_of("mma", "f16", 16) if converted else sum_of(instruction, kind, int(depth))
        group = f"2 x {how.group}, then c" if converted else str(how.group)
        kept = "11, rounded" if row.stage.endswith("f16 sums") else f"{how.result_bits + 1}"
        rows.append(
            [f"`{row.stage}`", group, str(how.fraction), kept, format_fixed(row.vectors), format_fixed(row.mismatches)]
        )
    head = ("instruction", "products a sum", "bits below the largest", "bits of the result", "vectors", "other bits")
    return Table.of(head, rows).to_markdown() if rows else ""


def _rungs(frame: pd.DataFrame) -> str:
    """The errors of each rung in CUDA, predicted and measured."""
    own = frame[(frame["dialect"] == "cuda") & frame["k"].isin(_FEW_DEPTHS) & frame["rel_error"].notna()]
    if own.empty:
        return ""
    depths = sorted(set(own["k"]))
    rows = []
    for (math, stage), of in own.groupby(["math", "stage"]):
        errors = of.set_index(["k", "view"])["rel_error"]
        cells = [" / ".join(_error(errors, k, view) for view in (PREDICTED, HARDWARE)) for k in depths]
        rows.append([math, f"`{stage}`", *cells])
    maths = [*gemm_ref.MATHS]
    rows.sort(key=lambda row: (maths.index(row[0]), row[1]))
    return Table.of(["mode", "rung", *(f"K = {k}" for k in depths)], rows, 2).to_markdown()


def _error(errors: pd.Series, k: int, view: str) -> str:
    return format_error(errors[k, view], 4) if (k, view) in errors.index else "–"


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Yields the sentences about the result; none where the rows say nothing."""
    alone = frame[frame["vectors"].notna()]
    if len(alone):
        each = join_words(format_fixed(count) for count in sorted(set(alone["vectors"])))
        wrong = f"{format_fixed(alone['mismatches'].sum())} sums have other bits than predicted"
        yield f"Of {len(alone)} instructions with {each} random vectors each, {wrong}"
    both = frames.pair_products(frame)
    if len(both):
        same = (both["checksum_predicted"] == both["checksum_hardware"]).sum()
        off = np.abs(both["rel_error_predicted"] / both["rel_error_hardware"] - 1).max()
        yield f"Of {len(both)} products that both dealt alike, {same} have the same bits as on the GPU, in all of C"
        yield f"The predicted error is off by at most {100 * off:.2g}%"
    own = frame[(frame["view"] == PREDICTED) & frame["rel_error"].notna() & (frame["dialect"] == "cuda")]
    low, high = own["k"].min(), own["k"].max()
    if low < high:
        errors = own.pivot_table(index="math", columns="k", values="rel_error", aggfunc="max")
        growth = (errors[high] / errors[low]).dropna()  # of the compute types that were measured at both depths
        grown = [f"{format_fixed(growth[math], 2)} times in {math}" for math in frames.maths_of(own) if math in growth]
        yield f"From K = {low} to {high} the largest error of a CUDA rung grows {join_words(grown)}"
