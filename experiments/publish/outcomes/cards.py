"""What came of `scaling`, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from experiments.publish.markdown import listed
from experiments.records import scaling as measured
from experiments.records.rows import PASS, SKIPPED, STRONG
from gemm_ref.distributed.layouts import LAYOUTS, OVERLAPPED, WAYS


def scaling(frame: pd.DataFrame) -> Iterator[str]:
    """Sentences on rows of `scaling`: what each way keeps on the most cards; if none was timed, how many are right."""
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
        kept = [f"{_range(rows, way)} {way}" for way in WAYS if (rows["way"] == way).any()]
        yield (
            f"On {rows['gpus'].max()} GPUs, {layout} with a product in {hardest} keeps {listed(kept)} of the speed of "
            f"a GPU that is alone, from {rows['m'].min()} to {rows['m'].max()}"
        )
    if len(others := best[(best["math"] != hardest) & (best["way"] == OVERLAPPED)]):
        yield f"In {listed(dict.fromkeys(others['math']))} {_range(others, OVERLAPPED)} are kept {OVERLAPPED}"


def _range(rows: pd.DataFrame, way: str) -> str:
    """The smallest and the largest share of a way."""
    shares = 100 * rows.loc[rows["way"] == way, "efficiency"]
    return f"{shares.min():.0f} to {shares.max():.0f}%"
