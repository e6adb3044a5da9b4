"""Sentences about the result of `modes`, made from its rows."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from experiments.publish.numbers import format_percent
from experiments.records import frames
from experiments.records.rows import GRAPH, WARM


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Yields the sentences about the result; none where the rows say nothing."""
    for where, timed in (("", frames.timed(frame)), (" on tensor cores", frames.on_tensor_cores(frame))):
        rungs = frames.rungs(timed)
        for size in sorted({rungs["m"].min(), rungs["m"].max()} if len(rungs) else ()):
            contenders = (rungs, timed[timed["backend"] == "cublas"])
            ours, theirs = (frames.time_over_cold(rows[rows["m"] == size]) for rows in contenders)
            if {WARM, GRAPH} <= set(ours):
                warm, graph = (format_percent(ours[mode], 0) for mode in (WARM, GRAPH))
                known = {WARM, GRAPH} <= set(theirs)
                beside = " and ".join(format_percent(theirs[mode], 0) for mode in (WARM, GRAPH)) if known else ""
                yield (
                    f"At {size}{where} the median rung takes {warm} of its cold time with a warm cache and {graph} in "
                    "a CUDA graph" + (f" (cuBLAS {beside})" if beside else "")
                )
