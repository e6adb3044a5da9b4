"""What `rounding` and `emulation` found: blocks of their pages in docs/, and outcomes in sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

import gemm_ref
from experiments.publish.numbers import format_error, format_fixed, format_percent
from experiments.publish.table import Table
from experiments.publish.wording import NOT_MEASURED, join_words
from experiments.records import frames, store
from experiments.records.rows import HARDWARE, PASS, PREDICTED
from gemm_ref.dialect import BY_HAND
from gemm_ref.ptx.units.tensor_core import sum_of

EMULATION = "emulation_errors"
BLOCKS = ("rounding_instructions", "rounding_rungs", EMULATION)
_INPUTS = ["inputs", "k"]
_WHO = ["stage", "variant", "dialect", "math", "m", "n", "k", "inputs"]
_FEW_DEPTHS = (256, 4096, 65536, 262144)  # that the table of errors shows


def block(name: str, published: Path) -> str:
    """The Markdown of one block, by name."""
    if name == EMULATION:
        return _emulation(published)
    frame = store.read(published, "rounding")
    text = (_instructions if name == BLOCKS[0] else _rungs)(frame)
    measured = frame[(frame["view"] == HARDWARE) & (frame["vectors"].notna() == (name == BLOCKS[0]))]
    return f"{text}\n\n{store.caption(measured, published)}." if text else NOT_MEASURED


def _instructions(frame: pd.DataFrame) -> str:
    rows = []
    for row in frame[frame["vectors"].notna()].itertuples():
        instruction, kind = row.stage.split()[:2]
        depth = re.findall(r"k(\d+)", row.stage)[0]
        converted = instruction == "mma" and kind in ("e4m3", "e5m2")
        how = sum_of("mma", "f16", 16) if converted else sum_of(instruction, kind, int(depth))
        group = f"2 x {how.group}, then c" if converted else str(how.group)
        kept = "11, rounded" if row.stage.endswith("f16 sums") else f"{how.result_bits + 1}"
        rows.append(
            [f"`{row.stage}`", group, str(how.fraction), kept, format_fixed(row.vectors), format_fixed(row.mismatches)]
        )
    head = ("instruction", "products a sum", "bits below the largest", "bits of the result", "vectors", "other bits")
    return Table.of(head, rows).to_markdown() if rows else ""


def _rungs(frame: pd.DataFrame) -> str:
    """The errors of each rung in CUDA, predicted and measured."""
    own = frame[(frame["dialect"] == "cuda") & frame["k"].isin(_FEW_DEPTHS) & frame["rel_error"].notna()]
    if own.empty:
        return ""
    depths = sorted(set(own["k"]))
    rows = []
    for (math, stage), of in own.groupby(["math", "stage"]):
        errors = of.set_index(["k", "view"])["rel_error"]
        cells = [" / ".join(_error(errors, k, view) for view in (PREDICTED, HARDWARE)) for k in depths]
        rows.append([math, f"`{stage}`", *cells])
    maths = [*gemm_ref.MATHS]
    rows.sort(key=lambda row: (maths.index(row[0]), row[1]))
    return Table.of(["mode", "rung", *(f"K = {k}" for k in depths)], rows, 2).to_markdown()


def _error(errors: pd.Series, k: int, view: str) -> str:
    return format_error(errors[k, view], 4) if (k, view) in errors.index else "–"


def pair_products(frame: pd.DataFrame) -> pd.DataFrame:
    """A line for each product that was both predicted and made on the GPU; columns end in _predicted and _hardware.

    Only those that both dealt alike: shares of K that are added in another order have other bits.
    """
    frame = frame[frame["rel_error"].notna() & (frame["status"] == PASS)]
    views = [frame[frame["view"] == view] for view in (PREDICTED, HARDWARE)]
    both = views[0].merge(views[1], on=_WHO, suffixes=("_predicted", "_hardware"))
    return both[both["dealt_predicted"] == both["dealt_hardware"]]


def outcome(frame: pd.DataFrame) -> Iterator[str]:
    alone = frame[frame["vectors"].notna()]
    if len(alone):
        each = join_words(format_fixed(count) for count in sorted(set(alone["vectors"])))
        wrong = f"{format_fixed(alone['mismatches'].sum())} sums have other bits than predicted"
        yield f"Of {len(alone)} instructions with {each} random vectors each, {wrong}"
    both = pair_products(frame)
    if len(both):
        same = (both["checksum_predicted"] == both["checksum_hardware"]).sum()
        off = np.abs(both["rel_error_predicted"] / both["rel_error_hardware"] - 1).max()
        yield f"Of {len(both)} products that both dealt alike, {same} have the same bits as on the GPU, in all of C"
        yield f"The predicted error is off by at most {100 * off:.2g}%"
    own = frame[(frame["view"] == PREDICTED) & frame["rel_error"].notna() & (frame["dialect"] == "cuda")]
    low, high = own["k"].min(), own["k"].max()
    if low < high:
        errors = own.pivot_table(index="math", columns="k", values="rel_error", aggfunc="max")
        said = [
            f"{format_fixed(errors.loc[math, high] / errors.loc[math, low], 2)} times in {math}"
            for math in frames.maths_of(own)
        ]
        yield f"From K = {low} to {high} the largest error of a CUDA rung grows {join_words(said)}"


def _emulation(published: Path) -> str:
    """The Markdown of the table, measured where it was, else predicted."""
    frame = _own(store.read(published, "emulation"))
    if frame.empty:
        return NOT_MEASURED
    view = HARDWARE if (frame["view"] == HARDWARE).any() else PREDICTED
    frame = frame[frame["view"] == view]
    maths = frames.maths_of(frame)
    rows = [
        [str(inputs), str(k), *(_lost(own[own["math"] == math]) for math in maths)]
        for (inputs, k), own in frame.groupby(_INPUTS, sort=False)
    ]
    first = frame.iloc[0]
    said = (
        f"C of {first.m} x {first.n}, {'on the GPU' if view == HARDWARE else 'predicted'}: Frobenius / largest element "
        "against |A| @ |B|, and how many of the lines were widened; s20 in CUDA."
    )
    caption = store.caption(frame, published)
    titles = [{"fp32": "SGEMM", "tf32": "TF32"}.get(math, math) for math in maths]
    return f"{Table.of(['inputs', 'K', *titles], rows).to_markdown()}\n\n{said} {caption}."


def _own(frame: pd.DataFrame) -> pd.DataFrame:
    """The libraries' errors and CUDA's."""
    return frame[frame["max_error"].notna() & frame["dialect"].isin(("", BY_HAND))] if len(frame) else frame


def _lost(rows: pd.DataFrame) -> str:
    if rows.empty:
        return "–"
    row = rows.iloc[0]
    widened = f", {format_percent(row.widened, 0)} widened" if row.widened > 0 else ""
    return f"{format_error(row.rel_error)} / {format_error(row.max_error)}{widened}"


def of_emulation(frame: pd.DataFrame) -> Iterator[str]:
    """Where emulated modes lose less than SGEMM, of all inputs and depths, and where they lose the most beside it."""
    errors = _own(frame).pivot_table(index=["view", *_INPUTS], columns="math", values="max_error", sort=False)
    for math in gemm_ref.EMULATED:
        if {math, "fp32"} <= set(errors.columns):
            beside = (errors[math] / errors["fp32"]).dropna()
            most = beside.idxmax()
            yield (
                f"The largest error of an element in {math} is below SGEMM's at {(beside < 1).sum()} of {len(beside)} "
                f"inputs and depths, and at most {beside.max():.2g} times as large ({join_words(map(str, most[1:]))})"
            )
