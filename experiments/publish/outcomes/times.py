"""What came of the experiments on how times are taken, and on what changes them, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from experiments.publish.numbers import format_fixed, format_number, format_percent, format_range, format_size
from experiments.publish.wording import dialect_title, join_dialects, join_words
from experiments.records import frames
from experiments.records.rows import COLD, GRAPH, SUSTAINED, WARM


def modes(frame: pd.DataFrame) -> Iterator[str]:
    for where, timed in (("", frames.timed(frame)), (" on tensor cores", frames.on_tensor_cores(frame))):
        rungs = frames.rungs(timed)
        for size in sorted({rungs["m"].min(), rungs["m"].max()} if len(rungs) else ()):
            contenders = (rungs, timed[timed["backend"] == "cublas"])
            ours, theirs = (frames.time_over_cold(rows[rows["m"] == size]) for rows in contenders)
            if {WARM, GRAPH} <= set(ours):
                warm, graph = (format_percent(ours[mode], 0) for mode in (WARM, GRAPH))
                known = {WARM, GRAPH} <= set(theirs)
                beside = " and ".join(format_percent(theirs[mode], 0) for mode in (WARM, GRAPH)) if known else ""
                yield (
                    f"At {size}{where} the median rung takes {warm} of its cold time with a warm cache and {graph} in "
                    "a CUDA graph" + (f" (cuBLAS {beside})" if beside else "")
                )


def timers(frame: pd.DataFrame) -> Iterator[str]:
    frame = frame[frame["median_us"].notna() & (frame["m"] == frame["m"].min())]
    for math in frames.maths_of(frame):
        own = frame[frame["math"] == math]
        library = own[own["backend"] == "cublas"].set_index("mode")["median_us"]
        shares = frames.rungs(own).groupby("mode")["vs_cublas"].max().dropna()
        if COLD not in library or shares.empty:
            continue
        others = [f"{format_percent(us / library[COLD], 0)} ({mode})" for mode, us in library.items() if mode != COLD]
        yield (
            f"At {own['m'].iloc[0]} in {math} cuBLAS takes, of its time from a cold cache, {join_words(others)}; the "
            f"best rung has {format_percent(shares.min(), 0)} of its speed by one timer ({shares.idxmin()}) and "
            f"{format_percent(shares.max(), 0)} by another ({shares.idxmax()})"
        )


def host(frame: pd.DataFrame) -> Iterator[str]:
    own = frame.dropna(subset="median_us")
    own = own[own["m"] == own["m"].min()]
    rungs, library = frames.rungs(own), own[own["dialect"] == ""]
    if rungs.empty:
        return
    medians = rungs.groupby("dialect", sort=False)["median_us"].median()
    costs = join_dialects({dialect: f"{format_fixed(us, 1)} µs" for dialect, us in medians.items()})
    torchs = format_range(library["median_us"], lambda us: format_fixed(us, 1)) if len(library) else ""
    beside = f"; torch's own takes {torchs} µs" if torchs else ""
    yield f"A call at {own['m'].iloc[0]} costs the host {costs}, the median of the rungs{beside}"
    worst = rungs.loc[rungs["median_us"].idxmax()]
    yield f"The most is {format_fixed(worst.median_us, 1)} µs, of `{worst.stage}` in {dialect_title(worst.dialect)}"


def energy(frame: pd.DataFrame) -> Iterator[str]:
    own = frame[(frame["backend"] == "cublas") & (frame["mode"] == SUSTAINED) & frame["tflops"].notna()]
    own = own[own["m"] == own["m"].max()]
    speeds = []
    for math in frames.maths_of(own):
        rows = own[own["math"] == math].set_index("inputs")
        if {"zeros", "normal"} <= set(rows.index):
            zeros, normal = rows.loc["zeros"], rows.loc["normal"]
            watts = f"{format_fixed(zeros['power_w'])} and {format_fixed(normal['power_w'])} W"
            speed = f"{format_number(zeros['tflops'])} and {format_number(normal['tflops'])} TFLOP/s"
            speeds.append(f"{speed} in {math} ({watts})")
    if speeds:
        size = f"At {own['m'].iloc[0]}, run back to back for seconds"
        yield f"{size}, cuBLAS reaches on zeros and on normal numbers {join_words(speeds)}"


def epilogues(frame: pd.DataFrame) -> Iterator[str]:
    frame = frames.with_epilogue(frame)
    if frame.empty:
        return
    first = frame.iloc[0]
    own = frames.at(frame[frame["math"] == first["math"]], (first["m"], first["n"], first["k"]))
    for form, rows in own[own["form"].isin(("bias", "bias, gelu", "c"))].groupby("form", sort=False):
        fused = rows[rows["how"] == "fused"]
        names = [dialect_title(dialect) if dialect else "cuBLASLt" for dialect in fused["dialect"]]
        costs = list(zip(fused["over_plain"], names, strict=True))
        costs += [(share, "kernels of their own") for share in rows.loc[rows["how"] == "in turn", "over_plain"]]
        each = [f"{format_percent(share - 1, 1)} in {name}" for share, name in costs]
        yield f"{form} at {format_size(first)} in {first['math']} costs {join_words(each)}"
