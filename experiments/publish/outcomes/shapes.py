"""What came of `shapes` and `choice`, in sentences made from their rows: part of `experiments.publish.outcomes`."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from experiments.publish.drawing.style import number
from experiments.publish.markdown import listed
from experiments.publish.outcomes.words import title
from experiments.records import frames, stats
from experiments.records.controls import Controls
from gemm_ref import DIALECTS


def shapes(frame: pd.DataFrame) -> Iterator[str]:
    """Sentences on rows of `shapes`, in fp32 and on tensor cores; none where no rung was timed off the cubes."""
    yield from _fp32(frame)
    means, worst = {}, []
    for math in frames.maths_of(frames.on_tensor_cores(frame)):
        best = frames.leaders(_judged(frame, math))
        if len(best):
            shares = best.groupby("dialect")["vs_cublas"]
            found = [shares.get_group(name) for name in DIALECTS if name in shares.groups]
            means[math] = " / ".join(f"{100 * stats.geometric_mean(of):.0f}" for of in found)
            worst.append(best.loc[best["vs_cublas"].idxmin()])
    if worst:
        said = listed(f"{shares}% in {frames.in_mode(math)}" for math, shares in means.items())
        least = min(worst, key=lambda row: row["vs_cublas"])
        where = f"{least['math']}, {title(least['dialect'])}, {_size(least)}"
        titles = " / ".join(each.title for each in DIALECTS.values())
        yield (
            f"On tensor cores the best rungs in {titles} reach, of cuBLAS' speed, on average {said}, and at worst "
            f"{number(100 * least['vs_cublas'])}% ({where})"
        )


def _judged(frame: pd.DataFrame, math: str) -> pd.DataFrame:
    """The timed rows of one math mode off the cubes that can be judged, where the last rung was timed."""
    timed = frames.timed(frame, math)
    return frames.with_last_rung(frames.off_cubes(Controls(timed).passed(timed)))


def _fp32(frame: pd.DataFrame) -> Iterator[str]:
    sizes, timed = list(frames.SIZES), _judged(frame, "fp32")
    own = frames.rungs(timed)
    if own.empty:
        return
    best = own.loc[own.groupby(sizes)["median_us"].idxmin()]
    faster, same = ((best["verdict"] == word).sum() for word in (stats.FASTER, stats.SAME))
    yield f"Of {len(best)} shapes, no cubes, the best rung is faster than cuBLAS at {faster} and level at {same}"
    by_dialect = frames.leaders(own).groupby("dialect")
    found = [(name, by_dialect.get_group(name)) for name in DIALECTS if name in by_dialect.groups]
    reached = [
        f"{100 * stats.geometric_mean(rows['vs_cublas']):.0f}% in {title(name)} (at worst "
        f"{number(100 * rows['vs_cublas'].min())}%, {_size(rows.loc[rows['vs_cublas'].idxmin()])})"
        for name, rows in found
    ]
    yield f"The best rung's share of cuBLAS is on average (geometric mean) {listed(reached)}"
    alone = frames.for_all(own)
    said = [f"`{alone[d][0][:3]}` in {title(d)} {100 * alone[d][1]:.0f}%" for d in DIALECTS if d in alone]
    yield f"One rung for all of them reaches at most: {listed(said)}"
    often = best["stage"].value_counts()
    counts = [f"`{stage[:3]}` at {count}" for stage, count in often.head(3).items()]
    yield f"The best is most often {listed(counts)}"
    library = timed[timed["backend"] == "cublaslt"]
    missed = library[library["verdict"] == stats.FASTER][sizes].drop_duplicates()
    if len(library):
        tried = len(library[sizes].drop_duplicates())
        yield f"At {len(missed)} of {tried} another algorithm of cuBLASLt is faster than the one that cuBLAS chose"


def choice(frame: pd.DataFrame) -> Iterator[str]:
    """Sentences on rows of `choice`; none where no chosen candidate was timed at a shape that no model has seen."""
    for math, own in frames.rungs(frames.held_out(frames.tried(frame))).groupby("math", sort=False):
        yield from _choice(str(math), own)


def _choice(math: str, own: pd.DataFrame) -> Iterator[str]:
    found = frames.regrets(own)
    found = found[found["regret"].notna()]
    if found.empty:
        return
    worst = {name: rows.loc[rows["regret"].idxmax()] for name, rows in found.groupby("dialect")}
    said = [
        f"{percent_over(found[found['dialect'] == name]['regret'])} in {title(name)} (at worst "
        f"{number(100 * worst[name]['regret'])}%, {_size(worst[name])})"
        for name in DIALECTS
        if name in worst
    ]
    count = len(found[list(frames.SIZES)].drop_duplicates())
    yield (
        f"At {count} shapes in {math} that the model was not fitted on, what it chooses takes longer than the fastest "
        f"candidate by, on average (geometric mean), {listed(said)}"
    )
    off = 100 * (own["predicted_us"] / own["median_us"] - 1).abs().median()
    tried = f"{len(own)} of {found['candidates'].sum():.0f} candidates were tried"
    yield f"A predicted time is off by {off:.0f}% (median); {tried}, those predicted within 3 times the best"
    tuned = found[found["tuned"].notna()]
    if len(tuned):
        seconds = number(tuned["autotune_s"].median())
        yield f"Triton's autotune takes {seconds} s for a shape (median), and loses {percent_over(tuned['tuned'])}"


def percent_over(losses: pd.Series) -> str:
    """The geometric mean of times that are longer by these shares, in %."""
    return f"{100 * (stats.geometric_mean(1 + losses) - 1):.1f}%"


def _size(row: pd.Series) -> str:
    return " x ".join(str(row[name]) for name in frames.SIZES)
