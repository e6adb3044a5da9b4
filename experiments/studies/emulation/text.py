"""The block of docs/emulation.md that has the errors of emulated products."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

import gemm_ref
from experiments.publish.numbers import format_error, format_percent
from experiments.publish.table import Table
from experiments.publish.wording import NOT_MEASURED, join_words
from experiments.records import frames, store
from experiments.records.rows import HARDWARE, PREDICTED
from gemm_ref.dialect import BY_HAND

BLOCKS = {"emulation_errors": "emulation.md"}  # block -> the page of docs/ that has it
INPUTS = ["inputs", "k"]


def block(name: str, published: Path) -> str:
    """The Markdown of the one block, measured where it was, else predicted; it says so where the rows are not there."""
    frame = select_kernels(store.read(published, "emulation"))
    if frame.empty:
        return NOT_MEASURED
    view = HARDWARE if (frame["view"] == HARDWARE).any() else PREDICTED
    frame = frame[frame["view"] == view]
    maths = frames.maths_of(frame)
    rows = [
        [str(inputs), str(k), *(_format_errors(own[own["math"] == math]) for math in maths)]
        for (inputs, k), own in frame.groupby(INPUTS, sort=False)
    ]
    first = frame.iloc[0]
    said = (
        f"C of {first.m} x {first.n}, {'on the GPU' if view == HARDWARE else 'predicted'}: Frobenius / largest element "
        "against |A| @ |B|, and how many of the lines were widened; s20 in CUDA."
    )
    caption = store.caption(frame, published)
    titles = [{"fp32": "SGEMM", "tf32": "TF32"}.get(math, math) for math in maths]
    return f"{Table.of(['inputs', 'K', *titles], rows).to_markdown()}\n\n{said} {caption}."


def select_kernels(frame: pd.DataFrame) -> pd.DataFrame:
    """The libraries' errors and CUDA's."""
    return frame[frame["max_error"].notna() & frame["dialect"].isin(("", BY_HAND))] if len(frame) else frame


def _format_errors(rows: pd.DataFrame) -> str:
    if rows.empty:
        return "–"
    row = rows.iloc[0]
    widened = f", {format_percent(row.widened, 0)} widened" if row.widened > 0 else ""
    return f"{format_error(row.rel_error)} / {format_error(row.max_error)}{widened}"


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Yields the sentences about the result; none where the rows say nothing."""
    errors = select_kernels(frame).pivot_table(index=["view", *INPUTS], columns="math", values="max_error", sort=False)
    for math in gemm_ref.EMULATED:
        if {math, "fp32"} <= set(errors.columns):
            beside = (errors[math] / errors["fp32"]).dropna()
            most = beside.idxmax()
            yield (
                f"The largest error of an element in {math} is below SGEMM's at {(beside < 1).sum()} of {len(beside)} "
                f"inputs and depths, and at most {beside.max():.2g} times as large ({join_words(map(str, most[1:]))})"
            )
