"""What came of `ladder`, `squares` and `tensor_cores`, in sentences made from their rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pandas as pd

import gemm_ref
from experiments.publish.kernels import default_row
from experiments.publish.numbers import format_fixed, format_number, format_percent, format_percent_range, format_range
from experiments.publish.wording import VERDICT_WORDS, dialect_title, join_dialects, join_words
from experiments.records import frames, stats, workloads
from gemm_ref import DIALECTS
from gemm_ref.baselines import BASELINES
from gemm_ref.dialect import BY_HAND, OTHERS

_VECTORIZED = "s08_vectorized"  # the first rung that loads 16 bytes at a time where rows are aligned
_ORDER = (stats.FASTER, stats.SAME, stats.SLOWER, stats.UNSURE)


def ladder(frame: pd.DataFrame) -> Iterator[str]:
    at_size = frames.defaults(frames.largest_cube(frame))
    if frames.rungs(at_size).empty:
        yield from _describe_cpu(frame)
        return
    steps = {dialect: _step_verdicts(at_size, "fp32", dialect) for dialect in DIALECTS}
    yield f"At {at_size['m'].iloc[0]} a rung is faster than the one below it at {_count_faster(steps)}"
    others = [f"`{stage[:3]}`" for stage, verdict in steps[BY_HAND].items() if verdict != stats.FASTER]
    if others:
        yield f"Not faster in {dialect_title(BY_HAND)}: {join_words(others)}"
    for dialect in OTHERS:
        written = _written("fp32", dialect)
        pairs = [[default_row(at_size, stage, name) for name in (BY_HAND, dialect)] for stage in written]
        verdicts = [frames.verdict(*pair) for pair in pairs if not any(row is None for row in pair)]
        counts = [f"{VERDICT_WORDS[each]} {verdicts.count(each)} times" for each in _ORDER if each in verdicts]
        if counts:
            yield f"Beside {dialect_title(BY_HAND)}'s rung, {dialect_title(dialect)}'s is {join_words(counts)}"


def squares(frame: pd.DataFrame) -> Iterator[str]:
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
        yield from _describe_cpu(frame)
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
        yield f"One off a power of two, this much of the speed is left from `{_VECTORIZED[:3]}` on: {join_words(left)}"


def tensor_cores(frame: pd.DataFrame) -> Iterator[str]:
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
            for stage, verdict in _step_verdicts(rows, math, dialect).items()
        }
        for dialect in DIALECTS
    }
    yield f"Over all math modes a rung is faster than the one below it at {_count_faster(steps)}"
    keys = ["math", "stage", "dialect"]
    times = frames.rungs(at_size).pivot_table(index=keys, columns="b_layout", values="median_us")
    if {"kn", "nk"} <= set(times):
        ratios = (times["kn"] / times["nk"]).dropna().groupby("math", sort=False)
        maths = [math for math in gemm_ref.MATHS if math in ratios.groups]
        each = [f"{format_range(ratios.get_group(math), partial(format_fixed, places=2))} in {math}" for math in maths]
        yield f"B by rows takes this many times as long as B by columns: {join_words(each)}"


def _describe_cpu(frame: pd.DataFrame) -> Iterator[str]:
    own = frame[frame["stage"].isin(BASELINES) & (frame["math"] == "fp32") & frame["tflops"].notna()]
    if len(own):
        best = own.loc[own["tflops"].idxmax()]
        reached = f"{BASELINES[best.stage].title} reaches {format_number(best.tflops)} TFLOP/s at {best.m}"
        yield f"Only libraries of the CPU were timed; {reached}"


def _step_verdicts(at_size: pd.DataFrame, math: str, dialect: str) -> dict[str, str]:
    """Rung -> its verdict beside the rung below, in one dialect's default variants; those that have both rows."""
    rows = {stage.id: default_row(at_size, stage, dialect) for stage in _written(math, dialect)}
    pairs = itertools.pairwise(gemm_ref.stages_in(math))
    found = {stage.id: (rows.get(below.id), rows.get(stage.id)) for below, stage in pairs}
    return {name: frames.verdict(*pair) for name, pair in found.items() if not any(row is None for row in pair)}


def _written(math: str, dialect: str) -> list[gemm_ref.Rung]:
    return [stage for stage in gemm_ref.stages_in(math) if dialect in stage.dialects]


def _count_faster(steps: Mapping[str, Mapping[Any, str]]) -> str:
    verdicts = {dialect: list(of.values()) for dialect, of in steps.items() if of}
    return join_dialects({d: f"{each.count(stats.FASTER)} of {len(each)} steps" for d, each in verdicts.items()})
