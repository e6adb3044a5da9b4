"""What came of `ladder`, `squares` and `tensor_cores`, in sentences made from their rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

import gemm_ref
from experiments.publish.drawing.style import number
from experiments.publish.kernel_rows import default_row
from experiments.publish.markdown import listed
from experiments.publish.outcomes.words import span, spread, title
from experiments.records import frames, stats, workloads
from gemm_ref import DIALECTS
from gemm_ref.baselines import BASELINES
from gemm_ref.dialect import BY_HAND, OTHERS

_WORDS = {stats.FASTER: "faster", stats.SAME: "level", stats.SLOWER: "slower", stats.UNSURE: "not told apart"}
_VECTORIZED = "s08_vectorized"  # the first rung that loads 16 bytes at a time where rows are aligned


def ladder(frame: pd.DataFrame) -> Iterator[str]:
    at_size = frames.defaults(frames.largest_cube(frame))
    if frames.rungs(at_size).empty:
        yield from _of_the_cpu(frame)
        return
    steps = {dialect: _steps(at_size, "fp32", dialect) for dialect in DIALECTS}
    yield f"At {at_size['m'].iloc[0]} a rung is faster than the one below it at {_counts(steps)}"
    others = [f"`{stage[:3]}`" for stage, verdict in steps[BY_HAND].items() if verdict != stats.FASTER]
    if others:
        yield f"Not faster in {title(BY_HAND)}: {listed(others)}"
    for dialect in OTHERS:
        verdicts = _beside_hand(at_size, dialect)
        said = [f"{word} {verdicts.count(verdict)} times" for verdict, word in _WORDS.items() if verdict in verdicts]
        if said:
            yield f"Beside {title(BY_HAND)}'s rung, {title(dialect)}'s is {listed(said)}"


def squares(frame: pd.DataFrame) -> Iterator[str]:
    yield from _squares_in_fp32(frame)
    best = frames.rungs(frames.on_tensor_cores(frame))
    if len(best):
        best = best.loc[best.groupby(["math", "m"])["median_us"].idxmin()]
        least = best.loc[best.groupby("math")["vs_cublas"].idxmin()].set_index("math")
        said = [
            f"{number(100 * least.loc[math, 'vs_cublas'])}% in {frames.in_mode(math)} (at {least.loc[math, 'm']})"
            for math in frames.maths_of(best)
        ]
        yield f"On tensor cores the best rung has, at the size where that is least, of cuBLAS' speed {listed(said)}"


def _squares_in_fp32(frame: pd.DataFrame) -> Iterator[str]:
    own = frames.rungs(frames.timed(frame))
    if own.empty:
        yield from _of_the_cpu(frame)
        return
    powers = own[[size & (size - 1) == 0 for size in own["m"]]]
    best = powers.loc[powers.groupby("m")["median_us"].idxmin()]
    runs = [(stage, list(rows)) for stage, rows in itertools.groupby(best.itertuples(), lambda row: row.stage)]
    said = [f"`{stage[:3]}` {span([row.m for row in rows])}" for stage, rows in runs]
    yield f"The fastest rung changes with the size: {listed(said)}"
    high = own[own["stage"] >= _VECTORIZED]
    shares = {title(dialect): frames.beside_powers(rows) for dialect, rows in high.groupby("dialect", sort=False)}
    library = frames.beside_powers(frames.timed(frame)[lambda rows: rows["backend"] == "cublas"])
    shares = {name: found for name, found in (shares | {"cuBLAS": library}).items() if found}
    if shares:
        least_and_most = {name: (min(found.values()), max(found.values())) for name, found in shares.items()}
        said = [f"{100 * low:.0f} to {100 * high:.0f}% in {name}" for name, (low, high) in least_and_most.items()]
        yield f"One off a power of two, this much of the speed is left from `{_VECTORIZED[:3]}` on: {listed(said)}"


def tensor_cores(frame: pd.DataFrame) -> Iterator[str]:
    frame = frame[frame["median_us"].notna()]
    sizes = frame["m"][frame["m"] <= workloads.LARGEST]
    at_size = frames.defaults(frame[frame["m"] == sizes.max()])
    if frames.rungs(at_size).empty:
        return
    of_maths = frames.shown(at_size).groupby("math")
    steps = {
        dialect: {(math, stage): word for math, rows in of_maths for stage, word in _steps(rows, math, dialect).items()}
        for dialect in DIALECTS
    }
    yield f"Over all math modes a rung is faster than the one below it at {_counts(steps)}"
    keys = ["math", "stage", "dialect"]
    times = frames.rungs(at_size).pivot_table(index=keys, columns="b_layout", values="median_us")
    if {"kn", "nk"} <= set(times):
        shares = (times["kn"] / times["nk"]).dropna().groupby("math", sort=False)
        maths = [math for math in gemm_ref.MATHS if math in shares.groups]
        said = listed(f"{spread(shares.get_group(math), '.2f')} in {math}" for math in maths)
        yield f"B by rows takes this many times as long as B by columns: {said}"


def _of_the_cpu(frame: pd.DataFrame) -> Iterator[str]:
    own = frame[frame["stage"].isin(BASELINES) & (frame["math"] == "fp32") & frame["tflops"].notna()]
    if len(own):
        best = own.loc[own["tflops"].idxmax()]
        reached = f"{BASELINES[best.stage].title} reaches {number(best.tflops)} TFLOP/s at {best.m}"
        yield f"Only libraries of the CPU were timed; {reached}"


def _steps(at_size: pd.DataFrame, math: str, dialect: str) -> dict[str, str]:
    """Rung -> its verdict beside the rung below, in one dialect's default variants; those that have both rows."""
    rows = {stage.id: default_row(at_size, stage, dialect) for stage in _written(math, dialect)}
    pairs = itertools.pairwise(gemm_ref.stages_in(math))
    found = {stage.id: (rows.get(below.id), rows.get(stage.id)) for below, stage in pairs}
    return {name: frames.verdict(*pair) for name, pair in found.items() if not any(row is None for row in pair)}


def _beside_hand(at_size: pd.DataFrame, dialect: str) -> list[str]:
    """The verdict on each rung of a dialect beside the same rung in CUDA, default variants."""
    pairs = [[default_row(at_size, stage, name) for name in (BY_HAND, dialect)] for stage in _written("fp32", dialect)]
    return [frames.verdict(*pair) for pair in pairs if not any(row is None for row in pair)]


def _written(math: str, dialect: str) -> list[gemm_ref.Rung]:
    return [stage for stage in gemm_ref.stages_in(math) if dialect in stage.dialects]


def _counts(steps: Mapping[str, Mapping[Any, str]]) -> str:
    found = ((dialect, list(verdicts.values())) for dialect, verdicts in steps.items() if verdicts)
    return listed(f"{said.count(stats.FASTER)} of {len(said)} steps in {title(dialect)}" for dialect, said in found)
