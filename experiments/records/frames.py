"""Questions that several plots and documents ask of a frame of timed rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

import gemm_ref
from experiments.records import environment, stats, store, workloads
from experiments.records.contenders import OR_SGEMM
from experiments.records.controls import CONTROL
from experiments.records.rows import COLD, HARDWARE, OWN_MODES, PASS, PREDICTED
from experiments.records.workloads import LARGEST
from gemm_ref.baselines import BASELINES
from gemm_ref.rung import DEFAULT_VARIANT

# How B is stored where one layout is shown: by rows as everywhere else, but in fp8, which cuBLAS has by columns alone.
LAYOUT = {math: compute.cublas_b_layouts[0] for math, compute in gemm_ref.MATHS.items()}
TENSOR_CORE_MATHS = tuple(math for math in gemm_ref.MATHS if math != "fp32")
SIZES = ("m", "n", "k")
LAYOUT_WORDS = {"kn": "B by rows (K × N)", "nk": "B by columns (N × K)"}


def reference(math: str) -> str:
    """Returns the title of what speeds are a share of: cuBLAS, or its SGEMM if it lacks the compute type."""
    return next(each.title for each in BASELINES.values() if each.backend == "cublas" and math in each.maths)


def in_mode(math: str) -> str:
    """Returns the compute type, with the reference of its shares if that is of another compute type."""
    return f"{math} (of {reference(math)})" if math in gemm_ref.EMULATED else math


def with_modes(caption: str, maths: Collection[str]) -> str:
    """Returns the caption, preceded by the compute types in which B is stored by columns or cuBLAS is SGEMM."""
    by_columns = [math for math in maths if LAYOUT[math] == "nk"]
    emulated = [math for math in maths if math in gemm_ref.EMULATED]
    of_each = (by_columns, LAYOUT_WORDS["nk"]), (emulated, f"shares of {reference(gemm_ref.EMULATED[0])}")
    said = [f"{' and '.join(own)}: {what}" for own, what in of_each if own]
    return " · ".join([*said, caption])


def timed(frame: pd.DataFrame, math: str = "fp32") -> pd.DataFrame:
    """Returns the rows of one compute type that have a time."""
    return frame[frame["median_us"].notna() & (frame["math"] == math)]


def on_tensor_cores(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of all compute types but fp32 that have a time."""
    return frame[frame["median_us"].notna() & (frame["math"] != "fp32")]


def is_default(stage: str, variant: str, dialect: str) -> bool:
    """Returns whether a row is of its rung's default variant in its dialect; the rows of baselines are."""
    return not dialect or variant in (OR_SGEMM, gemm_ref.STAGES[stage].find_variant(DEFAULT_VARIANT, dialect))


