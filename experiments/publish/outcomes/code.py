"""What came of the experiments on code, errors, memory, instructions and the machine's roofs, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pandas as pd

import gemm_ref
from experiments.publish.numbers import format_count, format_fixed, format_number, format_percent, format_range
from experiments.publish.wording import dialect_title, join_dialects, join_words
from experiments.records import compiled, frames, traffic
from experiments.records.ceilings import TITLES
from experiments.records.rows import PASS, SKIPPED
from gemm_ref.baselines import BASELINES
from gemm_ref.dialect import BY_HAND
from gemm_ref.rung import DEFAULT_VARIANT
from gemm_ref.sass.schedule import REASONS, REGISTERS

_SPLIT_K = "s13_split_k"
_LIBRARIES = ("cublas", "numpy_blas")  # beside which an error's growth is shown
_two_places = partial(format_fixed, places=2)


def cost(frame: pd.DataFrame) -> Iterator[str]:
    own = frame[frame["own_lines"].notna()]
    if own.empty:
        return
    lines = (own["own_lines"] + own["shared_lines"]).groupby(own["dialect"], sort=False)
    ranges = join_dialects({dialect: format_range(counts, format_fixed) for dialect, counts in lines})
    yield f"A rung takes this many lines of code, with the files that rungs share: {ranges}"
    seconds = compiled.defaults(own).groupby("dialect", sort=False)["compile_s"].median()
    each = join_dialects({dialect: f"{format_fixed(of, 1)} s" for dialect, of in seconds.items() if of > 0})
    if each:
        yield f"The median kernel, of default variants, compiles in {each} of a processor's time"


def correctness(frame: pd.DataFrame) -> Iterator[str]:
    run = frame[frame["status"] != SKIPPED]
    failed, (good, count) = run[run["status"] != PASS], frames.tally(run)
    if len(failed):
        kernels = dict.fromkeys(f"`{row.stage}` in {dialect_title(row.dialect)}" for row in failed.itertuples())
        yield f"{format_count(count - good)} of {format_count(count)} checks failed: {join_words(kernels)}"
    elif len(run):
        number = len(run[["stage", "variant", "dialect", "math"]].drop_duplicates())
        yield f"Yes: all {format_count(count)} checks of {number} kernels passed"
        if run["bound_share"].notna().any():
            share = format_percent(run["bound_share"].max(), 0)
            yield f"The largest error of an element is {share} of what is allowed"


def accuracy(frame: pd.DataFrame) -> Iterator[str]:
    frame = frame[frame["rel_error"].notna()]
    low, high = frame["k"].min(), frame["k"].max()
    if low == high:
        return
    keys = ["math", "stage", "variant", "dialect"]
    errors = frame.pivot_table(index=keys, columns="k", values="rel_error")
    growth = (errors[high] / errors[low]).dropna().rename("growth").reset_index()
    fp32, library = growth[growth["math"] == "fp32"], growth[growth["stage"] == "cublas"].set_index("math")["growth"]
    rungs = frames.rungs(fp32)
    groups = {
        f"`{_SPLIT_K[:3]}`": rungs[rungs["stage"] == _SPLIT_K],
        "the other rungs": rungs[rungs["stage"] != _SPLIT_K],
        **{BASELINES[name].title: fp32[fp32["stage"] == name] for name in _LIBRARIES},
    }
    known = {name: format_range(rows["growth"], format_fixed) for name, rows in groups.items() if len(rows)}
    each = join_words(f"{times} times in {name}" for name, times in known.items())
    root = format_fixed(np.sqrt(high / low))
    yield f"From K = {low} to {high}, over which sqrt(K) grows {root} times, the error in fp32 grows {each}"
    growths = [f"{_two_places(library[m])} times in {m}" for m in gemm_ref.MATHS if m in library and m != "fp32"]
    if growths:
        yield f"On tensor cores that of cuBLAS grows {join_words(growths)}"


def memory(frame: pd.DataFrame) -> Iterator[str]:
    rows = traffic.best_view(frame[frame["status"] == PASS])
    rows = rows[(rows["dialect"] == BY_HAND) & (rows["math"] == "fp32")]
    loads = rows[(rows["space"] == "global") & (rows["kind"] == "load")]
    if loads.empty:
        return
    sectors = (loads["sectors"] / loads["requests"]).groupby(loads["stage"]).max().head(2)
    each = [f"{of:.3g} sectors in `{stage[:3]}`" for stage, of in sectors.items()]
    yield f"In {dialect_title(BY_HAND)}, the dearest load of a warp asks for {join_words(each)}"
    shared = rows[(rows["space"] == "shared") & (rows["ideal"] > 0)]
    if len(shared):
        kernels = [shared["stage"].str[:3], shared["variant"].where(shared["variant"] != DEFAULT_VARIANT, "")]
        worst = (shared["wavefronts"] / shared["ideal"]).groupby(kernels, sort=False).max().sort_values()[::-1]
        each = [f"{format_number(of)} times in `{' '.join(kernel).strip()}`" for kernel, of in worst.head(3).items()]
        yield f"Bank conflicts multiply the wavefronts of an access to shared memory at most {join_words(each)}"
        yield f"{(worst == 1).sum()} of {len(worst)} kernels have none"
    both = traffic.confirmed(frame)
    if len(both):
        ratios = both.xs("ratio", axis=1, level=1)
        exact = int((ratios.isna() | (ratios == 1)).all(axis=1).sum())
        yield f"The GPU's own counters agree in every count at {exact} of {len(both)} launches"


def instructions(frame: pd.DataFrame) -> Iterator[str]:
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
        most = (longest == f"wait_{REGISTERS}").sum()
        loops = "fp32 loops that are mostly multiply-adds wait for registers longer than for anything else"
        yield f"By their machine code {most} of {len(waits)} {loops}"
    spilled = rows[rows["spill_bytes"] > 0]
    worst = rows.loc[rows["spill_bytes"].idxmax()]
    most = f", the most by `{worst.stage[:3]}` in {dialect_title(worst.dialect)}: {worst.spill_bytes:.0f} bytes"
    yield f"{len(spilled)} of {len(rows)} kernels spill registers" + (most if len(spilled) else "")


def roofs(frame: pd.DataFrame) -> Iterator[str]:
    frame = frame[frame["value"].notna()]
    for column, of in (("by_clock", "what the highest clock allows"), ("datasheet", "its datasheet")):
        own = frame[frame[column].notna() & ((column == "by_clock") | frame["by_clock"].isna())]
        if len(own):
            kinds = own.assign(share=100 * own["value"] / own[column]).groupby(_name_ceilings(own), sort=False)["share"]
            each = [f"{kind} {format_range(shares, format_fixed, '%')}" for kind, shares in kinds]
            yield f"Of {of}: {join_words(each)}"


def _name_ceilings(rows: pd.DataFrame) -> list[str]:
    """What each ceiling is of, without the math mode or the kind of access."""
    titles = [TITLES[stage].split(", ") for stage in rows["stage"]]
    return [parts[-1 if math else 0] for parts, math in zip(titles, rows["math"], strict=True)]


def registers(frame: pd.DataFrame) -> Iterator[str]:
    frame = frame[frame["clocks"].notna()]
    loops, rungs = frame[(frame["m"] == 0) & (frame["warps"] == 1)], frames.largest_cube(frame[frame["m"] > 0])
    loops = loops[loops["stage"] == "FFMA"]
    clocks = loops.set_index(["form", "variant"])["clocks"]
    operands = {
        "three registers of one bank": ("parities", "even even even"),
        "both banks": ("parities", "even odd even"),
        "both with one kept by `.reuse`": ("reuse", "a; b and c of two banks"),
    }
    if each := [f"{_two_places(clocks[key])} of {name}" for name, key in operands.items() if key in clocks]:
        off = _two_places((loops["clocks"] - loops["predicted"]).abs().max())
        yield f"An FFMA takes, in clocks, {join_words(each)}; {len(loops)} loops are within {off} of the model"
    rungs = rungs[rungs["form"] != ""]
    for best in rungs.sort_values("vs_cublas", ascending=False).head(1).itertuples():
        shares = rungs.set_index(["stage", "variant", "warps", "form"])["vs_cublas"]
        before = shares.get((best.stage, best.variant, best.warps, "as it is"))
        was = f", where it has {format_fixed(before, 3)} as it is" if before is not None else ""
        share = format_fixed(best.vs_cublas, 3)
        yield f"`{best.stage[:3]}` `{best.variant}` comes closest, {best.form}: {share} of cuBLAS{was}"
        times = format_range(rungs["clocks"] / rungs["predicted"], _two_places)
        yield f"Rungs take {times} times the least clocks that their machine code allows"
