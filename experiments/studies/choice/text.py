"""Sentences about the result of `choice`, made from its rows."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from experiments.publish.numbers import format_mean_loss, format_number, format_percent, format_size
from experiments.publish.wording import dialect_title, join_words
from experiments.records import frames
from gemm_ref import DIALECTS


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Yields the sentences about the result; none where the rows say nothing."""
    for math, own in frames.rungs(frames.held_out(frames.tried(frame))).groupby("math", sort=False):
        yield from _describe_choice(str(math), own)


def _describe_choice(math: str, own: pd.DataFrame) -> Iterator[str]:
    found = frames.regrets(own)
    found = found[found["regret"].notna()]
    if found.empty:
        return
    losses = {}
    for name, rows in found.groupby("dialect"):
        worst = rows.loc[rows["regret"].idxmax()]
        at_worst = f"(at worst {format_percent(worst['regret'])}, {format_size(worst)})"
        losses[name] = f"{format_mean_loss(rows['regret'])} in {dialect_title(name)} {at_worst}"
    count = len(found[list(frames.SIZES)].drop_duplicates())
    yield (
        f"At {count} shapes in {math} that the model was not fitted on, what it chooses takes longer than the fastest "
        f"candidate by, on average (geometric mean), {join_words(losses[name] for name in DIALECTS if name in losses)}"
    )
    off = format_percent((own["predicted_us"] / own["median_us"] - 1).abs().median(), 0)
    tried = f"{len(own)} of {found['candidates'].sum():.0f} candidates were tried"
    yield f"A predicted time is off by {off} (median); {tried}, those predicted within 3 times the best"
    tuned = found[found["tuned"].notna()]
    if len(tuned):
        seconds = format_number(tuned["autotune_s"].median())
        yield f"Triton's autotune takes {seconds} s for a shape (median), and loses {format_mean_loss(tuned['tuned'])}"
