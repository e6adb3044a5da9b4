"""What came of `scaling`, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from experiments.documents.markdown import listed
from experiments.records import scaling as measured
from experiments.records.rows import PASS, SKIPPED, STRONG
from gemm_ref.distributed.layouts import GRID, WAYS


def scaling(frame: pd.DataFrame) -> Iterator[str]:
    """Sentences on rows of `scaling`: the best of each way on the most cards; if none was timed, how many are right."""
    own = measured.timed(frame)
    if own.empty:
        run = frame[frame["way"].isin(WAYS) & (frame["status"] != SKIPPED)]
        if len(run):
            right = (run["status"] == PASS).sum()
            yield f"In {run['gpus'].max()} processes {right} of {len(run)} ways are right; without GPUs none is timed"
        return
    own = own[(own["gpus"] == own["gpus"].max()) & (own["scaling"] == STRONG)]
    for (layout, math), rows in own[own["layout"] != GRID].groupby(["layout", "math"], sort=False):
        rows = rows[rows["m"] == rows["m"].max()]
        best = rows.loc[rows.groupby("way")["median_us"].idxmin()].set_index("way")
        said = [
            f"{best.loc[way, 'median_us'] / 1e3:.3g} ms {way} ({100 * best.loc[way, 'efficiency']:.0f}%)"
            for way in WAYS
            if way in best.index
        ]
        first = rows.iloc[0]
        yield (
            f"On {first['gpus']} GPUs, {layout} with a product in {math} at {first['m']} takes {listed(said)}, "
            "where the shares are of the speed of a GPU that is alone"
        )
