"""Sentences about the result of `squares`, made from its rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pandas as pd

from experiments.publish.numbers import format_percent, format_percent_range
from experiments.publish.steps import describe_cpu
from experiments.publish.wording import dialect_title, join_words
from experiments.records import frames

_VECTORIZED = "s08_vectorized"  # the first rung that loads 16 bytes at a time where rows are aligned


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Yields the sentences about the result; none where the rows say nothing."""
    yield from _describe_fp32_squares(frame)
    best = frames.rungs(frames.on_tensor_cores(frame))
    if len(best):
        best = best.loc[best.groupby(["math", "m"])["median_us"].idxmin()]
        least = best.loc[best.groupby("math")["vs_cublas"].idxmin()].set_index("math")
        shares = [
            f"{format_percent(least.loc[math, 'vs_cublas'])} in {frames.in_mode(math)} (at {least.loc[math, 'm']})"
            for math in frames.maths_of(best)
        ]
        each = join_words(shares)
        yield f"On tensor cores the best rung has, at the size where that is least, of cuBLAS' speed {each}"


def _describe_fp32_squares(frame: pd.DataFrame) -> Iterator[str]:
    own = frames.rungs(frames.timed(frame))
    if own.empty:
        yield from describe_cpu(frame)
        return
    powers = own[[size & (size - 1) == 0 for size in own["m"]]]
    best = powers.loc[powers.groupby("m")["median_us"].idxmin()]
    runs = itertools.groupby(zip(best["stage"], best["m"], strict=True), lambda row: row[0])
    sizes = [(stage, [size for _, size in rows]) for stage, rows in runs]
    spans = [f"`{stage[:3]}` " + (f"at {m[0]}" if len(m) == 1 else f"from {m[0]} to {m[-1]}") for stage, m in sizes]
    yield f"The fastest rung changes with the size: {join_words(spans)}"
    vectorized = own[own["stage"] >= _VECTORIZED].groupby("dialect", sort=False)
    of = {dialect_title(dialect): frames.speed_off_powers(rows) for dialect, rows in vectorized}
    of["cuBLAS"] = frames.speed_off_powers(frames.timed(frame)[lambda rows: rows["backend"] == "cublas"])
    left = [f"{format_percent_range(min(x.values()), max(x.values()), 0)} in {name}" for name, x in of.items() if x]
    if left:
        first = f"`{_VECTORIZED[:3]}`"
        yield f"At one element off a power of two, rungs from {first} on keep of their speed {join_words(left)}"
