"""The steps of the ladder: which rung is faster than the one below it, for the outcomes of several studies."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

import gemm_ref
from experiments.publish.kernels import fastest_row
from experiments.publish.numbers import format_number
from experiments.publish.wording import join_dialects
from experiments.records import frames, stats
from gemm_ref.baselines import BASELINES


def step_verdicts(at_size: pd.DataFrame, math: str, dialect: str) -> dict[str, str]:
    """Rung -> its verdict beside the rung below, in the fastest variants of one dialect; those that have both rows."""
    rows = {stage.id: fastest_row(at_size, stage, dialect) for stage in written_rungs(math, dialect)}
    pairs = itertools.pairwise(gemm_ref.stages_in(math))
    found = {stage.id: (rows.get(below.id), rows.get(stage.id)) for below, stage in pairs}
    return {name: frames.verdict(*pair) for name, pair in found.items() if not any(row is None for row in pair)}


def written_rungs(math: str, dialect: str) -> list[gemm_ref.Rung]:
    """The rungs of a math mode that have a kernel in the dialect."""
    return [stage for stage in gemm_ref.stages_in(math) if dialect in stage.dialects]


def count_faster(steps: Mapping[str, Mapping[Any, str]]) -> str:
    """How many steps are FASTER in each dialect, as text; `steps` holds their verdicts by dialect."""
    verdicts = {dialect: list(of.values()) for dialect, of in steps.items() if of}
    return join_dialects({d: f"{each.count(stats.FASTER)} of {len(each)} steps" for d, each in verdicts.items()})


def describe_cpu(frame: pd.DataFrame) -> Iterator[str]:
    """A sentence on the fastest library of the CPU, for a machine on which no rung was timed."""
    own = frame[frame["stage"].isin(BASELINES) & (frame["math"] == "fp32") & frame["tflops"].notna()]
    if len(own):
        best = own.loc[own["tflops"].idxmax()]
        reached = f"{BASELINES[best.stage].title} reaches {format_number(best.tflops)} TFLOP/s at {best.m}"
        yield f"Only libraries of the CPU were timed; {reached}"
