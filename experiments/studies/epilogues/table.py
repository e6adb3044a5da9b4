"""The generated table of docs/tensor_cores.md from epilogues.csv: what each form of the epilogue costs."""

from __future__ import annotations

from pathlib import Path

from experiments.publish.numbers import format_change, format_number
from experiments.publish.table import Table
from experiments.publish.wording import NOT_MEASURED
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
