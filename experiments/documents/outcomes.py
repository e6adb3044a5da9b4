"""What came of each experiment, in one to three sentences made from its rows; 'faster' and 'slower' are verdicts.

`outcome` is what the report shows beside an experiment's expectation. A part that was not measured is not spoken of.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

import gemm_ref
from experiments.documents import over_shapes, rounding
from experiments.documents.ladder_tables import default_row
from experiments.documents.markdown import listed
from experiments.plots.look.style import number
from experiments.records import compiled, frames, stats, traffic, workloads
from experiments.records.ceilings import TITLES
from experiments.records.rows import COLD, GRAPH, PASS, SKIPPED, SUSTAINED, WARM
from gemm_ref import DIALECTS
from gemm_ref.baselines import BASELINES
from gemm_ref.dialect import BY_HAND, OTHERS
from gemm_ref.sass.schedule import REASONS, REGISTERS
from gemm_ref.stage import DEFAULT_VARIANT

_SPLIT = "s13_split_k"
_LIBRARIES = ("cublas", "numpy_blas")  # beside which an error's growth is shown
_WORDS = {stats.FASTER: "faster", stats.SAME: "level", stats.SLOWER: "slower", stats.UNSURE: "not told apart"}
_VECTORIZED = "s08_vectorized"  # the first rung that loads 16 bytes at a time where rows are aligned


def outcome(name: str, frame: pd.DataFrame) -> str:
    """The sentences on the experiment `name`, whose rows are `frame`; empty where the rows say nothing."""
    sentences = OF[name](frame) if name in OF and not frame.empty else ()
    return " ".join(f"{sentence}." for sentence in sentences)


def in_order(names: Iterable[str]) -> list[str]:
    """The names of experiments in the order in which the report shows them; what has no outcome comes last."""
    order = list(OF)
    return sorted(names, key=lambda name: order.index(name) if name in OF else len(OF))


def trust(found: Iterable[pd.DataFrame]) -> str:
    """How far the timed rows of several experiments can be trusted, by cuBLAS timed against itself."""
    of_each = [frames.controls(frame) for frame in found if "vs_cublas" in frame]
    same, count = (sum(of[place] for of in of_each) for place in (0, 1))
    if not count:
        return ""
    off = max(off for _, own, off in of_each if own)
    return (
        f"cuBLAS was timed against itself beside every problem: {same} of {count} such rows say {stats.SAME}, and "
        f"the one furthest from 1 is off by {100 * off:.2f}%."
    )


def _cost(frame: pd.DataFrame) -> Iterator[str]:
    own = frame[frame["own_lines"].notna()]
    if own.empty:
        return
    lines = (own["own_lines"] + own["shared_lines"]).groupby(own["dialect"], sort=False)
    said = listed(f"{_range(lines.get_group(d), '.0f')} in {_title(d)}" for d in DIALECTS if d in lines.groups)
    yield f"A rung takes this many lines of code, with the files that rungs share: {said}"
    seconds = compiled.defaults(own).groupby("dialect", sort=False)["compile_s"].median()
    said = listed(f"{seconds[d]:.1f} s in {_title(d)}" for d in DIALECTS if seconds.get(d, np.nan) > 0)
    if said:
        yield f"The median kernel, of default variants, compiles in {said} of a processor's time"


def _correctness(frame: pd.DataFrame) -> Iterator[str]:
    run = frame[frame["status"] != SKIPPED]
    bad = run[run["status"] != PASS]
    if len(bad):
        who = listed(dict.fromkeys(f"`{row.stage}` in {_title(row.dialect)}" for row in bad.itertuples()))
        yield f"{len(bad):,} of {len(run):,} checks failed: {who}"
    elif len(run):
        kernels = len(run[["stage", "variant", "dialect", "math"]].drop_duplicates())
        yield f"Yes: all {len(run):,} checks of {kernels} kernels passed"
        if run["bound_share"].notna().any():
            yield f"The largest error of an element is {100 * run['bound_share'].max():.0f}% of what is allowed"


def _ladder(frame: pd.DataFrame) -> Iterator[str]:
    at_size = frames.defaults(frames.largest_cube(frame))
    if frames.rungs(at_size).empty:
        yield from _of_the_cpu(frame)
        return
    steps = {dialect: _steps(at_size, "fp32", dialect) for dialect in DIALECTS}
    yield f"At {at_size['m'].iloc[0]} a rung is faster than the one below it at {_counts(steps)}"
    others = [f"`{stage[:3]}`" for stage, verdict in steps[BY_HAND].items() if verdict != stats.FASTER]
    if others:
        yield f"Not faster in {_title(BY_HAND)}: {listed(others)}"
    for dialect in OTHERS:
        verdicts = _beside_hand(at_size, dialect)
        said = [f"{word} {verdicts.count(verdict)} times" for verdict, word in _WORDS.items() if verdict in verdicts]
        if said:
            yield f"Beside {_title(BY_HAND)}'s rung, {_title(dialect)}'s is {listed(said)}"


def _squares(frame: pd.DataFrame) -> Iterator[str]:
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
    said = [f"`{stage[:3]}` {_span([row.m for row in rows])}" for stage, rows in runs]
    yield f"The fastest rung changes with the size: {listed(said)}"
    high = own[own["stage"] >= _VECTORIZED]
    shares = {_title(dialect): frames.beside_powers(rows) for dialect, rows in high.groupby("dialect", sort=False)}
    library = frames.beside_powers(frames.timed(frame)[lambda rows: rows["backend"] == "cublas"])
    shares = {name: found for name, found in (shares | {"cuBLAS": library}).items() if found}
    if shares:
        least_and_most = {name: (min(found.values()), max(found.values())) for name, found in shares.items()}
        said = [f"{100 * low:.0f} to {100 * high:.0f}% in {name}" for name, (low, high) in least_and_most.items()]
        yield f"One off a power of two, this much of the speed is left from `{_VECTORIZED[:3]}` on: {listed(said)}"


def _roofs(frame: pd.DataFrame) -> Iterator[str]:
    frame = frame[frame["value"].notna()]
    for column, of in (("by_clock", "what the highest clock allows"), ("datasheet", "its datasheet")):
        own = frame[frame[column].notna() & ((column == "by_clock") | frame["by_clock"].isna())]
        if len(own):
            kinds = own.assign(share=100 * own["value"] / own[column]).groupby(_kind(own), sort=False)["share"]
            said = [f"{kind} {_range(shares, '.0f')}%" for kind, shares in kinds]
            yield f"Of {of}: {listed(said)}"


def _kind(rows: pd.DataFrame) -> list[str]:
    """What a ceiling is of, without the math mode or the kind of access."""
    titles = [TITLES[stage].split(", ") for stage in rows["stage"]]
    return [parts[-1 if math else 0] for parts, math in zip(titles, rows["math"], strict=True)]


def _registers(frame: pd.DataFrame) -> Iterator[str]:
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
        yield f"Rungs take {_range(times, '.2f')} times the least clocks that their machine code allows"


def _modes(frame: pd.DataFrame) -> Iterator[str]:
    for where, timed in (("", frames.timed(frame)), (" on tensor cores", frames.on_tensor_cores(frame))):
        rungs = frames.rungs(timed)
        for size in sorted({rungs["m"].min(), rungs["m"].max()} if len(rungs) else ()):
            who = (rungs, timed[timed["backend"] == "cublas"])
            ours, theirs = (frames.of_cold(rows[rows["m"] == size]) for rows in who)
            if {WARM, GRAPH} <= set(ours):
                both = {WARM, GRAPH} <= set(theirs)
                beside = f" (cuBLAS {100 * theirs[WARM]:.0f}% and {100 * theirs[GRAPH]:.0f}%)" if both else ""
                yield (
                    f"At {size}{where} the median rung takes {100 * ours[WARM]:.0f}% of its cold time with a warm "
                    f"cache and {100 * ours[GRAPH]:.0f}% in a CUDA graph{beside}"
                )


def _timers(frame: pd.DataFrame) -> Iterator[str]:
    frame = frame[frame["median_us"].notna() & (frame["m"] == frame["m"].min())]
    for math in frames.maths_of(frame):
        own = frame[frame["math"] == math]
        library = own[own["backend"] == "cublas"].set_index("mode")["median_us"]
        shares = frames.rungs(own).groupby("mode")["vs_cublas"].max().dropna()
        if COLD not in library or shares.empty:
            continue
        others = listed(f"{100 * us / library[COLD]:.0f}% ({way})" for way, us in library.items() if way != COLD)
        yield (
            f"At {own['m'].iloc[0]} in {math} cuBLAS takes, of its time from a cold cache, {others}; the best rung has "
            f"{100 * shares.min():.0f}% of its speed by one timer ({shares.idxmin()}) and {100 * shares.max():.0f}% by "
            f"another ({shares.idxmax()})"
        )


def _host(frame: pd.DataFrame) -> Iterator[str]:
    own = frame[frame["median_us"].notna()]
    own = own[own["m"] == own["m"].min()]
    rungs, library = frames.rungs(own), own[own["dialect"] == ""]
    if rungs.empty:
        return
    medians = rungs.groupby("dialect", sort=False)["median_us"].median()
    said = listed(f"{medians[d]:.1f} µs in {_title(d)}" for d in DIALECTS if d in medians)
    beside = f"; torch's own takes {_range(library['median_us'], '.1f')} µs" if len(library) else ""
    yield f"A call at {own['m'].iloc[0]} costs the host {said}, the median of the rungs{beside}"
    worst = rungs.loc[rungs["median_us"].idxmax()]
    yield f"The most is {worst.median_us:.1f} µs, of `{worst.stage}` in {_title(worst.dialect)}"


def _tensor_cores(frame: pd.DataFrame) -> Iterator[str]:
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
        said = listed(f"{_range(shares.get_group(math), '.2f')} in {math}" for math in maths)
        yield f"B by rows takes this many times as long as B by columns: {said}"


def _energy(frame: pd.DataFrame) -> Iterator[str]:
    own = frame[(frame["backend"] == "cublas") & (frame["mode"] == SUSTAINED) & frame["tflops"].notna()]
    own = own[own["m"] == own["m"].max()]
    said = []
    for math in frames.maths_of(own):
        of = own[own["math"] == math].set_index("inputs")
        if {"zeros", "normal"} <= set(of.index):
            (a, b), (p, q) = (of.loc[["zeros", "normal"], column] for column in ("tflops", "power_w"))
            said.append(f"{number(a)} and {number(b)} TFLOP/s in {math} ({p:.0f} and {q:.0f} W)")
    if said:
        size = f"At {own['m'].iloc[0]}, run back to back for seconds"
        yield f"{size}, cuBLAS reaches on zeros and on normal numbers {listed(said)}"


def _epilogues(frame: pd.DataFrame) -> Iterator[str]:
    frame = frames.finished(frame)
    if frame.empty:
        return
    first = frame.iloc[0]
    own = frames.at(frame[frame["math"] == first["math"]], (first["m"], first["n"], first["k"]))
    for form, rows in own[own["form"].isin(("bias", "bias, gelu", "c"))].groupby("form", sort=False):
        fused = rows[rows["how"] == "fused"]
        who = [_title(dialect) if dialect else "cuBLASLt" for dialect in fused["dialect"]]
        costs = list(zip(fused["over_plain"], who, strict=True))
        costs += [(share, "kernels of their own") for share in rows.loc[rows["how"] == "in turn", "over_plain"]]
        said = [f"{100 * share - 100:.1f}% in {where}" for share, where in costs]
        yield f"{form} at {first['m']} x {first['n']} x {first['k']} in {first['math']} costs {listed(said)}"


def _accuracy(frame: pd.DataFrame) -> Iterator[str]:
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
    said = [f"{_range(rows['growth'], '.0f')} times in {who}" for who, rows in groups.items() if len(rows)]
    yield (
        f"From K = {low} to {high}, over which sqrt(K) grows {np.sqrt(high / low):.0f} times, the error in fp32 grows "
        f"{listed(said)}"
    )
    said = [f"{library[math]:.2f} times in {math}" for math in gemm_ref.MATHS if math in library and math != "fp32"]
    if said:
        yield f"On tensor cores that of cuBLAS grows {listed(said)}"


def _memory(frame: pd.DataFrame) -> Iterator[str]:
    rows = traffic.best_view(frame[frame["status"] == PASS])
    rows = rows[(rows["dialect"] == BY_HAND) & (rows["math"] == "fp32")]
    loads = rows[(rows["space"] == "global") & (rows["kind"] == "load")]
    if loads.empty:
        return
    asked = (loads["sectors"] / loads["requests"]).groupby(loads["stage"]).max()
    said = [f"{asked[stage]:.3g} sectors in `{stage[:3]}`" for stage in list(asked.index)[:2]]
    yield f"In {_title(BY_HAND)}, the dearest load of a warp asks for {listed(said)}"
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


def _instructions(frame: pd.DataFrame) -> Iterator[str]:
    rows = compiled.at_one_size(frame[frame["arch"] == compiled.MAIN_ARCHITECTURE])
    fp32 = compiled.defaults(rows[rows["math"] == "fp32"])
    if fp32.empty:
        return
    best = fp32.loc[fp32.groupby("dialect")["ffma_share"].idxmax()].set_index("dialect")
    found = [(dialect, best.loc[dialect]) for dialect in DIALECTS if dialect in best.index]
    said = [f"{100 * row.ffma_share:.0f}% in {_title(dialect)} (`{row.stage[:3]}`)" for dialect, row in found]
    yield f"Of the instructions of a main loop in fp32, multiply-adds are at most {listed(said)}"
    waits = rows[(rows["math"] == "fp32") & (rows["ffma_share"] >= compiled.MOSTLY) & rows["clocks"].notna()]
    if len(waits):
        longest = waits[[f"wait_{reason}" for reason in REASONS]].idxmax(axis=1)
        most = (longest == f"wait_{REGISTERS}").sum()
        loops = "fp32 loops that are mostly multiply-adds wait for registers longer than for anything else"
        yield f"By their machine code {most} of {len(waits)} {loops}"
    spilled = rows[rows["spill_bytes"] > 0]
    worst = rows.loc[rows["spill_bytes"].idxmax()]
    most = f", the most by `{worst.stage[:3]}` in {_title(worst.dialect)}: {worst.spill_bytes:.0f} bytes"
    yield f"{len(spilled)} of {len(rows)} kernels spill registers" + (most if len(spilled) else "")


def _of_the_cpu(frame: pd.DataFrame) -> Iterator[str]:
    own = frame[(frame["dialect"] == "") & frame["tflops"].notna()]
    if len(own):
        best = own.loc[own["tflops"].idxmax()]
        title = BASELINES[best.stage].title
        yield f"Only libraries of the CPU were timed; {title} reaches {number(best.tflops)} TFLOP/s at {best.m}"


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


def _written(math: str, dialect: str) -> list[gemm_ref.Stage]:
    return [stage for stage in gemm_ref.stages_in(math) if dialect in stage.dialects]


def _counts(steps: Mapping[str, Mapping[Any, str]]) -> str:
    found = ((dialect, list(verdicts.values())) for dialect, verdicts in steps.items() if verdicts)
    return listed(f"{said.count(stats.FASTER)} of {len(said)} steps in {_title(dialect)}" for dialect, said in found)


def _range(values: pd.Series, form: str) -> str:
    """`0.98 to 1.03`, or one number where both are written alike."""
    low, high = (format(value, form) for value in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"


def _span(sizes: Sequence[int]) -> str:
    return f"at {sizes[0]}" if len(sizes) == 1 else f"from {sizes[0]} to {sizes[-1]}"


def _title(dialect: str) -> str:
    return DIALECTS[dialect].title


# In the order of the report: speed first, then what it costs, whether it is right, and why.
OF: Mapping[str, Callable[[pd.DataFrame], Iterable[str]]] = MappingProxyType(
    {
        "ladder": _ladder,
        "tensor_cores": _tensor_cores,
        "squares": _squares,
        "shapes": over_shapes.shapes,
        "choice": over_shapes.choice,
        "cost": _cost,
        "host": _host,
        "correctness": _correctness,
        "accuracy": _accuracy,
        "rounding": rounding.outcome,
        "emulation": rounding.of_emulation,
        "roofs": _roofs,
        "registers": _registers,
        "memory": _memory,
        "instructions": _instructions,
        "modes": _modes,
        "timers": _timers,
        "energy": _energy,
        "epilogues": _epilogues,
    }
)
