"""The generated blocks from predicted.csv: a sentence in READMEs; errors, the largest and refusals in docs/clock.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from experiments.publish.numbers import format_count, format_edges, format_percent, format_precise
from experiments.publish.table import Table
from experiments.publish.wording import NOT_MEASURED, dialect_title, kernel_name
from experiments.records import environment, frames, store, workloads
from experiments.records.frames import SIZES
from experiments.records.rows import SKIPPED
from gemm_ref import DIALECTS
from gemm_ref.clock.gpu import read

SAID = (
    "half of {0.times} predicted times are within {0.median} of the measured ones, nine in ten within {0.ninetieth}, "
    "and {0.order} of pairs more than 10% apart are in the right order"
)
APART = 1.1  # factor between two measured times beyond which their order counts
_CLOCK = ("predicted-errors", "predicted-largest", "predicted-refused")
# The blocks that `block` writes -> the page that has them
BLOCKS = {"predicted.en": "README.md", "predicted.zh": "README.zh-CN.md", **dict.fromkeys(_CLOCK, "clock.md")}
_LARGEST = 10  # errors that are listed
_SENTENCES = {
    "predicted.en": "**How fast would it be?** A [clock](docs/clock.md) predicts a kernel's time on an H200 or H100 "
    f"without a GPU, from its machine code and from microbenchmarks alone: {SAID}.",
    "predicted.zh": "**会有多快？** [时钟](docs/clock.md)不用 GPU 即由机器码和微基准预测 kernel 的用时。"
    "{0.times} 个预测中，一半与实测相差不到 {0.median}，九成不到 {0.ninetieth}；"
    "相差 10% 以上的 kernel 对中 {0.order} 快慢次序正确。",
}


def block(name: str, published: Path) -> str:
    """The Markdown of one of BLOCKS from the CSV in `published`; it says so where rows are not there."""
    frame = store.read(published, "predicted")
    rows = frame[frame["ratio"].notna()]
    if rows.empty:
        return NOT_MEASURED
    if name in _SENTENCES:
        return _SENTENCES[name].format(errors_of(rows))
    if name == "predicted-errors":
        return f"{_errors(rows)}\n\n{environment.compilers_caption(store.runs_of(rows, published))}."
    return _largest(rows) if name == "predicted-largest" else _refused(frame[frame["status"] == SKIPPED])


def _errors(rows: pd.DataFrame) -> str:
    """A line for each compute type, dialect, cube and card, for other sizes together, and for all rows."""
    parts = {math: rows[rows["math"] == math] for math in frames.maths_of(rows)}
    parts |= {dialect.title: rows[rows["dialect"] == name] for name, dialect in DIALECTS.items()}
    is_cube = rows[["m", "n", "k"]].nunique(axis=1) == 1
    cubes = rows[is_cube & rows["m"].isin(workloads.PREDICTED)]
    parts |= {f"at {edge}": own for edge, own in cubes.groupby("m")}
    parts |= {"other sizes": rows.drop(cubes.index)}
    parts |= {read(card).name: own for card, own in rows.groupby("card")} | {"all": rows}
    lines = [[name, *map(str, errors_of(own))] for name, own in parts.items() if len(own)]
    head = ["", "predicted times", "median error", "90th percentile", "pairs", "in the right order"]
    return Table.of(head, lines).to_markdown()


def _largest(rows: pd.DataFrame) -> str:
    lines = []
    for row in rows.loc[(rows["ratio"] - 1).abs().nlargest(_LARGEST).index].itertuples():
        kernel = f"{kernel_name(row.stage, row.variant)}, {dialect_title(row.dialect)}"
        limit = f"{row.limit}, {format_percent(row.limit_share, 0)}"
        times = (format_precise(row.predicted_us), format_precise(row.measured_us), format_percent(row.ratio - 1, 0))
        lines.append([kernel, row.math, format_edges(row, "×"), read(row.card).name, limit, *times])
    head = ["kernel", "mode", "size", "card", "what limits it", "predicted, µs", "measured, µs", "error"]
    return Table.of(head, lines, {0, 1, 3, 4}).to_markdown()


def _refused(refused: pd.DataFrame) -> str:
    lines = [
        [reason, ", ".join(sorted({f"`{stage[:3]}`" for stage in own["stage"]})), format_count(len(own))]
        for reason, own in refused.groupby(refused["detail"].map(reason_of), sort=False)
    ]
    return Table.of(["reason", "rungs", "times"], lines, 2).to_markdown() if lines else "No kernel was refused."


class Errors(NamedTuple):
    """The errors of rows that have a predicted and a measured time, as texts."""

    times: int
    median: str  # of |predicted / measured - 1|
    ninetieth: str  # its 90th percentile
    pairs: int  # of kernels at one problem whose measured times are APART
    order: str  # share of these pairs of which the faster one is predicted to be it


def errors_of(rows: pd.DataFrame) -> Errors:
    """The errors of rows with a `ratio`, of which there is at least one."""
    off = (rows["ratio"] - 1).abs()
    pairs = ordered = 0
    for _, own in rows.groupby(["card", "math", *SIZES]):
        measured, predicted = (np.log(own[name].to_numpy()) for name in ("measured_us", "predicted_us"))
        slower = np.subtract.outer(measured, measured) > np.log(APART)  # has each pair once
        pairs += int(slower.sum())
        ordered += int((slower & (np.subtract.outer(predicted, predicted) > 0)).sum())
    shares = format_percent(off.median(), 1), format_percent(off.quantile(0.9), 1)
    return Errors(len(rows), *shares, pairs, format_percent(ordered / pairs, 1) if pairs else "–")


def reason_of(detail: str) -> str:
    """Why a kernel is refused, without its name."""
    return detail.split(": ", 1)[-1]


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """A sentence on the rows of the study; none where nothing was measured."""
    if frame["ratio"].notna().any():
        said = SAID.format(errors_of(frame[frame["ratio"].notna()]))
        yield said[0].upper() + said[1:]
