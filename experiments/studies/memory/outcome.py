"""What came of `memory`, in sentences made from its rows."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from experiments.publish.numbers import format_number
from experiments.publish.wording import dialect_title, join_words
from experiments.records import traffic
from experiments.records.rows import PASS
from gemm_ref.dialect import BY_HAND
from gemm_ref.rung import DEFAULT_VARIANT


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Sentences on the rows of the study; none where the rows say nothing."""
    rows = traffic.best_view(frame[frame["status"] == PASS])
    rows = rows[(rows["dialect"] == BY_HAND) & (rows["math"] == "fp32")]
    loads = rows[(rows["space"] == "global") & (rows["kind"] == "load")]
    if loads.empty:
        return
    sectors = (loads["sectors"] / loads["requests"]).groupby(loads["stage"]).max().head(2)
    each = [f"{of:.3g} sectors in `{stage[:3]}`" for stage, of in sectors.items()]
    yield f"In {dialect_title(BY_HAND)}, the dearest load of a warp asks for {join_words(each)}"
    shared = rows[(rows["space"] == "shared") & (rows["ideal"] > 0)]
    if len(shared):
        kernels = [shared["stage"].str[:3], shared["variant"].where(shared["variant"] != DEFAULT_VARIANT, "")]
        worst = (shared["wavefronts"] / shared["ideal"]).groupby(kernels, sort=False).max().sort_values()[::-1]
        each = [f"{format_number(of)} times in `{' '.join(kernel).strip()}`" for kernel, of in worst.head(3).items()]
        yield f"Bank conflicts multiply the wavefronts of an access to shared memory at most {join_words(each)}"
        yield f"{(worst == 1).sum()} of {len(worst)} kernels have none"
    both = traffic.confirmed(frame)
    if len(both):
        ratios = both.xs("ratio", axis=1, level=1)
        exact = int((ratios.isna() | (ratios == 1)).all(axis=1).sum())
        yield f"The GPU's own counters agree in every count at {exact} of {len(both)} launches"
