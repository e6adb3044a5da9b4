"""What `emulation` found: the table of docs/emulation.md, and its outcome in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

import gemm_ref
from experiments.documents.markdown import NOT_MEASURED, listed, table
from experiments.records import environment, frames, store
from experiments.records.rows import HARDWARE, PREDICTED
from gemm_ref.dialect import BY_HAND

BLOCKS = ("emulation_errors",)
_KEYS = ["inputs", "k"]


def block(name: str, published: Path) -> str:
    """The Markdown of the table, measured where it was, else predicted."""
    frame = _own(store.read(published, "emulation"))
    if frame.empty:
        return NOT_MEASURED
    view = HARDWARE if (frame["view"] == HARDWARE).any() else PREDICTED
    frame = frame[frame["view"] == view]
    maths = frames.maths_of(frame)
    rows = [
        [str(inputs), str(k), *(_cell(own[own["math"] == math]) for math in maths)]
        for (inputs, k), own in frame.groupby(_KEYS, sort=False)
    ]
    first = frame.iloc[0]
    said = (
        f"C of {first.m} x {first.n}, {'on the GPU' if view == HARDWARE else 'predicted'}: Frobenius / largest element "
        "against |A| @ |B|, and how many of the lines were widened; s20 in CUDA."
    )
    caption = environment.caption(store.runs_of(frame, published))
    return f"{table(('inputs', 'K', *map(_title, maths)), rows)}\n\n{said} {caption}."


def _own(frame: pd.DataFrame) -> pd.DataFrame:
    """The libraries' errors and CUDA's."""
    return frame[frame["max_error"].notna() & frame["dialect"].isin(("", BY_HAND))] if len(frame) else frame


def _title(math: str) -> str:
    return {"fp32": "SGEMM", "tf32": "TF32"}.get(math, math)


def _cell(rows: pd.DataFrame) -> str:
    if rows.empty:
        return "–"
    row = rows.iloc[0]
    widened = f", {100 * row.widened:.0f}% widened" if row.widened > 0 else ""
    return f"{row.rel_error:.1e} / {row.max_error:.1e}{widened}"


def outcome(frame: pd.DataFrame) -> Iterator[str]:
    """Where emulated modes lose less than SGEMM, of all inputs and depths, and where they lose the most beside it."""
    errors = _own(frame).pivot_table(index=["view", *_KEYS], columns="math", values="max_error", sort=False)
    for math in gemm_ref.EMULATED:
        if {math, "fp32"} <= set(errors.columns):
            beside = (errors[math] / errors["fp32"]).dropna()
            most = beside.idxmax()
            yield (
                f"The largest error of an element in {math} is below SGEMM's at {(beside < 1).sum()} of {len(beside)} "
                f"inputs and depths, and at most {beside.max():.2g} times as large ({listed(map(str, most[1:]))})"
            )
