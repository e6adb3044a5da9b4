"""Selects from the rows of `instructions` those that tables and plots show."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

import gemm_ref
from experiments.records import frames, store
from experiments.records.rows import COLD
from gemm_ref.launch import cdiv
from gemm_ref.sass.occupancy import WARP
from gemm_ref.sass.ports import SCHEDULERS

MAIN_ARCHITECTURE = "sm_90a"  # shown unless another is named


def at_one_size(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the compiled rows of the size that most of them have; of several such, the largest."""
    frame = frame[frame["instructions"].notna()]
    return frames.at(frame, frames.most_measured_size(frame)) if len(frame) else frame


def defaults(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of each dialect's default variant in the first compute type of its rung."""
    first_maths = {stage.id: stage.maths[0] for stage in gemm_ref.STAGES.values()}
    return frames.defaults(frame[frame["math"] == frame["stage"].map(first_maths)])


MIN_FFMA_SHARE = 0.5  # of a loop's instructions, for `compare_with_measured`: other loops also wait for unknown things


def compare_with_measured(folder: Path) -> tuple[pd.DataFrame, list[dict]]:
    """Returns the compiled rows of fp32 loops that are mostly FFMA that `ladder` timed, and the runs that timed them.

    `predicted_clocks` and `measured_clocks` are a scheduler's for each multiply-add of a warp, at the GPU's highest
    clock; the first has in it that the last tiles do not fill the GPU (`evenness`). Empty without a GPU's times.
    """
    frame = store.read(folder, "instructions")
    frame = at_one_size(frame[(frame["arch"] == MAIN_ARCHITECTURE) & frame["clocks"].notna()])
    timed = store.read(folder, "ladder")
    timed = timed[(timed["mode"] == COLD) & timed["median_us"].notna()]
    who = ["stage", "variant", "dialect", "math", "m", "n", "k"]
    both = frame[frame["ffma_share"] >= MIN_FFMA_SHARE].merge(
        timed[[*who, "median_us", "run"]], on=who, suffixes=("", "_timed")
    )
    runs = store.runs_of(both.assign(run=both["run_timed"]), folder)
    if not runs or not runs[-1]["gpu"]:
        return both[:0], []
    gpu = runs[-1]["gpu"]
    sms = gpu["multiprocessors"]
    both["evenness"] = [_evenness(row, sms) for row in both.itertuples()]
    both["predicted_clocks"] = both["clocks"] / both["ffma"] / both["evenness"]
    multiply_adds = both["m"] * both["n"] * both["k"] / (WARP * SCHEDULERS * sms)  # of a scheduler
    both["measured_clocks"] = both["median_us"] * gpu["max_sm_clock_mhz"] / multiply_adds
    return both, runs


def _evenness(row, sms: int) -> float:
    x, y, z = gemm_ref.get_stage(row.stage).launch(row.m, row.n, row.k, row.variant, sms=sms).grid
    return x * y * z / (sms * cdiv(x * y * z, sms))


def error(both: pd.DataFrame) -> pd.Series:
    """Returns the relative difference of the predicted speed from the measured one."""
    return (both["measured_clocks"] / both["predicted_clocks"] - 1).abs()
