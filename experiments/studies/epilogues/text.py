"""The generated table of docs/tensor_cores.md from epilogues.csv: what each form of the epilogue costs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from experiments.publish.numbers import format_change, format_number, format_percent, format_size
from experiments.publish.table import Table
from experiments.publish.wording import NOT_MEASURED, dialect_title, join_words
from experiments.records import frames, store
from experiments.records.controls import CONTROL, Controls, explained
from gemm_ref import DIALECTS

BLOCKS = {"tensor_epilogues": "tensor_cores.md"}  # block -> the page of docs/ that has it


def block(name: str, published: Path) -> str:
    """What each form of the epilogue adds to the time of its contender's plain product, by mode and size."""
    frame = store.read(published, "epilogues").dropna(subset="median_us")
    if frame.empty:
        return NOT_MEASURED
    lines, controls = [], Controls(frame)
    frame = frame[frame["stage"] != CONTROL]
    keys = ["math", "m", "n", "k", "form"]
    for (math, m, n, k, form), own in frame.groupby(keys, sort=False):
        cells = []
        for dialect, how in [*((dialect, "fused") for dialect in DIALECTS), ("", "fused"), ("", "in turn")]:
            row = own[(own["dialect"] == dialect) & (own["how"] == how)]
            if row.empty:
                cells.append("–")
            elif form == "plain":
                cells.append(f"{format_number(row.iloc[0]['median_us'])} µs")
            else:
                cells.append(format_change(row.iloc[0]["over_plain"]))
        lines.append([math, f"{m} × {n} × {k}{controls.mark(math=math, m=m, n=n, k=k)}", form, *cells])
    dialects = [dialect.title for dialect in DIALECTS.values()]
    head = ["mode", "M × N × K", "epilogue", *dialects, "cuBLASLt", "separate kernels"]
    said = (
        "Plain products in microseconds, and what more takes over the same contender's plain product in the same "
        "rounds; separate kernels: cuBLAS's product, then kernels of torch."
    )
    caption = frames.with_modes(store.caption(frame, published), frames.maths_of(frame))
    table = Table.of(head, lines, 3).to_markdown()
    return f"{table}\n\n{said} {explained(caption, table)}."


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Yields the sentences about the result; none where the rows say nothing."""
    frame = frames.with_epilogue(frame)
    if frame.empty:
        return
    first = frame.iloc[0]
    own = frames.at(frame[frame["math"] == first["math"]], (first["m"], first["n"], first["k"]))
    for form, rows in own[own["form"].isin(("bias", "bias, gelu", "c"))].groupby("form", sort=False):
        fused = rows[rows["how"] == "fused"]
        names = [dialect_title(dialect) if dialect else "cuBLASLt" for dialect in fused["dialect"]]
        costs = list(zip(fused["over_plain"], names, strict=True))
        costs += [(share, "kernels of their own") for share in rows.loc[rows["how"] == "in turn", "over_plain"]]
        each = [f"{format_percent(share - 1, 1)} in {name}" for share, name in costs]
        yield f"{form} at {format_size(first)} in {first['math']} costs {join_words(each)}"
