"""What came of `tensor_cores`, in sentences made from its rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pandas as pd

import gemm_ref
from experiments.publish.numbers import format_fixed, format_range
from experiments.publish.steps import count_faster, step_verdicts
from experiments.publish.wording import join_words
from experiments.records import frames, workloads
from gemm_ref import DIALECTS


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Sentences on the rows of the study; none where the rows say nothing."""
    frame = frame[frame["median_us"].notna()]
    sizes = frame["m"][frame["m"] <= workloads.LARGEST]
    at_size = frames.defaults(frame[frame["m"] == sizes.max()])
    if frames.rungs(at_size).empty:
        return
    by_math = frames.shown(at_size).groupby("math")
    steps = {
        dialect: {
            (math, stage): verdict
            for math, rows in by_math
            for stage, verdict in step_verdicts(rows, math, dialect).items()
        }
        for dialect in DIALECTS
    }
    yield f"Over all math modes, in default variants, a rung is faster than the one below it at {count_faster(steps)}"
    keys = ["math", "stage", "dialect"]
    times = frames.rungs(at_size).pivot_table(index=keys, columns="b_layout", values="median_us")
    if {"kn", "nk"} <= set(times):
        ratios = (times["kn"] / times["nk"]).dropna().groupby("math", sort=False)
        maths = [math for math in gemm_ref.MATHS if math in ratios.groups]
        each = [f"{format_range(ratios.get_group(math), partial(format_fixed, places=2))} in {math}" for math in maths]
        yield f"B by rows takes this many times as long as B by columns: {join_words(each)}"
