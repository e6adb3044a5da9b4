"""What came of `shapes`, in sentences made from its rows."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from experiments.publish.numbers import format_fixed, format_percent, format_size
from experiments.publish.wording import DIALECT_TITLES, dialect_title, join_words
from experiments.records import frames, stats
from experiments.records.controls import Controls
from gemm_ref import DIALECTS


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Sentences on the rows of the study; none where the rows say nothing."""
    yield from _describe_fp32(frame)
    means, worst = [], []
    for math in frames.maths_of(frames.on_tensor_cores(frame)):
        best = frames.leaders(_select_judged(frame, math))
        if len(best):
            shares = best.groupby("dialect")["vs_cublas"].apply(stats.geometric_mean)
            each = " / ".join(format_fixed(100 * shares[name]) for name in DIALECTS if name in shares)
            means.append(f"{each}% in {frames.in_mode(math)}")
            worst.append(best.loc[best["vs_cublas"].idxmin()])
    if worst:
        least = min(worst, key=lambda row: row["vs_cublas"])
        where = f"{least['math']}, {dialect_title(least['dialect'])}, {format_size(least)}"
        yield (
            f"On tensor cores the best rungs in {DIALECT_TITLES} reach, of cuBLAS' speed, on average "
            f"{join_words(means)}, and at worst {format_percent(least['vs_cublas'])} ({where})"
        )


def _select_judged(frame: pd.DataFrame, math: str) -> pd.DataFrame:
    """The timed rows of one math mode off the cubes that can be judged, where the last rung was timed."""
    timed = frames.timed(frame, math)
    return frames.with_last_rung(frames.off_cubes(Controls(timed).passed(timed)))


def _describe_fp32(frame: pd.DataFrame) -> Iterator[str]:
    sizes, timed = list(frames.SIZES), _select_judged(frame, "fp32")
    own = frames.rungs(timed)
    if own.empty:
        return
    best = own.loc[own.groupby(sizes)["median_us"].idxmin()]
    faster, same = ((best["verdict"] == word).sum() for word in (stats.FASTER, stats.SAME))
    yield f"Of {len(best)} shapes, no cubes, the best rung is faster than cuBLAS at {faster} and level at {same}"
    reached = []
    by_dialect = frames.leaders(own).groupby("dialect")
    for name in (name for name in DIALECTS if name in by_dialect.groups):
        rows = by_dialect.get_group(name)
        worst = rows.loc[rows["vs_cublas"].idxmin()]
        mean = format_percent(stats.geometric_mean(rows["vs_cublas"]), 0)
        worst_words = f"{format_percent(worst['vs_cublas'])}, {format_size(worst)}"
        reached.append(f"{mean} in {dialect_title(name)} (at worst {worst_words})")
    yield f"The best rung's share of cuBLAS is on average (geometric mean) {join_words(reached)}"
    alone = frames.best_for_all(own)
    each = [
        f"`{alone[name][0][:3]}` in {dialect.title} {format_percent(alone[name][1], 0)}"
        for name, dialect in DIALECTS.items()
        if name in alone
    ]
    yield f"One rung for all of them reaches at most: {join_words(each)}"
    counts = [f"`{stage[:3]}` at {count}" for stage, count in best["stage"].value_counts().head(3).items()]
    yield f"The best is most often {join_words(counts)}"
    library = timed[timed["backend"] == "cublaslt"]
    if len(library):
        missed = library[library["verdict"] == stats.FASTER][sizes].drop_duplicates()
        tried = len(library[sizes].drop_duplicates())
        yield f"At {len(missed)} of {tried} another algorithm of cuBLASLt is faster than the one that cuBLAS chose"
