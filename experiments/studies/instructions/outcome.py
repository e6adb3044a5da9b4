"""What came of `instructions`, in sentences made from its rows."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

import gemm_ref
from experiments.publish.numbers import format_percent
from experiments.publish.wording import dialect_title, join_words
from experiments.records import compiled
from experiments.studies.instructions.row import REASONS


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Sentences on the rows of the study; none where the rows say nothing."""
    rows = compiled.at_one_size(frame[frame["arch"] == compiled.MAIN_ARCHITECTURE])
    fp32 = compiled.defaults(rows[rows["math"] == "fp32"])
    if fp32.empty:
        return
    best = fp32.loc[fp32.groupby("dialect")["ffma_share"].idxmax()].set_index("dialect")
    each = [
        f"{format_percent(best.loc[name].ffma_share, 0)} in {dialect.title} (`{best.loc[name].stage[:3]}`)"
        for name, dialect in gemm_ref.DIALECTS.items()
        if name in best.index
    ]
    yield f"Of the instructions of a main loop in fp32, multiply-adds are at most {join_words(each)}"
    waits = rows[(rows["math"] == "fp32") & (rows["ffma_share"] >= compiled.MIN_FFMA_SHARE) & rows["clocks"].notna()]
    if len(waits):
        longest = waits[[f"wait_{reason}" for reason in REASONS]].idxmax(axis=1)
        most = (longest == "wait_registers").sum()
        loops = "fp32 loops that are mostly multiply-adds wait for registers longer than for anything else"
        yield f"By their machine code {most} of {len(waits)} {loops}"
    spilled = rows[rows["spill_bytes"] > 0]
    worst = rows.loc[rows["spill_bytes"].idxmax()]
    most = f", the most by `{worst.stage[:3]}` in {dialect_title(worst.dialect)}: {worst.spill_bytes:.0f} bytes"
    yield f"{len(spilled)} of {len(rows)} kernels spill registers" + (most if len(spilled) else "")
