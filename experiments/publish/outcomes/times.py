"""What came of the experiments on how times are taken, and on what changes them, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from experiments.publish.drawing.style import number
from experiments.publish.markdown import listed
from experiments.publish.outcomes.words import spread, title
from experiments.records import frames
from experiments.records.rows import COLD, GRAPH, SUSTAINED, WARM
from gemm_ref import DIALECTS


def modes(frame: pd.DataFrame) -> Iterator[str]:
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


def timers(frame: pd.DataFrame) -> Iterator[str]:
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


def host(frame: pd.DataFrame) -> Iterator[str]:
    own = frame.dropna(subset="median_us")
    own = own[own["m"] == own["m"].min()]
    rungs, library = frames.rungs(own), own[own["dialect"] == ""]
    if rungs.empty:
        return
    medians = rungs.groupby("dialect", sort=False)["median_us"].median()
    said = listed(f"{medians[d]:.1f} µs in {title(d)}" for d in DIALECTS if d in medians)
    beside = f"; torch's own takes {spread(library['median_us'], '.1f')} µs" if len(library) else ""
    yield f"A call at {own['m'].iloc[0]} costs the host {said}, the median of the rungs{beside}"
    worst = rungs.loc[rungs["median_us"].idxmax()]
    yield f"The most is {worst.median_us:.1f} µs, of `{worst.stage}` in {title(worst.dialect)}"


def energy(frame: pd.DataFrame) -> Iterator[str]:
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


def epilogues(frame: pd.DataFrame) -> Iterator[str]:
    frame = frames.finished(frame)
    if frame.empty:
        return
    first = frame.iloc[0]
    own = frames.at(frame[frame["math"] == first["math"]], (first["m"], first["n"], first["k"]))
    for form, rows in own[own["form"].isin(("bias", "bias, gelu", "c"))].groupby("form", sort=False):
        fused = rows[rows["how"] == "fused"]
        who = [title(dialect) if dialect else "cuBLASLt" for dialect in fused["dialect"]]
        costs = list(zip(fused["over_plain"], who, strict=True))
        costs += [(share, "kernels of their own") for share in rows.loc[rows["how"] == "in turn", "over_plain"]]
        said = [f"{100 * share - 100:.1f}% in {where}" for share, where in costs]
        yield f"{form} at {first['m']} x {first['n']} x {first['k']} in {first['math']} costs {listed(said)}"
