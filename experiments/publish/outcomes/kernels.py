"""What came of the experiments on kernels and the machine, in sentences: code, errors, memory, instructions, roofs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

import gemm_ref
from experiments.publish.drawing.style import number
from experiments.publish.markdown import listed
from experiments.publish.outcomes.words import spread, title
from experiments.records import compiled, frames, traffic
from experiments.records.ceilings import TITLES
from experiments.records.rows import PASS, SKIPPED
from gemm_ref import DIALECTS
from gemm_ref.baselines import BASELINES
from gemm_ref.dialect import BY_HAND
from gemm_ref.rung import DEFAULT_VARIANT
from gemm_ref.sass.schedule import REASONS, REGISTERS

_SPLIT = "s13_split_k"
_LIBRARIES = ("cublas", "numpy_blas")  # beside which an error's growth is shown


def cost(frame: pd.DataFrame) -> Iterator[str]:
    own = frame[frame["own_lines"].notna()]
    if own.empty:
        return
    lines = (own["own_lines"] + own["shared_lines"]).groupby(own["dialect"], sort=False)
    said = listed(f"{spread(lines.get_group(d), '.0f')} in {title(d)}" for d in DIALECTS if d in lines.groups)
    yield f"A rung takes this many lines of code, with the files that rungs share: {said}"
    seconds = compiled.defaults(own).groupby("dialect", sort=False)["compile_s"].median()
    said = listed(f"{seconds[d]:.1f} s in {title(d)}" for d in DIALECTS if seconds.get(d, np.nan) > 0)
    if said:
        yield f"The median kernel, of default variants, compiles in {said} of a processor's time"


def correctness(frame: pd.DataFrame) -> Iterator[str]:
    run = frame[frame["status"] != SKIPPED]
    bad, (good, count) = run[run["status"] != PASS], frames.tally(run)
    if len(bad):
        who = listed(dict.fromkeys(f"`{row.stage}` in {title(row.dialect)}" for row in bad.itertuples()))
        yield f"{count - good:,} of {count:,} checks failed: {who}"
    elif len(run):
        kernels = len(run[["stage", "variant", "dialect", "math"]].drop_duplicates())
        yield f"Yes: all {count:,} checks of {kernels} kernels passed"
        if run["bound_share"].notna().any():
            yield f"The largest error of an element is {100 * run['bound_share'].max():.0f}% of what is allowed"


def accuracy(frame: pd.DataFrame) -> Iterator[str]:
    frame = frame[frame["rel_error"].notna()]
    low, high = frame["k"].min(), frame["k"].max()
    keys = ["math", "stage", "variant", "dialect"]
    errors = frame.pivot_table(index=keys, columns="k", values="rel_error")
    if low == high:
        return
    growth = (errors[high] / errors[low]).dropna().rename("growth").reset_index()
    fp32, library = growth[growth["math"] == "fp32"], growth[growth["stage"] == "cublas"].set_index("math")["growth"]
    rungs = frames.rungs(fp32)
    groups = {
        f"`{_SPLIT[:3]}`": rungs[rungs["stage"] == _SPLIT],
        "the other rungs": rungs[rungs["stage"] != _SPLIT],
        **{BASELINES[name].title: fp32[fp32["stage"] == name] for name in _LIBRARIES},
    }
    said = [f"{spread(rows['growth'], '.0f')} times in {who}" for who, rows in groups.items() if len(rows)]
    yield (
        f"From K = {low} to {high}, over which sqrt(K) grows {np.sqrt(high / low):.0f} times, the error in fp32 grows "
        f"{listed(said)}"
    )
    said = [f"{library[math]:.2f} times in {math}" for math in gemm_ref.MATHS if math in library and math != "fp32"]
    if said:
        yield f"On tensor cores that of cuBLAS grows {listed(said)}"


def memory(frame: pd.DataFrame) -> Iterator[str]:
    rows = traffic.best_view(frame[frame["status"] == PASS])
    rows = rows[(rows["dialect"] == BY_HAND) & (rows["math"] == "fp32")]
    loads = rows[(rows["space"] == "global") & (rows["kind"] == "load")]
    if loads.empty:
        return
    asked = (loads["sectors"] / loads["requests"]).groupby(loads["stage"]).max()
    said = [f"{asked[stage]:.3g} sectors in `{stage[:3]}`" for stage in list(asked.index)[:2]]
    yield f"In {title(BY_HAND)}, the dearest load of a warp asks for {listed(said)}"
    shared = rows[(rows["space"] == "shared") & (rows["ideal"] > 0)]
    if len(shared):
        kernels = [shared["stage"].str[:3], shared["variant"].where(shared["variant"] != DEFAULT_VARIANT, "")]
        worst = (shared["wavefronts"] / shared["ideal"]).groupby(kernels, sort=False).max().sort_values()[::-1]
        said = [f"{number(times)} times in `{' '.join(kernel).strip()}`" for kernel, times in worst.head(3).items()]
        yield f"Bank conflicts multiply the wavefronts of an access to shared memory at most {listed(said)}"
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
    found = [(dialect, best.loc[dialect]) for dialect in DIALECTS if dialect in best.index]
    said = [f"{100 * row.ffma_share:.0f}% in {title(dialect)} (`{row.stage[:3]}`)" for dialect, row in found]
    yield f"Of the instructions of a main loop in fp32, multiply-adds are at most {listed(said)}"
    waits = rows[(rows["math"] == "fp32") & (rows["ffma_share"] >= compiled.MOSTLY) & rows["clocks"].notna()]
    if len(waits):
        longest = waits[[f"wait_{reason}" for reason in REASONS]].idxmax(axis=1)
        most = (longest == f"wait_{REGISTERS}").sum()
        loops = "fp32 loops that are mostly multiply-adds wait for registers longer than for anything else"
        yield f"By their machine code {most} of {len(waits)} {loops}"
    spilled = rows[rows["spill_bytes"] > 0]
    worst = rows.loc[rows["spill_bytes"].idxmax()]
    most = f", the most by `{worst.stage[:3]}` in {title(worst.dialect)}: {worst.spill_bytes:.0f} bytes"
    yield f"{len(spilled)} of {len(rows)} kernels spill registers" + (most if len(spilled) else "")


def roofs(frame: pd.DataFrame) -> Iterator[str]:
    frame = frame[frame["value"].notna()]
    for column, of in (("by_clock", "what the highest clock allows"), ("datasheet", "its datasheet")):
        own = frame[frame[column].notna() & ((column == "by_clock") | frame["by_clock"].isna())]
        if len(own):
            kinds = own.assign(share=100 * own["value"] / own[column]).groupby(_kind(own), sort=False)["share"]
            said = [f"{kind} {spread(shares, '.0f')}%" for kind, shares in kinds]
            yield f"Of {of}: {listed(said)}"


def _kind(rows: pd.DataFrame) -> list[str]:
    """What a ceiling is of, without the math mode or the kind of access."""
    titles = [TITLES[stage].split(", ") for stage in rows["stage"]]
    return [parts[-1 if math else 0] for parts, math in zip(titles, rows["math"], strict=True)]


def registers(frame: pd.DataFrame) -> Iterator[str]:
    frame = frame[frame["clocks"].notna()]
    loops, rungs = frame[(frame["m"] == 0) & (frame["warps"] == 1)], frames.largest_cube(frame[frame["m"] > 0])
    loops = loops[loops["stage"] == "FFMA"]
    clocks = loops.set_index(["form", "variant"])["clocks"]
    asked = {
        "three registers of one bank": ("parities", "even even even"),
        "of both banks": ("parities", "even odd even"),
        "of both with one kept by `.reuse`": ("reuse", "a; b and c of two banks"),
    }
    if said := [f"{clocks[key]:.2f} of {name.removeprefix('of ')}" for name, key in asked.items() if key in clocks]:
        off = float((loops["clocks"] - loops["predicted"]).abs().max())
        yield f"An FFMA takes, in clocks, {listed(said)}; {len(loops)} loops are within {off:.2f} of the model"
    rungs = rungs[rungs["form"] != ""]
    for best in rungs.sort_values("vs_cublas", ascending=False).head(1).itertuples():
        kernel = rungs.set_index(["stage", "variant", "warps", "form"])["vs_cublas"]
        before = kernel.get((best.stage, best.variant, best.warps, "as it is"))
        was = f", where it has {before:.3f} as it is" if before is not None else ""
        yield f"`{best.stage[:3]}` `{best.variant}` comes closest, {best.form}: {best.vs_cublas:.3f} of cuBLAS{was}"
        times = rungs["clocks"] / rungs["predicted"]
        yield f"Rungs take {spread(times, '.2f')} times the least clocks that their machine code allows"
