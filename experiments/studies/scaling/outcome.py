"""What came of `scaling`, in sentences made from its rows."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from experiments.publish.numbers import format_percent_range
from experiments.publish.wording import join_words
from experiments.records import scaling as measured
from experiments.records.rows import PASS, SKIPPED, STRONG
from gemm_ref.distributed.layouts import LAYOUTS, OVERLAPPED, WAYS


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Sentences on the rows of the study; none where the rows say nothing."""
    own = measured.timed(frame)
    if own.empty:
        run = frame[frame["way"].isin(WAYS) & (frame["status"] != SKIPPED)]
        if len(run):
            right = (run["status"] == PASS).sum()
            yield f"In {run['gpus'].max()} processes {right} of {len(run)} ways are right; without GPUs none is timed"
        return
    own = own[(own["gpus"] == own["gpus"].max()) & (own["scaling"] == STRONG)]
    best = own.loc[own.groupby(["layout", "math", "m", "way"])["median_us"].idxmin()]
    hardest = best.loc[best["efficiency"].idxmin(), "math"]  # whose links cost most
    for layout in (layout for layout in LAYOUTS if (best["layout"] == layout).any()):
        rows = best[(best["layout"] == layout) & (best["math"] == hardest)]
        kept = [f"{_format_kept(rows, way)} {way}" for way in WAYS if (rows["way"] == way).any()]
        yield (
            f"On {rows['gpus'].max()} GPUs, {layout} with a product in {hardest} keeps {join_words(kept)} of the speed "
            f"of a GPU that is alone, from {rows['m'].min()} to {rows['m'].max()}"
        )
    if len(others := best[(best["math"] != hardest) & (best["way"] == OVERLAPPED)]):
        maths = join_words(dict.fromkeys(others["math"]))
        yield f"In {maths} {_format_kept(others, OVERLAPPED)} are kept {OVERLAPPED}"


def _format_kept(rows: pd.DataFrame, way: str) -> str:
    """The smallest and the largest share of a way."""
    shares = rows.loc[rows["way"] == way, "efficiency"]
    return format_percent_range(shares.min(), shares.max(), 0)
