"""What came of `registers`, in sentences made from its rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pandas as pd

from experiments.publish.numbers import format_fixed, format_range
from experiments.publish.wording import join_words
from experiments.records import frames

_two_places = partial(format_fixed, places=2)


def describe(frame: pd.DataFrame) -> Iterator[str]:
    """Sentences on the rows of the study; none where the rows say nothing."""
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
