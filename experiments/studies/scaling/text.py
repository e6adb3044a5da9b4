"""What docs/scaling.md says from scaling.csv: each way of a product that is divided, and the model's error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from experiments.publish.drawing import style
from experiments.publish.numbers import format_fixed, format_number, format_percent_range
from experiments.publish.table import Table
from experiments.publish.wording import NOT_MEASURED, join_words
from experiments.records import scaling, stats, store
from experiments.records.controls import Controls, explained
from experiments.records.rows import PASS, SKIPPED, STRONG
from gemm_ref.compute import MATHS
from gemm_ref.distributed.layouts import FUSED, IN_TURN, LAYOUTS, OVERLAPPED, WAYS

_WAYS, _MODEL = "scaling-ways", "scaling-model"
BLOCKS = dict.fromkeys((_WAYS, _MODEL), "scaling.md")  # block -> the page of docs/ that has it


def block(name: str, published: Path) -> str:
    """The Markdown of one of BLOCKS, from the published card of which most were measured in a host."""
    read = [(folder, store.read(folder, "scaling")) for folder in store.published(published.parent)]
    found = [(folder, rows, strong) for folder, rows in read if len(strong := _strong(scaling.timed(rows)))]
    if not found:
        return NOT_MEASURED
    folder, rows, strong = max(found, key=lambda each: each[2]["gpus"].max())
    return _ways(strong, Controls(rows), folder) if name == _WAYS else _model(scaling.timed(rows), folder)


def _strong(frame: pd.DataFrame) -> pd.DataFrame:
    """What was divided, in each math mode among the most GPUs."""
    return frame[(frame["scaling"] == STRONG) & (frame["gpus"] == frame.groupby("math")["gpus"].transform("max"))]


def _ways(own: pd.DataFrame, controls: Controls, folder: Path) -> str:
    """A line for each math mode, layout and size."""
    head = ["math", "GPUs", "layout", "M = N = K", f"{IN_TURN}, ms", f"{FUSED}, ms"]
    head += [f"{OVERLAPPED}, cuBLAS, ms", f"{OVERLAPPED}, ours, ms", f"beside {FUSED}"]
    lines = []
    places = [own["math"].map(list(MATHS).index), own["layout"].map(LAYOUTS.index), own["m"]]
    for _, rows in own.groupby(places):
        math, gpus, layout, size = rows[["math", "gpus", "layout", "m"]].iloc[0]
        library, ours = rows[rows["dialect"] == ""].set_index("way"), rows[rows["dialect"] != ""]
        best = ours[ours["way"] == OVERLAPPED].nsmallest(1, "median_us")
        if OVERLAPPED not in library.index or best.empty:
            continue
        best, fused = best.iloc[0], library.loc[FUSED] if FUSED in library.index else None
        cells = [_ms(library.loc[IN_TURN]), "" if fused is None else _ms(fused)]
        cells += [f"{_ms(library.loc[OVERLAPPED])}, {_times(library.loc[OVERLAPPED])}"]
        cells += [f"{_ms(best)}, {_times(best)} `{best['stage'][:3]}`"]
        verdict = "" if fused is None else _verdict(library.loc[OVERLAPPED], fused)
        mark = controls.mark(math=math, layout=layout, scaling=STRONG, gpus=gpus, m=size)
        lines.append([math, str(gpus), layout, f"{size}{mark}", *cells, verdict])
    said = (
        f"M = N = K divided among so many GPUs; '{IN_TURN}' and '{FUSED}' multiply with cuBLAS. 1.95x: so many times "
        "the speed of the same product on one of these GPUs, in the same rounds. The last column has the overlapped "
        "way beside torch's fused operator, both with cuBLAS."
    )
    caption = explained(store.caption(own, folder), *(size for _, _, _, size, *_ in lines))
    return f"{said}\n\n{Table.of(head, lines, 3).to_markdown()}\n\n{caption}."


def _model(frame: pd.DataFrame, folder: Path) -> str:
    """How far the model is from what was measured."""
    found = scaling.compared(frame, scaling.models(folder))
    off = 100 * found["error"].abs()
    worst = found.loc[off.idxmax()]
    who = worst["stage"][:3] if worst["dialect"] else style.label_of(worst["stage"])
    kernel = f"{worst['layout']} {worst['way']} with {who} in {worst['math']} on {worst['gpus']} GPUs"
    return (
        f"At {len(found)} measured points it is off by {format_fixed(off.median(), 1)}% in the median and by more than "
        f"10% at {(off > 10).sum()}: at worst {format_fixed(off.max(), 1)}%, {kernel} at "
        f"{worst['m']} x {worst['n']} x {worst['k']}."
    )


def _ms(row: pd.Series) -> str:
    return format_number(row["median_us"] / 1e3)


def _times(row: pd.Series) -> str:
    return f"{format_fixed(row['gpus'] * row['efficiency'], 2)}x"


def _verdict(row: pd.Series, beside: pd.Series) -> str:
    """How the speed of `row` stands beside another of the same rounds, both of which were beside cuBLAS in turn."""
    ratio = stats.change(*(stats.Ratio(x["vs_cublas"], x["vs_cublas_low"], x["vs_cublas_high"]) for x in (beside, row)))
    return f"{stats.verdict(ratio)} {format_fixed(ratio.median, 2)}"


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Yields the sentences about the result; none where the rows say nothing."""
    own = scaling.timed(frame)
    if own.empty:
        run = frame[frame["way"].isin(WAYS) & (frame["status"] != SKIPPED)]
        if len(run):
            right = (run["status"] == PASS).sum()
            yield f"In {run['gpus'].max()} processes {right} of {len(run)} ways are right; without GPUs none is timed"
        return
    own = own[(own["gpus"] == own["gpus"].max()) & (own["scaling"] == STRONG)]
    best = own.loc[own.groupby(["layout", "math", "m", "way"])["median_us"].idxmin()]
    hardest = best.loc[best["efficiency"].idxmin(), "math"]  # whose links cost most
    for layout in (layout for layout in LAYOUTS if (best["layout"] == layout).any()):
        rows = best[(best["layout"] == layout) & (best["math"] == hardest)]
        kept = [f"{_format_kept(rows, way)} {way}" for way in WAYS if (rows["way"] == way).any()]
        yield (
            f"On {rows['gpus'].max()} GPUs, {layout} with a product in {hardest} keeps {join_words(kept)} of the speed "
            f"of a GPU that is alone, from {rows['m'].min()} to {rows['m'].max()}"
        )
    if len(others := best[(best["math"] != hardest) & (best["way"] == OVERLAPPED)]):
        maths = join_words(dict.fromkeys(others["math"]))
        yield f"In {maths} {_format_kept(others, OVERLAPPED)} are kept {OVERLAPPED}"


def _format_kept(rows: pd.DataFrame, way: str) -> str:
    """The smallest and the largest share of a way."""
    shares = rows.loc[rows["way"] == way, "efficiency"]
    return format_percent_range(shares.min(), shares.max(), 0)