def defaults(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of default variants and of baselines."""
    keep = [is_default(row.stage, row.variant, row.dialect) for row in frame.itertuples()]
    return frame[np.array(keep, dtype=bool)]


def fastest_variants(frame: pd.DataFrame) -> pd.DataFrame:
    """Of the ladder's kernels at one problem, the row of the fastest variant of each rung in each dialect."""
    own = rungs(frame)
    return own.loc[own.groupby(["stage", "dialect"], sort=False)["median_us"].idxmin()]


def nearest(frame: pd.DataFrame, problem: gemm_ref.Problem, max_ratio: float = np.inf) -> pd.Series | None:
    """Returns the row whose sizes have the least sum of squared logarithmic ratios to the problem's, the first of such.

    max_ratio: between each size of the row and the problem's, either way. None where no row is as near as that.
    """
    ratios = np.log((frame[list(SIZES)] / [problem.m, problem.n, problem.k]).astype(float)).abs()
    ratios = ratios[(ratios <= np.log(max_ratio)).all(axis=1)]
    return None if ratios.empty else frame.loc[(ratios**2).sum(axis=1).idxmin()]


def cubes(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of problems with M = N = K."""
    return frame[(frame["m"] == frame["n"]) & (frame["n"] == frame["k"])]


def cublas_tflops(rows: pd.DataFrame) -> float:
    """Returns the speed of cuBLAS in the rows of one problem; NaN where it has no time, since it is wrong."""
    return float(next(iter(rows.loc[rows["backend"] == "cublas", "tflops"]), float("nan")))


def largest_cube(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the timed fp32 rows of the largest cube up to LARGEST, the size of the tables; empty without one."""
    found = cubes(timed(frame))
    found = found[found["m"] <= LARGEST]
    return found[found["m"] == found["m"].max()]


def at_tables(folder: Path, math: str, layout: str = "") -> pd.DataFrame:
    """Returns the timed rows of one compute type at the size of the tables, with B in `layout`, by default LAYOUT's."""
    if math == "fp32":
        return largest_cube(store.read(folder, "ladder"))
    frame = store.read(folder, "tensor_cores")
    if frame.empty:
        return frame
    frame = frame[frame["median_us"].notna() & (frame["math"] == math)]
    frame = frame[frame["b_layout"] == (layout or LAYOUT[math])]
    return frame[frame["m"] == frame["m"][frame["m"] <= LARGEST].max()]


def most_measured_size(timed: pd.DataFrame) -> tuple[int, int, int]:
    """Returns the size (M, N, K) with the most kernels; of several such, the largest."""
    kernels = (timed["dialect"] != "").groupby([timed["m"], timed["n"], timed["k"]]).sum().to_dict()
    return max(kernels, key=lambda size: (kernels[size], size[0] * size[1] * size[2]))


def at(frame: pd.DataFrame, sizes: tuple[int, int, int]) -> pd.DataFrame:
    """Returns the rows of one problem; sizes are (M, N, K)."""
    m, n, k = sizes
    return frame[(frame["m"] == m) & (frame["n"] == n) & (frame["k"] == k)]


def rungs(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of rungs, without those of baselines."""
    return frame[frame["dialect"] != ""]


def off_cubes(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of problems whose M, N and K are not all equal."""
    return frame[frame[list(SIZES)].nunique(axis=1) > 1]


def with_last_rung(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the problems at which the last of the rungs was timed: at others the best is not known yet."""
    own = rungs(frame)
    last = own[own["stage"] == own["stage"].max()][list(SIZES)].drop_duplicates()
    return frame.merge(last, on=list(SIZES))


def commits(frame: pd.DataFrame, runs: Mapping[str, dict]) -> list[str]:
    """The commits at which the rows were measured, each once, the latest run's first; `runs` is environment.json."""
    own = (runs[key] for key in sorted(set(frame["run"]), reverse=True) if key in runs)
    return list(dict.fromkeys(environment.commit_of(run) for run in own))


def of_latest_commit(frame: pd.DataFrame, runs: Mapping[str, dict]) -> pd.DataFrame:
    """The rows that were measured at the commit of the latest of them: kernels of two commits are not compared."""
    latest = commits(frame, runs)[:1]
    own = {key for key, run in runs.items() if [environment.commit_of(run)] == latest}
    return frame[frame["run"].isin(own)] if latest else frame


def leaders(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the row of the fastest rung of each dialect for each problem and compute type; all rows have a time."""
    own = rungs(frame)
    return own.loc[own.groupby([*SIZES, "math", "dialect"], sort=False)["median_us"].idxmin()]


def speed_off_powers(rows: pd.DataFrame) -> dict[int, float]:
    """Returns, by size, the speed over that at the nearest power of two: the median over the rungs of one dialect."""
    speed = rows.pivot_table(index="stage", columns="m", values="tflops")
    there = {size: power for size, power in workloads.AWKWARD.items() if {size, power} <= set(speed.columns)}
    return {size: float((speed[size] / speed[power]).median()) for size, power in there.items()}


def time_over_cold(rows: pd.DataFrame) -> dict[str, float]:
    """Returns, by timing mode, the median ratio of the time to that with a cold cache; empty without the latter."""
    times = rows.pivot_table(index=["math", "stage", "variant", "dialect"], columns="mode", values="median_us")
    return {mode: float((times[mode] / times[COLD]).median()) for mode in times} if COLD in times else {}


def controls(rows: pd.DataFrame) -> tuple[int, int, float]:
    """Rows that time cuBLAS against itself: how many say SAME, of how many, and the furthest share from 1.

    Not what `timers` has of other clocks, whose spread is what it shows.
    """
    own = rows[(rows["stage"] == CONTROL) & rows["vs_cublas"].notna() & rows["mode"].isin(OWN_MODES)]
    return int((own["verdict"] == stats.SAME).sum()), len(own), float((own["vs_cublas"] - 1).abs().max())


def tally(checked: pd.DataFrame) -> tuple[int, int]:
    """Returns how many checks passed, and of how many; checked: rows of `correctness`."""
    return int(checked.loc[checked["status"] == PASS, "checks"].sum()), int(checked["checks"].sum())


def summarize_checks(checked: pd.DataFrame) -> pd.DataFrame:
    """Of rows of `correctness` that passed the one that used most of what is allowed, for each kernel, K and inputs.

    It stands for the others. Other rows stay as they are.
    """
    passed = checked["status"] == PASS
    own = checked[passed].sort_values("bound_share", ascending=False, kind="stable")
    groups = own.groupby(["stage", "variant", "dialect", "math", "k", "inputs"], sort=False)
    found = own.assign(checks=groups["checks"].transform("sum"))[groups.cumcount() == 0]
    return pd.concat([found, checked[~passed]]).sort_index()


def tried(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the timed rows of `choice` from the latest run of each problem and dialect, as costs may change."""
    frame = frame[frame["median_us"].notna()]
    return frame[frame["run"] == frame.groupby([*SIZES, "math", "dialect"])["run"].transform("max")]


def with_epilogue(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of `epilogues` that have a time, but plain products'; first those of the size where all are timed."""
    return frame[frame["over_plain"].notna() & (frame["form"] != "plain")] if len(frame) else frame


def held_out(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of problems on which no table of costs is fitted."""
    fitted = {math: set(workloads.fitted(math)) for math in frame["math"].unique()}
    of = frame[["math", *SIZES]].itertuples(index=False, name=None)
    keep = [tuple(sizes) not in fitted[math] for math, *sizes in of]
    return frame[np.array(keep, dtype=bool)]


def regrets(frame: pd.DataFrame) -> pd.DataFrame:
    """What the choice loses: a row for each problem, math mode and dialect of timed rows of `choice`.

    `regret` is the time of the chosen candidate over the least that was timed there, less 1; NaN where the chosen one
    has no time. `tuned` is the same of what Triton's autotune picked, NaN where it was not asked.
    """
    own, by = rungs(frame), [*SIZES, "math", "dialect"]
    loss = own["median_us"] / own.groupby(by)["median_us"].transform("min") - 1
    of = own.assign(regret=loss.where(own["chosen"] == 1), tuned=loss.where(own["autotune_s"].notna()))
    return of.groupby(by, sort=False)[["regret", "tuned", "autotune_s", "candidates"]].max().reset_index()


def spread(row) -> tuple[float, float]:
    """Returns the speed in TFLOP/s at the 80th and at the 20th percentile of a row's time."""
    return row.tflops * row.median_us / row.p80_us, row.tflops * row.median_us / row.p20_us


def speedup(old, new) -> stats.Ratio | None:
    """The speed of row `new` as a multiple of that of row `old`, of the same problem, with its interval.

    From their shares of cuBLAS, as docs/method.md says; None where a row is None, where one has no share, and where two
    runs measured them.
    """
    if old is None or new is None or old.run != new.run or np.isnan(old.vs_cublas) or np.isnan(new.vs_cublas):
        return None
    shares = (stats.Ratio(row.vs_cublas, row.vs_cublas_low, row.vs_cublas_high) for row in (old, new))
    return stats.change(*shares)


def verdict(old, new) -> str:
    """Returns FASTER, SLOWER or SAME for row `new` beside row `old` of one problem; UNSURE without a `speedup`."""
    ratio = speedup(old, new)
    return stats.verdict(ratio, stats.margin_for(min(old.median_us, new.median_us))) if ratio else stats.UNSURE


def shown(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows whose layout of B, if they state one, is that of LAYOUT for their compute type."""
    return frame[frame["b_layout"] == frame["math"].map(LAYOUT)] if "b_layout" in frame else frame


def maths_of(frame: pd.DataFrame) -> list[str]:
    """Returns the compute types of a frame in the registry's order."""
    return [math for math in gemm_ref.MATHS if math in set(frame["math"])]


_PRODUCT = ["stage", "variant", "dialect", "math", "m", "n", "k", "inputs"]


def pair_products(frame: pd.DataFrame) -> pd.DataFrame:
    """A line for each product that was both predicted and made on the GPU; columns end in _predicted and _hardware.

    Only those that both dealt alike: shares of K that are added in another order have other bits.
    """
    frame = frame[frame["rel_error"].notna() & (frame["status"] == PASS)]
    views = [frame[frame["view"] == view] for view in (PREDICTED, HARDWARE)]
    both = views[0].merge(views[1], on=_PRODUCT, suffixes=("_predicted", "_hardware"))
    return both[both["dealt_predicted"] == both["dealt_hardware"]]
